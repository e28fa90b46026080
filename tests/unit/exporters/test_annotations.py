"""Scores for products with an API of their own: what is sent, what is refused, retried and put off;
over real sockets.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from otel_eval.counters import Counters, count_name
from otel_eval.delivery.export_queue import ExportQueue
from otel_eval.exporters.annotations import response_result
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.exporters.products import (
    DatadogExporter,
    LangfuseExporter,
    LangsmithExporter,
    LogfireExporter,
    MlflowExporter,
    PhoenixExporter,
)
from otel_eval.exporters.scores import KnownScorers
from otel_eval.model import Report, Scored, Skipped
from otel_eval.otlp.endpoint import Endpoint, HttpResponse
from otel_eval.retry import RetryPolicy
from tests.support.score_products import (
    HANG,
    FakeDatadog,
    FakeLangfuse,
    FakeLangsmith,
    FakeLogfire,
    FakeMlflow,
    FakePhoenix,
    serving,
)
from tests.support.waiting import LIMIT_S, wait_until

from .conftest import SPAN, TRACE, make_report

FAST = RetryPolicy(first_s=0.01, longest_s=0.05, last_s=0.01)
NONE = KnownScorers()


@pytest.fixture(params=[FakePhoenix, FakeMlflow, FakeLangfuse, FakeLangsmith])
def product(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each product."""
    with serving(request.param()) as running:
        yield running


@pytest.fixture
def phoenix() -> Iterator[FakePhoenix]:
    with serving(FakePhoenix()) as running:
        yield running


@pytest.fixture
def langfuse() -> Iterator[FakeLangfuse]:
    with serving(FakeLangfuse()) as running:
        yield running


@pytest.fixture
def langsmith() -> Iterator[FakeLangsmith]:
    with serving(FakeLangsmith()) as running:
        yield running


@pytest.fixture
def mlflow() -> Iterator[FakeMlflow]:
    with serving(FakeMlflow()) as running:
        yield running


