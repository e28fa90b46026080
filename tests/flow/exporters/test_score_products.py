"""Scores reach Phoenix and MLflow from every way of running, in the order of their revisions, and
never hold a program up.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import ConfigError, EvalSpanExporter, EvalSpanProcessor
from otel_eval.app.checking import check
from otel_eval.app.server import Server
from otel_eval.app.stored_traces import replay
from otel_eval.cli import main
from otel_eval.config import EvalConfig, Evaluation, load
from otel_eval.model import Outcome, Scored, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.storage.record_types import RecordKind, unpack_evaluated
from tests.support.certificates import Authority
from tests.support.fork_server import FORKS
from tests.support.listeners import NO_PROBLEMS
from tests.support.receiver_process import Served, request, whole
from tests.support.score_products import (
    HANG,
    FakeDatadog,
    FakeLangfuse,
    FakeLangsmith,
    FakeLogfire,
    FakeMlflow,
    FakePhoenix,
    FakeProduct,
    serving,
)
from tests.support.waiting import LIMIT_S

Until = Callable[[Callable[[], bool]], None]
EVALUATIONS = [
    {
        "name": "e",
        "scorers": [
            {"type": "tool_call_count", "criteria": {"search": "<= 3"}},
            {"type": "tool_errors"},
        ],
    }
]
QUICK = {"decision_wait": "100ms", "decision_wait_partial": "200ms"}


@pytest.fixture(params=[FakePhoenix, FakeMlflow])
def product(request: pytest.FixtureRequest) -> Iterator[FakeProduct]:
    """Each product."""
    with serving(request.param()) as running:
        yield running


def config(product: FakeProduct, **more: Any) -> dict[str, Any]:
    name = "phoenix" if isinstance(product, FakePhoenix) else "mlflow"
    return {
        "traces": QUICK,
        "evaluations": EVALUATIONS,
        "exporters": {name: {"endpoint": product.url, **more}},
    }


def stored(product: FakeProduct) -> dict[str, tuple[Any, int]]:
    """Each score's value and revision, by span and name."""
    if isinstance(product, FakePhoenix):
        found = [
            (key[0], each, each["result"]["score"]) for key, each in product.annotations.items()
        ]
        return {
            f"{span} {each['name']}": (value, each["metadata"]["revision"])
            for span, each, value in found
        }
    assert isinstance(product, FakeMlflow)
    return {
        f"{each['span_id']} {each['assessment_name']}": (
            each["feedback"].get("value"),
            int(each["metadata"]["revision"]),
        )
        for each in product.assessments.values()
    }


def revisions(product: FakeProduct, name: str) -> list[int]:
    """The revisions of a scorer's scores in the order in which the product was sent them."""
    bodies = [
        body
        for method, path, body in product.requests
        if "annotation_configs" not in path
        and ((body and method != "POST") or isinstance(product, FakePhoenix))
    ]
    items = [
        each
        for body in bodies
        for each in (body["data"] if "data" in body else [body["assessment"]])
    ]
    return [
        int(each["metadata"]["revision"]) for each in items if each["metadata"]["scorer"] == name
    ]


def agent_run(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("app")
    with (
        tracer.start_as_current_span(
            "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
        ),
        tracer.start_as_current_span(
            "execute_tool search", attributes={"gen_ai.operation.name": "execute_tool"}
        ),
    ):
        pass


def stored_traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.binpb"
    path.write_bytes(whole(1))
    return path


# --------------------------------------------------------------------------------------- every way
# of running


def in_process(product: FakeProduct, tmp_path: Path) -> None:
    provider = TracerProvider()
    provider.add_span_processor(EvalSpanProcessor(config(product)))
    agent_run(provider)
    provider.shutdown()


def wrapped(product: FakeProduct, tmp_path: Path) -> None:
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(EvalSpanExporter(InMemorySpanExporter(), config(product)))
    )
    agent_run(provider)
    provider.shutdown()


def served(product: FakeProduct, tmp_path: Path) -> None:
    with receiving(config(product)) as post:
        post(whole(1))


def replayed(product: FakeProduct, tmp_path: Path) -> None:
    path = tmp_path / "eval.json"
    path.write_text(json.dumps(config(product)))
    assert main(["replay", str(stored_traces(tmp_path)), "--config", str(path), "--export"]) in (
        0,
        1,
    )


@contextmanager
def receiving(given: Any) -> Iterator[Callable[[bytes], None]]:
    """A receiver, and how to send to it; it has exported everything at the end."""
    anywhere = {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}}
    server = Server(
        given if isinstance(given, EvalConfig) else load(given | {"receivers": anywhere})
    )
    bound = server.start()

    def post(body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        asked = urllib.request.Request(f"http://{bound.http}/v1/traces", data=body, headers=headers)
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            asked, timeout=300
        ).close()

    try:
        yield post
    finally:
        server.stop(60.0)


@pytest.mark.parametrize("way", [in_process, wrapped, served, replayed])
def test_scores_arrive_from_every_way_of_running(
    product: FakeProduct, way: Callable[..., None], tmp_path: Path
) -> None:
    """One score of each scorer and the verdict, on the run's span."""
    way(product, tmp_path)
    names = sorted(key.split()[1] for key in stored(product))
    assert names == ["#verdict", "tool_call_count", "tool_errors"]
    assert len({key.split()[0] for key in stored(product)}) == 1


def test_a_second_replay_changes_no_count(product: FakeProduct, tmp_path: Path) -> None:
    """The same scores under the same keys."""
    replayed(product, tmp_path)
    before = stored(product)
    replayed(product, tmp_path)
    assert (stored(product), len(before)) == (before, 3)