_MADE: list[Any] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close every exporter that a test made."""
    yield
    while _MADE:
        _MADE.pop().close(1.0)


def made(
    product: Any, known: KnownScorers = NONE, to: dict[str, Any] | None = None, **options: Any
) -> Any:
    """The exporter to this product."""
    kinds = {
        FakeDatadog: DatadogExporter,
        FakePhoenix: PhoenixExporter,
        FakeMlflow: MlflowExporter,
        FakeLangfuse: LangfuseExporter,
        FakeLangsmith: LangsmithExporter,
        FakeLogfire: LogfireExporter,
    }
    kind: Any = kinds[type(product)]
    _MADE.append(kind(Endpoint(endpoint=product.url, **(to or {})), known, **options))
    return _MADE[-1]


@contextmanager
def exporting(
    exporter: Any, dead: Path | None = None, **options: Any
) -> Iterator[tuple[ExportQueue, Counters]]:
    """A queue of the exporter that waits little."""
    counters = Counters()
    letters = DeadLetterFile(dead) if dead else None
    queue = ExportQueue(
        exporter, counters, dead_letters=letters, retry=FAST, linger_s=0.01, **options
    )
    queue.start()
    try:
        yield queue, counters
    finally:
        queue.close(2.0)


def run(number: int = 0, *kinds: str, **more: Any) -> Report:
    """A report on a run of its own, whose result ids are its own, too."""
    made = make_report(
        *(kinds or ("scored",)), trace_id=f"{number + 1:032x}", span_id=f"{number + 1:016x}", **more
    )
    results = [
        replace(each, result_id=f"{number:016x}{at:015x}{made.revision:x}")
        for at, each in enumerate(made.results)
    ]
    return replace(made, results=tuple(results))


def with_result(report: Report, **changes: Any) -> Report:
    return replace(report, results=(replace(report.results[0], **changes),))


def stored(product: Any) -> dict[Any, Any]:
    """What the product shows: a value, a label or an error by run and name."""
    if isinstance(product, FakePhoenix):
        return {
            (key[0], each["name"]): each["result"]["label"]
            if each["result"]["score"] is None
            else each["result"]["score"]
            for key, each in product.annotations.items()
        }
    if isinstance(product, FakeLangfuse):
        return {
            (each["observationId"], each["name"]): each["value"] for each in product.scores.values()
        }
    if isinstance(product, FakeLangsmith):
        shown = [
            (each, each["value"] if each["score"] is None else each["score"])
            for each in product.feedback.values()
        ]
        return {(each["run_id"].replace("-", "")[16:], each["key"]): value for each, value in shown}
    return {
        (each["span_id"], each["assessment_name"]): each["feedback"].get("value", "not_evaluated")
        for each in product.assessments.values()
    }


def dead_letters(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ------------------------------------------------------------------------------------- what is sent


def test_phoenix_gets_an_annotation_of_the_runs_span(phoenix: FakePhoenix):
    """The scorer's name, the evaluation as the identifier, and metadata that describe the
    result.
    """
    page = "http://localhost:4319"
    known = KnownScorers(judges=frozenset({("policy", "below")}), page=page)
    made(phoenix, known).export([make_report("scored", "below", revision=2)])
    assert [path for _, path, _ in phoenix.requests] == ["/v1/span_annotations?sync=false"]
    first, second = (
        phoenix.annotations[SPAN, "scored", "policy"],
        phoenix.annotations[SPAN, "below", "policy"],
    )
    assert first == {
        "span_id": SPAN,
        "name": "scored",
        "annotator_kind": "CODE",
        "result": {"score": 0.75, "label": "pass", "explanation": "3 of 4 in order"},
        "metadata": {
            "evaluation": "policy",
            "scorer": "scored",
            "type": "tool_call_order",
            "version": "1",
            "outcome": "scored",
            "completeness": "remote_parent",
            "revision": 2,
            "result_id": f"{0:032x}",
            "page": f"{page}/#/runs/{TRACE}/{SPAN}",
        },
        "identifier": "policy",
    }
    assert (second["annotator_kind"], second["result"]["label"]) == ("LLM", "fail")


def test_phoenix_gets_annotations_of_the_trace_of_outermost_runs_where_asked(phoenix: FakePhoenix):
    """Inner runs have annotations of their spans only."""
    inner = replace(run(1), trajectory=replace(run(1).trajectory, outermost=False))
    made(phoenix, trace_annotations=True).export([make_report("scored"), inner])
    assert (TRACE, "scored", "policy") in phoenix.annotations
    assert len(phoenix.annotations) == 3


def test_mlflow_gets_an_assessment_with_an_id_of_its_own_choice(mlflow: FakeMlflow):
    """PATCH, on 404 POST; the second time PATCH alone."""
    exporter = made(mlflow, to={"headers": {"authorization": "Bearer t"}}, experiment="7")
    for _ in range(2):
        exporter.export([make_report("scored")])
    assert [method for method, _, _ in mlflow.requests] == ["PATCH", "POST", "PATCH"]
    assert {
        (each["x-mlflow-experiment-id"], each["authorization"]) for each in mlflow.sent_headers
    } == {("7", "Bearer t")}
    [(key, assessment)] = mlflow.assessments.items()
    assert key == "a-" + sha256(f"{TRACE}\0{SPAN}\0policy\0scored".encode()).hexdigest()[:32]
    assert assessment == {
        "assessment_id": key,
        "assessment_name": "scored",
        "trace_id": f"tr-{TRACE}",
        "span_id": SPAN,
        "source": {"source_type": "CODE", "source_id": "otel_eval"},
        "feedback": {"value": 0.75},
        "rationale": "3 of 4 in order",
        "valid": True,
        "metadata": {
            "evaluation": "policy",
            "scorer": "scored",
            "type": "tool_call_order",
            "version": "1",
            "outcome": "scored",
            "completeness": "remote_parent",
            "revision": "0",
            "result_id": f"{0:032x}",
        },
    }


def test_langfuse_gets_a_score_of_the_runs_observation(langfuse: FakeLangfuse):
    """Its id is the same for each revision, so that the score is updated."""
    exporter = made(langfuse)
    for revision in (0, 1):
        exporter.export([make_report("scored", revision=revision)])
    [(key, score)] = langfuse.scores.items()
    assert (
        key == "otel-eval-" + sha256(f"{TRACE}\0{SPAN}\0policy\0scored".encode()).hexdigest()[:32]
    )
    assert score | {"metadata": score["metadata"]["revision"]} == {
        "id": key,
        "traceId": TRACE,
        "observationId": SPAN,
        "name": "scored",
        "value": 0.75,
        "dataType": "NUMERIC",
        "comment": "3 of 4 in order",
        "metadata": 1,
    }


def test_langsmith_gets_feedback_on_the_run_of_the_span(langsmith: FakeLangsmith):
    """Its id is chosen here; the run's id is that of the span, with zeros in front."""
    langsmith.runs = set()
    exporter = made(langsmith)
    assert exporter.export([make_report("scored")]).deferred == ((0, 0),)
    langsmith.runs, langsmith.racing = None, True
    exporter.export([make_report("scored", revision=1)])
    [(key, feedback)] = langsmith.feedback.items()
    assert (
        key.replace("-", "") == sha256(f"{TRACE}\0{SPAN}\0policy\0scored".encode()).hexdigest()[:32]
    )
    assert feedback == {
        "run_id": f"00000000-0000-0000-{SPAN[:4]}-{SPAN[4:]}",
        "key": "scored",
        "score": 0.75,
        "value": None,
        "comment": "3 of 4 in order",
    }
    assert [method for method, _, _ in langsmith.requests] == [
        "PATCH",
        "POST",
        "PATCH",
        "POST",
        "PATCH",
    ]
    source = langsmith.requests[3][2]["feedback_source"]
    assert (source["type"], source["metadata"]["evaluation"], source["metadata"]["revision"]) == (
        "api",
        "policy",
        1,
    )