def test_a_receiver_that_exports_to_a_product_writes_no_lines_to_stdout(
    product: FakeProduct, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with any exporter."""
    served(product, tmp_path)
    assert capsys.readouterr().out == ""


# --------------------------------------------------------------------------------------- order


def test_late_spans_replace_the_score(product: FakeProduct, until: Until) -> None:
    """The newest revision is what the product shows."""
    given = config(product) | {"traces": QUICK | {"grace_period": "1h"}}
    with receiving(given) as post:
        post(request((1, 1, 0, ""), (1, 2, 1, "search"), (1, 3, 1, "search"), (1, 4, 1, "search")))
        until(lambda: len(stored(product)) == 3)
        post(request((1, 5, 1, "search")))
        until(lambda: stored(product)[f"{1:016x} tool_call_count"] == (0.0, 1))
    assert revisions(product, "tool_call_count")[-1] == 1


@pytest.mark.slow
def test_after_a_crash_no_older_revision_replaces_a_newer_one(
    product: FakeProduct, tmp_path: Path, until: Until
) -> None:
    """Killed while the product is away; nothing is lost either."""
    product.status = 503
    exporters = config(product)["exporters"]
    receiver = Served(tmp_path, exporters=exporters, evaluations=EVALUATIONS)
    receiver.fork_server = FORKS
    receiver.start()
    try:
        for trace in range(1, 6):
            receiver.insist(whole(trace))
        until(lambda: len(product.requests) > 1)
        for trace in range(1, 6):
            receiver.insist(request((trace, 7, 1, "search")))
        until(lambda: evaluated(receiver) == 10)  # the second revisions are on disk
        receiver.end()
        product.requests.clear()
        product.status = 0
        receiver.start()
        # Phoenix knows annotations by their spans, and these traces have the same span ids.
        scores = (
            product.annotations
            if isinstance(product, FakePhoenix)
            else getattr(product, "assessments", {})
        )
        until(lambda: len(scores) == (3 if isinstance(product, FakePhoenix) else 15))
    finally:
        receiver.end()
    assert set(revisions(product, "tool_call_count")) == {1}
    assert {value for key, value in stored(product).items() if "count" in key} == {(0.0, 1)}


def evaluated(receiver: Served) -> int:
    """The number of evaluations of traces that are on disk."""
    payloads = receiver.recorded(RecordKind.EVALUATED)
    return sum(len([*unpack_evaluated(payload)]) for payload in payloads)


class SlowJudge:
    """Does not answer about runs of fewer than two calls while `hangs`."""

    type, version, needs, asynchronous, name = "judge", "1", frozenset({"arguments"}), True, "judge"

    def __init__(self, hangs: bool) -> None:
        self.hangs, self.asked = hangs, 0

    def __call__(self, trajectory: Trajectory) -> Outcome:
        raise NotImplementedError

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        self.asked += 1
        if self.hangs and len(trajectory.calls) < 2:
            await asyncio.sleep(3600)
        return Scored(len(trajectory.calls) / 10, passed=True)


def test_an_answer_about_an_older_revision_that_comes_after_a_restart_replaces_nothing(
    product: FakeProduct, tmp_path: Path, until: Until
) -> None:
    """The newer one was delivered by the process before."""

    def settings(judge: SlowJudge, folder: str) -> EvalConfig:
        given = config(product) | {
            "traces": QUICK | {"grace_period": "1h"},
            "storage": {"directory": str(tmp_path / folder)},
        }
        given |= {"receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}}}
        return EvalConfig(
            **given
            | {
                "evaluations": [
                    Evaluation(name="e", scorers=(create_scorer({"type": "tool_errors"}), judge))
                ]
            }
        )

    with receiving(settings(SlowJudge(hangs=True), "kept")) as post:
        post(whole(1, tools=1))
        until(lambda: len(stored(product)) == 1)
        post(request((1, 9, 1, "search")))
        until(lambda: stored(product).get(f"{1:016x} judge") == (0.2, 1))
        shutil.copytree(tmp_path / "kept", tmp_path / "crashed")
    again = SlowJudge(hangs=False)
    with receiving(settings(again, "crashed")):
        until(lambda: again.asked == 1)
    assert stored(product)[f"{1:016x} judge"] == (0.2, 1)


# --------------------------------------------------------------------------------------- the host


def test_a_product_that_hangs_never_holds_the_program_up(product: FakeProduct) -> None:
    """Neither its spans nor, for more than five seconds, its end."""
    product.script = [HANG] * 100
    provider = TracerProvider()
    provider.add_span_processor(EvalSpanProcessor(config(product)))
    started = time.monotonic()
    for _ in range(200):
        agent_run(provider)
    assert time.monotonic() - started < LIMIT_S
    started = time.monotonic()
    provider.shutdown()
    assert time.monotonic() - started < LIMIT_S


def test_scores_are_sent_by_tls_to_the_authority_that_is_named(tmp_path: Path) -> None:
    """And to no other."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    files = authority.issue("server")
    context.load_cert_chain(files["cert_file"], files["key_file"])
    with serving(
        FakePhoenix(), lambda sock: context.wrap_socket(sock, server_side=True)
    ) as product:
        product.url = product.url.replace("http://", "https://")
        given = config(product, tls={"ca_file": authority.file})
        check(load(given))
        list(replay([stored_traces(tmp_path)], load(given), export=True, listener=NO_PROBLEMS))
        assert len(stored(product)) == 3


# ---------------------------------------------------------------------------------------
# configuration

PHOENIX = {"endpoint": "http://127.0.0.1:6006"}
LONG = "x" * 150


@pytest.mark.parametrize(
    ("exporters", "scorer", "problem"),
    [
        ({"phoenix": {}}, {}, "exporters.phoenix.endpoint: is missing; add it"),
        (
            {"phoenix": {"endpoint": "127.0.0.1:6006"}},
            {},
            "exporters.phoenix.endpoint: '127.0.0.1:6006' is not a URL",
        ),
        (
            {"phoenix": {"endpoint": "http://me:pw@h"}},
            {},
            "exporters.phoenix.endpoint: the URL holds a user, a password or",
        ),
        ({"phoenix": PHOENIX | {"timeout": 0}}, {}, "exporters.phoenix.timeout: 0"),
        (
            {"phoenix": PHOENIX | {"trace_anotations": True}},
            {},
            "did you mean 'trace_annotations'?",
        ),
        (
            {"phoenix": PHOENIX | {"headers": {"a": "b\nc"}}},
            {},
            "exporters.phoenix.headers.a: is no header; write printable ASCII",
        ),
        (
            {"phoenix": PHOENIX | {"tls": {"ca_file": "ca.pem"}}},
            {},
            "exporters.phoenix.tls: files are named, but",
        ),
        (
            {"phoenix": {"endpoint": "https://h", "tls": {"ca_file": "/no/ca"}}},
            {},
            "exporters.phoenix.tls.ca_file: '/no/ca' cannot",
        ),
        (
            {"phoenix": PHOENIX},
            {"name": "note"},
            "the scorer 'note' of 'e' has a name that Phoenix keeps for notes; give it",
        ),
        (
            {"mlflow": {"endpoint": "http://h"}},
            {"name": LONG * 2},
            "characters, not 1 to 200; shorten it",
        ),
        ({"datadog": {"endpoint": "http://h"}}, {}, "exporters.datadog.ml_app: is missing; add it"),
        (
            {"datadog": {"endpoint": "http://h", "ml_app": "a", "unscored": True}},
            {},
            "exporters.datadog.unscored: True is invalid; write False",
        ),
        (
            {"langfuse": {"endpoint": "http://me:pw@h"}},
            {},
            "exporters.langfuse.endpoint: the URL holds a user",
        ),
        (
            {"mlflow": {"endpoint": "http://h", "max_wait": "soon"}},
            {},
            "exporters.mlflow.max_wait: 'soon' is not a duration",
        ),
        (
            {"mlflow": {"endpoint": "http://h"}},
            {"name": "#verdict"},
            "has the name under which verdicts are sent; give it another name",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_in_one_line(
    exporters: dict[str, Any], scorer: dict[str, Any], problem: str
) -> None:
    """With the key, the value and the remedy, and without secrets."""
    evaluations = [{"name": "e", "scorers": [{"type": "tool_errors", **scorer}]}]
    with pytest.raises(ConfigError) as refused:
        check(load({"evaluations": evaluations, "exporters": exporters}))
    assert problem in str(refused.value)
    assert len(refused.value.problems) == 1
    assert "pw" not in str(refused.value)


def test_scores_arrive_in_products_that_are_known_from_their_documentation(tmp_path: Path) -> None:
    """Configured like the others, and several at once."""
    with (
        serving(FakeLangfuse()) as langfuse,
        serving(FakeLangsmith()) as langsmith,
        serving(FakeDatadog()) as datadog,
        serving(FakeLogfire()) as logfire,
    ):
        exporters: dict[str, Any] = {
            "langfuse": {"endpoint": langfuse.url},
            "langsmith": {"endpoint": langsmith.url},
        }
        exporters["datadog"] = {"endpoint": datadog.url, "ml_app": "shop"}
        exporters["logfire"] = {"endpoint": logfire.url}
        given = {"evaluations": EVALUATIONS, "exporters": exporters}
        list(replay([stored_traces(tmp_path)], load(given), export=True, listener=NO_PROBLEMS))
        scores = {each["name"]: each["value"] for each in langfuse.scores.values()}
        feedback = {each["key"]: each["score"] for each in langsmith.feedback.values()}
        evaluations = {each["label"]: each["score_value"] for each in datadog.metrics}
        annotations = {
            each["logfire.feedback.name"]: each[each["logfire.feedback.name"]]
            for each in logfire.spans.values()
        }
        assert (
            scores
            == feedback
            == evaluations
            == annotations
            == {
                "tool_call_count": 1.0,
                "tool_errors": 1.0,
            }
        )


@pytest.mark.parametrize("names", [("a", "b"), ("a", "a")])
def test_a_name_that_two_evaluations_use_is_qualified(
    product: FakeProduct, names: tuple[str, str], tmp_path: Path
) -> None:
    """Also in the configuration of a program."""
    scorers = [[{"type": "tool_errors", "name": name}] for name in names]
    evaluations = [{"name": f"e{at}", "scorers": each} for at, each in enumerate(scorers)]
    given = config(product) | {"evaluations": evaluations}
    list(replay([stored_traces(tmp_path)], load(given), export=True, listener=NO_PROBLEMS))
    named = {key.split()[1] for key in stored(product)} - {"#verdict"}
    assert sorted(named) == (["a", "b"] if names == ("a", "b") else ["e0.a", "e1.a"])