def test_datadog_gets_evaluations_with_decimal_ids():
    """Values and labels; nothing in place of a score, since none is replaced."""
    label = with_result(
        run(1), scorer="1st label", outcome=Skipped("recorded", "recorded", {"label": "refund"})
    )
    with serving(FakeDatadog()) as datadog:
        before_ms = time.time() * 1000
        result = made(datadog, ml_app="shop").export(
            [make_report("scored", "skipped", revision=1), label]
        )
        after_ms = time.time() * 1000
    first, second = datadog.metrics
    tags = [
        "source:otel",
        "evaluation:policy",
        "type:tool_call_order",
        "version:1",
        "completeness:remote_parent",
    ]
    assert result.not_sent == {"unscored": 1}
    assert before_ms - 1 <= first.pop("timestamp_ms") <= after_ms + 1
    assert first == {
        "join_on": {"span": {"span_id": str(int(SPAN, 16)), "trace_id": str(int(TRACE, 16))}},
        "ml_app": "shop",
        "label": "scored",
        "metric_type": "score",
        "score_value": 0.75,
        "assessment": "pass",
        "reasoning": "3 of 4 in order",
        "tags": [*tags, "revision:1", f"result_id:{0:032x}"],
    }
    assert (second["label"], second["metric_type"], second["categorical_value"]) == (
        "s_1st_label",
        "categorical",
        "refund",
    )


def test_logfire_gets_feedback_at_the_end_of_the_run():
    """The span that its own package makes of feedback, under the run's span; sent again, it is the
    same span.
    """
    label = with_result(run(1), outcome=Skipped("recorded", "recorded", {"label": "refund"}))
    report = make_report("scored", "skipped", revision=1)
    report = replace(
        report,
        trajectory=replace(
            report.trajectory,
            start_ns=5,
            end_ns=7,
            last_end_ns=None,
            resource={"service.name": "shop"},
        ),
    )
    with serving(FakeLogfire()) as logfire:
        exporter = made(logfire, to={"headers": {"authorization": "token"}})
        assert exporter.export([report, label]).not_sent == {"unscored": 1}
        exporter.export([report])
    assert (
        logfire.sent_headers[0].items()
        >= {"authorization": "token", "content-type": "application/x-protobuf"}.items()
    )
    first, second = logfire.spans.values()
    assert [key[:2] for key in logfire.spans] == [(TRACE, SPAN), (f"{2:032x}", f"{2:016x}")]
    assert first == {
        "name": "feedback: scored",
        "resource": {"service.name": "shop"},
        "at": 7,
        "logfire.span_type": "annotation",
        "logfire.level_num": 9,
        "logfire.msg_template": "feedback: scored",
        "logfire.msg": "feedback: scored = 0.75",
        "logfire.feedback.name": "scored",
        "scored": 0.75,
        "logfire.feedback.comment": "3 of 4 in order",
        "otel_eval.label": "pass",
        "otel_eval.evaluation": "policy",
        "otel_eval.scorer": "scored",
        "otel_eval.type": "tool_call_order",
        "otel_eval.version": "1",
        "otel_eval.outcome": "scored",
        "otel_eval.completeness": "remote_parent",
        "otel_eval.revision": 1,
        "otel_eval.result_id": f"{0:032x}",
    }
    assert second["scored"] == "refund"


def test_a_score_that_logfire_rejects_in_part_of_a_request_is_found():
    """The others are there."""
    with serving(FakeLogfire()) as logfire:
        logfire.rejected = {"feedback: below"}
        result = made(logfire).export([run(0, "scored", "below"), run(1)])
    assert result.failed == ((0, 1),)
    assert [key[0] for key in logfire.spans] == [f"{1:032x}", f"{2:032x}"]


def test_mlflow_updates_an_assessment_that_another_client_created_meanwhile(mlflow: FakeMlflow):
    """A POST that violates the constraint is followed by one PATCH."""
    mlflow.racing = True
    assert made(mlflow).export([make_report("scored")]).failed == ()
    assert [method for method, _, _ in mlflow.requests] == ["PATCH", "POST", "PATCH"]
    assert [each["feedback"] for each in mlflow.assessments.values()] == [{"value": 0.75}]


def test_an_exporter_is_counted_by_the_key_of_its_block(product: Any):
    assert f"Fake{made(product).name.capitalize()}" == type(product).__name__


def test_skipped_and_failed_results_replace_earlier_scores_only(product: Any):
    """Of the first revision there is nothing to replace; unknown is never shown as a number."""
    exporter = made(product)
    result = exporter.export([run(0, "scored", "skipped", "failed")])
    assert result.not_sent == {"unscored": 2}
    exporter.export(
        [with_result(run(0, "skipped", revision=1), scorer="scored"), run(1, "failed", revision=1)]
    )
    assert stored(product) == {
        (f"{1:016x}", "scored"): "not_evaluated",
        (f"{2:016x}", "failed"): "not_evaluated",
    }
    assert "secret content" not in json.dumps([body for _, _, body in product.requests])
    always = made(product, unscored=True)
    always.export([run(2, "skipped")])
    assert stored(product)[f"{3:016x}", "skipped"] == "not_evaluated"


def test_a_label_distribution_sends_its_label(product: Any):
    """Though such a result is always skipped."""
    outcome = Skipped("recorded for the distribution", "recorded", {"label": "refund"})
    made(product).export([with_result(run(), outcome=outcome)])
    assert list(stored(product).values()) == ["refund"]


def test_scores_of_scorers_that_several_evaluations_have_are_named_after_both(product: Any):
    """Else two evaluations of a run would write scores of one name."""
    made(product, KnownScorers(shared=frozenset({"scored"}))).export(
        [run(), run(0, evaluation="other")]
    )
    assert {name for _, name in stored(product)} == {"policy.scored", "other.scored"}


VERDICTS = [
    (("scored",), "pass", "every score passes"),
    (("scored", "below", "failed"), "not_passed", "below: 1 of 4 in order"),
    (("scored", "skipped"), "not_evaluated", "skipped: arguments not recorded"),
]


@pytest.mark.parametrize(("kinds", "verdict", "why"), VERDICTS)
def test_the_verdict_is_a_score_before_all_others(
    product: Any, kinds: tuple[str, ...], verdict: str, why: str
):
    """With the reasons of what did not pass; unknown is neither."""
    if isinstance(product, FakePhoenix | FakeMlflow):
        with exporting(made(product, verdict=True)) as (queue, _):
            queue.export([run(0, *kinds)])
            assert queue.drain(LIMIT_S)
        sent = stored(product)
        assert min(name for _, name in sent) == "#verdict"
        if isinstance(product, FakePhoenix):
            annotation = product.annotations[f"{1:016x}", "#verdict", "policy"]["result"]
            value = {"pass": 1.0, "not_passed": 0.0}.get(verdict)
            assert annotation == {"label": verdict, "score": value, "explanation": why}
        else:
            [assessment] = [
                each
                for each in product.assessments.values()
                if each["assessment_name"] == "#verdict"
            ]
            label = "fail" if verdict == "not_passed" else verdict
            assert (assessment["feedback"], assessment["rationale"]) == ({"value": label}, why)


def test_a_late_result_that_passes_does_not_replace_the_reasons_of_a_verdict(
    phoenix: FakePhoenix,
):
    """A judge's, which comes in a report of its own."""
    first = run(0, "below")
    late = replace(run(0, "scored"), late=True, standing=first.standing)
    with exporting(made(phoenix, verdict=True)) as (queue, _):
        queue.export([first, late])
        assert queue.drain(LIMIT_S)
    annotation = phoenix.annotations[f"{1:016x}", "#verdict", "policy"]["result"]
    assert annotation["explanation"] == "below: 1 of 4 in order"


def test_annotations_get_a_configuration_where_the_user_has_none(phoenix: FakePhoenix):
    """Once, and assigned to the project of the runs."""
    phoenix.configs["id=0"] = {"name": "scored", "type": "FREEFORM"}
    exporter = made(phoenix, verdict=True, annotation_configs=True)
    runs = [
        run(n, "scored", "below", resource={"openinference.project.name": "a/b"}) for n in (0, 1)
    ]
    for each in runs:
        exporter.export([exporter.prepared(each)])
    configs = {each["name"]: each["type"] for each in phoenix.configs.values()}
    assert configs == {"scored": "FREEFORM", "below": "CONTINUOUS", "#verdict": "CATEGORICAL"}
    assert sorted(phoenix.assigned) == [("a/b", key) for key in ("id=0", "id=1", "id=2")]


def test_scores_are_sent_where_configurations_are_refused(
    phoenix: FakePhoenix, caplog: pytest.LogCaptureFixture
):
    """Which is said once."""
    exporter = made(phoenix, annotation_configs=True)
    for number in range(2):
        phoenix.script = [0, 403]
        assert exporter.export([run(number)]).status == "ok"
    assert len(phoenix.annotations) == 2
    assert "have no colours" in caplog.text
    assert caplog.text.count("answered 403") == 1


# ------------------------------------------------------------------------------------- what is
# checked


@pytest.mark.parametrize("value", [math.inf, math.nan, -0.1, 1.5])
def test_a_score_that_is_no_number_in_range_is_not_sent(product: Any, value: float, tmp_path: Path):
    """Infinity breaks a page of Phoenix for a whole project."""
    with exporting(made(product), tmp_path / "dead") as (queue, counters):
        bad = with_result(run(1), outcome=Scored(value, True))
        queue.export([run(0), bad])
        assert queue.drain(LIMIT_S)
    assert list(stored(product)) == [(f"{1:016x}", "scored")]
    assert (counters.get("results.exported"), counters.get("results.dead_letters")) == (1, 1)
    assert [each["why"] for each in dead_letters(tmp_path / "dead")] == [
        "the score is not a number in [0, 1]"
    ]


@pytest.mark.parametrize("name", ["", "x" * 201, "\0"])
def test_a_score_without_a_usable_name_is_not_sent(phoenix: FakePhoenix, name: str):
    """Phoenix would take it and show nothing, or too much."""
    known = KnownScorers()
    report = with_result(run(), scorer=name, evaluation="" if not name else "policy")
    assert made(phoenix, known).export([report]).failed == ((0, 0),)
    assert not phoenix.requests


@pytest.mark.parametrize(
    "ids", [{"span_id": ""}, {"span_id": "B7AD6B7169203331"}, {"trace_id": SPAN}]
)
def test_a_run_without_valid_ids_is_not_sent(product: Any, ids: dict[str, str]):
    """Phoenix finds no span by an id in capitals."""
    report = replace(run(), trajectory=replace(run().trajectory, **ids))
    result = made(product).export([report])
    assert (result.failed, product.requests) == (((0, 0),), [])


def test_texts_are_valid_and_short(product: Any):
    """No NUL, no half of a surrogate pair, at most 4 KiB of explanation."""
    # an odd number of bytes: one byte more than the limit would let one more in
    text = "\0x" + chr(0xD800) + "é" * 5000
    made(product).export(
        [with_result(run(), scorer="a\0b" + chr(0xDC00), outcome=Scored(1.0, True, text))]
    )
    sent = json.dumps(product.requests[-1][2])
    body = product.requests[-1][2]
    [name] = {name for _, name in stored(product)}
    given = body.get("assessment", body)
    annotated = body["data"][0]["result"] if "data" in body else {}
    explanation = annotated.get("explanation") or given.get("rationale") or given.get("comment")
    assert (name, "\\u0000" in sent, "\\ud8" in sent) == ("ab?", False, False)
    assert 4000 < len(explanation.encode()) <= 4096


# ------------------------------------------------------------------------------------- order


def test_an_older_revision_never_replaces_a_newer_one(product: Any):
    """Neither in one batch, nor when it comes late, nor after a restart."""
    exporter = made(product)
    newer = with_result(run(0, revision=2), outcome=Scored(0.5, True))
    results = [exporter.export([run(0), newer]), exporter.export([run(0, revision=1)])]
    assert [each.not_sent for each in results] == [{"superseded": 1}, {"superseded": 1}]
    after = made(product)
    after.revised(newer)
    assert after.export([run(0)]).not_sent == {"superseded": 1}
    assert list(stored(product).values()) == [0.5]


def test_a_second_export_changes_no_count(product: Any):
    """The same results have the same keys."""
    exporter = made(product)
    batch = [run(number, "scored", "below") for number in range(5)]
    exporter.export(batch)
    before = stored(product)
    made(product).export(batch)
    assert (stored(product), len(before)) == (before, 10)


# ------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("status", [401, 503])
def test_scores_are_kept_while_the_product_does_not_take_any(
    product: Any, status: int, tmp_path: Path
):
    """Credentials and outages are repaired; nothing is lost meanwhile."""
    product.status = status
    with exporting(made(product), tmp_path / "dead") as (queue, counters):
        queue.export([run(0, "scored", "below"), run(1)])
        wait_until(lambda: counters.get("results.retries") >= 3)
        product.status = 0
        assert queue.drain(LIMIT_S)
    assert len(stored(product)) == counters.get("results.exported") == 3
    assert dead_letters(tmp_path / "dead") == []


@pytest.mark.parametrize("status", [404, 302])
def test_scores_wait_while_the_product_does_not_have_the_path(
    product: Any, status: int, tmp_path: Path
):
    """A wrong route is repaired within minutes, and the last scores are in the file."""
    now = [0.0]
    product.status = status
    queue = ExportQueue(
        made(product),
        counters := Counters(),
        dead_letters=DeadLetterFile(tmp_path / "dead"),
        retry=RetryPolicy(first_s=0.001, last_s=0.001, clock=lambda: now[0]),
    )
    queue.start()
    queue.export([run(0, "scored", "below"), run(1)])
    assert not queue.flush(LIMIT_S)
    assert queue.counts()[count_name("results.queued", exporter=queue.name)] == 3
    product.status, now[0] = 0, 60.0
    assert queue.drain(LIMIT_S)
    queue.close(LIMIT_S)
    assert len(stored(product)) == counters.get("results.exported") == 3
    assert dead_letters(tmp_path / "dead") == []


def test_a_product_that_does_not_answer_is_tried_again(product: Any):
    """A timeout is a failure of the product, also on a connection that was used before."""
    with exporting(made(product, to={"timeout_s": 0.5})) as (queue, counters):
        for number in (0, 1):
            product.script = [HANG]
            queue.export([run(number)])
            assert queue.drain(LIMIT_S)
            queue.export([run(number + 2)])
            assert queue.drain(LIMIT_S)
            assert counters.get("results.retries") > number
    assert len(stored(product)) == 4


def test_refused_credentials_are_logged_once_a_minute_without_them(
    product: Any, caplog: pytest.LogCaptureFixture
):
    """The headers hold secrets."""
    product.status = 401
    caplog.set_level(logging.DEBUG)
    headers = {"authorization": "Bearer hunter2"}
    with exporting(made(product, to={"headers": headers})) as (queue, counters):
        queue.export([run()])
        wait_until(lambda: counters.get("results.retries") >= 4)
        lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "failed (401)" in line] == lines
    assert len(lines) == 1
    assert "hunter2" not in caplog.text


def test_the_product_is_given_the_time_that_it_asks_for(product: Any):
    """`Retry-After` in seconds."""
    product.script, product.headers = [429], {"Retry-After": "7"}
    result = made(product).export([run()])
    assert (result.status, result.after_s) == ("retryable", 7.0)


def test_requests_that_succeeded_before_a_failure_are_not_repeated(mlflow: FakeMlflow):
    """Else a product that limits the rate of requests would never get to the end of a batch."""
    mlflow.script = [0, 0, 0, 0, 429]  # each score takes a PATCH and a POST
    with exporting(made(mlflow)) as (queue, counters):
        queue.export([run(0), run(1), run(2)])
        assert queue.drain(LIMIT_S)
    assert (len(mlflow.requests), len(mlflow.assessments), counters.get("results.exported")) == (
        7,
        3,
        3,
    )


def test_redirects_are_not_followed(product: Any):
    """Another host must not get the credentials."""
    with serving(type(product)()) as other:
        product.status, product.headers = 307, {"Location": other.url}
        result = made(product, to={"headers": {"authorization": "Bearer t"}}).export([run()])
        assert (result.status, result.concerns_all) == ("unsupported", False)
        assert other.requests == []


def test_a_page_instead_of_an_answer_is_no_success() -> None:
    """A login page that a proxy shows with status 200."""
    page = HttpResponse(200, b"<html>Log in</html>", "text/html")
    assert response_result(page).status == "unsupported"


def test_the_one_score_that_is_refused_is_found(phoenix: FakePhoenix, tmp_path: Path):
    """Every other score of the request, and of its report, arrives."""
    phoenix.rejected = {"below"}
    with exporting(made(phoenix), tmp_path / "dead") as (queue, counters):
        queue.export([run(0), run(1, "scored", "below"), *map(run, range(2, 60))])
        assert queue.drain(LIMIT_S)
    assert {name for _, name in stored(phoenix)} == {"scored"}
    assert (
        len(phoenix.annotations),
        counters.get("results.exported"),
        counters.get("results.dead_letters"),
    ) == (60, 60, 1)
    assert [(each["scorer"], each["why"]) for each in dead_letters(tmp_path / "dead")] == [
        ("below", "422")
    ]
    assert len(phoenix.requests) < 20


def test_a_score_at_which_the_product_fails_again_and_again_is_refused(
    product: Any, tmp_path: Path
):
    """Others pass meanwhile; alone it would be tried for ever, since the product might be out of
    order.
    """
    product.poison = {"below"}
    with exporting(made(product), tmp_path / "dead") as (queue, counters):
        queue.export([run(0, "below", "scored")])
        numbers = count(1)
        wait_until(
            lambda: queue.export([run(next(numbers))]) and counters.get("results.dead_letters")
        )
        assert queue.drain(LIMIT_S)
    assert [(each["scorer"], each["why"]) for each in dead_letters(tmp_path / "dead")] == [
        ("below", "500")
    ]
    assert counters.get("results.exported") == len(stored(product))


def test_many_scores_at_which_the_product_fails_hold_up_no_other(product: Any, tmp_path: Path):
    """Also where they stand before all others."""
    product.poison = {"below"}
    bad = [run(number, "below") for number in range(20)]
    with exporting(made(product), tmp_path / "dead") as (queue, counters):
        queue.export([*bad, *map(run, range(20, 40))])
        numbers = count(40)
        wait_until(
            lambda: (
                queue.export([run(next(numbers))]) and counters.get("results.dead_letters") == 20
            )
        )
        assert queue.drain(LIMIT_S)
    assert {name for _, name in stored(product)} == {"scored"}
    assert counters.get("results.exported") == len(stored(product))


def test_a_batch_is_not_tried_for_ever_whose_other_scores_an_earlier_attempt_sent(
    langfuse: FakeLangfuse,
):
    """What is left of it proves nothing; the product took the rest before it failed for a
    moment.
    """
    langfuse.poison = {"below"}
    exporter, batch = made(langfuse), [run(20), run(21, "below")]
    assert (
        len(exporter.export([run(), *(run(number, "below") for number in range(1, 9))]).deferred)
        == 8
    )
    langfuse.script = [0, 503]
    assert exporter.export(batch).status == "retryable"
    result = exporter.export(batch)
    assert (result.status, result.deferred) == ("ok", ((1, 0),))


def test_a_score_waits_for_its_trace_while_others_pass(mlflow: FakeMlflow):
    """MLflow has no queue for scores that come before their spans."""
    mlflow.traces = {f"tr-{2:032x}"}
    with exporting(made(mlflow)) as (queue, counters):
        queue.export([run(0, "scored", "below"), run(1)])
        wait_until(lambda: counters.get("results.exported") == 1)
        assert not queue.flush(0.5)
        assert queue.counts()[count_name("results.queued", exporter="mlflow")] == 2
        with mlflow.lock:
            mlflow.traces = None
        assert queue.drain(LIMIT_S)
    assert (len(mlflow.assessments), counters.get("results.exported")) == (3, 3)


def test_a_score_whose_trace_never_comes_is_refused(mlflow: FakeMlflow, tmp_path: Path):
    """After `max_wait`."""
    mlflow.traces = set()
    acknowledged: list[Report] = []
    done = lambda _, reports: acknowledged.extend(reports)  # noqa: E731
    exporter = made(mlflow, max_wait=0.3)
    with exporting(exporter, tmp_path / "dead", acknowledge=done) as (queue, _):
        report = run(0, "scored", "below")
        queue.export([report])
        wait_until(lambda: acknowledged)
    assert acknowledged == [report]
    assert [each["why"] for each in dead_letters(tmp_path / "dead")] == [
        "404, MLflow has no such trace"
    ] * 2


def test_a_score_waits_ten_minutes_for_its_trace_unless_configured(mlflow: FakeMlflow):
    mlflow.traces, now = set(), [0.0]
    exporter = made(mlflow, clock=lambda: now[0])
    failed = []
    for now[0] in (0.0, 599.0, 600.0):
        failed.append(exporter.export([run()]).failed)
    assert failed == [(), (), ((0, 0),)]


def test_deferred_scores_are_retried_soon_only_when_time_is_short(mlflow: FakeMlflow):
    """Their own wait is longer than the test may take."""
    mlflow.traces = set()
    slow = RetryPolicy(first_s=1000.0, longest_s=1000.0, last_s=0.01)
    queue = ExportQueue(made(mlflow), counters := Counters(), retry=slow)
    queue.start()
    queue.export([run()])
    wait_until(lambda: counters.get("results.retries") == 1)
    with mlflow.lock:
        mlflow.traces = None
    assert not stored(mlflow)
    assert queue.drain(LIMIT_S)
    queue.close(LIMIT_S)
    assert (len(stored(mlflow)), counters.get("results.retries")) == (1, 1)


def test_results_delivered_after_waiting_do_not_count_against_the_limit(
    mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch
):
    """The number of results that wait is limited, not of those that ever waited."""
    monkeypatch.setattr("otel_eval.exporters.annotations._MAX_WAITING", 1)
    with exporting(made(mlflow)) as (queue, counters):
        for number in range(3):
            mlflow.traces = set()
            queue.export([run(number)])
            wait_until(lambda waited=number: counters.get("results.retries") > waited)
            with mlflow.lock:
                mlflow.traces = None
            assert queue.drain(LIMIT_S)
    assert (len(stored(mlflow)), counters.get("results.export_failed")) == (3, 0)


def test_a_later_revision_replaces_one_that_waits_for_its_trace(mlflow: FakeMlflow):
    """The earlier one is not sent any more."""
    mlflow.traces = set()
    with exporting(made(mlflow)) as (queue, counters):
        queue.export([run(0)])
        wait_until(lambda: counters.get("results.retries"))
        queue.export([with_result(run(0, revision=1), outcome=Scored(0.5, True))])
        wait_until(lambda: counters.get("results.not_sent", reason="superseded"))
        with mlflow.lock:
            mlflow.traces = None
        assert queue.drain(LIMIT_S)
    assert list(stored(mlflow).values()) == [0.5]


def test_scores_that_wait_at_the_end_are_written_to_the_dead_letter_file(
    mlflow: FakeMlflow, tmp_path: Path
):
    """Never silently dropped."""
    mlflow.traces = set()
    with exporting(made(mlflow), tmp_path / "dead") as (queue, counters):
        queue.export([run(0)])
        wait_until(lambda: counters.get("results.retries"))
    assert [each["why"] for each in dead_letters(tmp_path / "dead")] == [
        "not delivered before the end (time was over; last error: 404, MLflow has no such trace)"
    ]
