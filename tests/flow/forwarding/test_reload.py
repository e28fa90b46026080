"""New evaluations while traffic is forwarded: pending spans leave whole, with the scores of the
evaluations then in force.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.config import load
from tests.support import otlp_backend as backends
from tests.support.fork_server import FORKS, PipedProcess
from tests.support.waiting import LIMIT_S, STAYS_OPEN, ShiftedClock, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def evaluation(scorer: str, **match: str) -> dict[str, Any]:
    """One with that scorer alone."""
    return {"name": "policy", "match": match, "scorers": [{"type": scorer}]}


def written(path: Path, endpoint: str, evaluation: dict[str, Any], **traces: str) -> Path:
    """A configuration that passes on to the endpoint."""
    settle = STAYS_OPEN | traces
    places = {name: {"endpoint": "127.0.0.1:0"} for name in ("grpc", "http")}
    exporters = {"forward": {"endpoint": endpoint}}
    whole = {
        "traces": settle,
        "evaluations": [evaluation],
        "receivers": {"otlp": {"protocols": places}},
        "exporters": exporters,
    }
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


class Serving:
    """The process, and where it listens."""

    def __init__(self, process: PipedProcess) -> None:
        self.process = process
        self.address = self.said("ready ").split("grpc=")[1].split()[0]

    def said(self, wanted: str) -> str:
        """The next line on stderr that has this in it."""
        for line in self.process.stderr:
            if wanted in line:
                return line
        raise AssertionError(f"{wanted!r} was never said")

    def reload(self) -> str:
        """Send a SIGHUP and return the log line about the reload."""
        self.process.send_signal(signal.SIGHUP)
        return self.said("reload: ")

    def end(self) -> None:
        """Send a SIGTERM, at which open traces are evaluated, and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_S) == 0

    def export(self, *spans: Span) -> None:
        """Send spans of one agent."""
        export(self.address, *spans)


def export(address: str, *spans: Span) -> None:
    """Send them in one request."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add(spans=spans)
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary(TRACES)(request.SerializeToString(), timeout=300)


@contextmanager
def serving(config: Path) -> Iterator[Serving]:
    """`otel-eval serve`, ended whatever happens."""
    command = ["serve", "--config", str(config)]
    with FORKS.start_piped(command, config.parent, ENVIRONMENT) as process:
        yield Serving(process)


def run_of(trace: int, calls: int = 3) -> list[Span]:
    """An agent's own span and those of its calls."""
    ids: dict[str, Any] = {
        "trace_id": trace.to_bytes(16, "big"),
        "start_time_unix_nano": 10**18,
        "end_time_unix_nano": 10**18 + 10**6,
    }
    spans = [Span(**ids, span_id=(1).to_bytes(8, "big"), name="invoke_agent clerk", flags=0x100)]
    parent = spans[0].span_id
    ids |= {"parent_span_id": parent, "name": "execute_tool search", "flags": 0x100}
    spans += [Span(**ids, span_id=(2 + number).to_bytes(8, "big")) for number in range(calls)]
    for span in spans:
        operation = span.attributes.add(key="gen_ai.operation.name")
        operation.value.string_value = span.name.split()[0]
    spans[0].attributes.add(key="gen_ai.agent.name").value.string_value = "clerk"
    for span in spans[1:]:
        span.attributes.add(key="gen_ai.tool.name").value.string_value = "search"
    return spans


def arrived(backend: Any) -> dict[tuple[bytes, bytes], list[tuple[bytes, list[str]]]]:
    """Of each span that arrived: its bytes as they were sent, and the names of the scorers on
    it.
    """
    found: dict[tuple[bytes, bytes], list[tuple[bytes, list[str]]]] = {}
    for request in map(ExportTraceServiceRequest.FromString, list(backend.got["traces"])):
        for group in request.resource_spans:
            for span in (span for scope in group.scope_spans for span in scope.spans):
                scores = [
                    each.value.string_value
                    for event in span.events
                    for each in event.attributes
                    if each.key == "gen_ai.evaluation.name"
                ]
                del span.events[:]
                found.setdefault((span.trace_id, span.span_id), []).append(
                    (span.SerializeToString(), scores)
                )
    return found


def test_open_traces_are_forwarded_completely_with_the_scores_of_the_new_evaluations(
    backend: Any, tmp_path: Path
) -> None:
    """Those that waited at the reload, those that were in half, and those that come after it; each
    span once.
    """
    path = written(tmp_path / "eval.json", backend.url, evaluation("tool_errors"))
    whole, half, after = run_of(1), run_of(2), run_of(3)
    with serving(path) as service:
        service.export(*whole)
        service.export(*half[:2])
        # all but the runs' own spans
        assert backend.wait(lambda: len(arrived(backend)) == len(whole))
        written(path, backend.url, evaluation("time_cost"))
        assert "done" in service.reload()
        service.export(*half[2:])
        service.export(*after)
        service.end()
    found = arrived(backend)
    sent = {
        (span.trace_id, span.span_id): span.SerializeToString() for span in (*whole, *half, *after)
    }
    assert {key: [each for each, _ in copies] for key, copies in found.items()} == {
        key: [each] for key, each in sent.items()
    }
    roots = {
        run[0].trace_id: found[run[0].trace_id, run[0].span_id][0][1]
        for run in (whole, half, after)
    }
    assert roots == {key: ["time_cost"] for key in roots}
    assert not any(
        scores for (_, span_id), [(_, scores)] in found.items() if span_id != whole[0].span_id
    )


def test_runs_that_no_evaluation_matches_any_more_are_forwarded_without_scores(
    backend: Any, tmp_path: Path
) -> None:
    """A run's span that is held is released when its trace is evaluated; the next one is not held
    at all.
    """
    path = written(
        tmp_path / "eval.json",
        backend.url,
        evaluation("tool_errors"),
    )
    before, after = run_of(1), run_of(2)
    with serving(path) as service:
        service.export(*before)
        other = evaluation("tool_errors", span="another run")
        written(path, backend.url, other)
        assert "done" in service.reload()
        service.export(*after)
        assert backend.wait(lambda: (after[0].trace_id, after[0].span_id) in arrived(backend))
        assert (before[0].trace_id, before[0].span_id) not in arrived(backend)
        service.end()
    assert len(arrived(backend)) == len(before) + len(after)
    assert not any(scores for copies in arrived(backend).values() for _, scores in copies)


def test_a_span_that_left_before_it_was_scored_gets_no_scores(backend: Any) -> None:
    """They are counted; its trace is evaluated by the new evaluations all the same."""
    run = run_of(1)
    other = {"evaluations": [evaluation("tool_errors", span="another run")]}
    clock = ShiftedClock()
    with backends.forwarding(backend, clock=clock, **other, traces=STAYS_OPEN) as (
        server,
        bound,
    ):
        export(bound.grpc, *run)
        assert backend.wait(lambda: len(arrived(backend)) == len(run))
        server.reload(load({"evaluations": [evaluation("tool_errors")]}))
        clock.advance()
        wait_until(lambda: server.counts().get("forward.scores_unplaced"))
        assert server.counts()["forward.scores_unplaced"] == 1
    assert not any(scores for copies in arrived(backend).values() for _, scores in copies)


@pytest.mark.parametrize(
    "mistake",
    ["evaluations: 3", '{"evaluations": [{"name": "x", "scorers": [{"type": "no_such"}]}]}'],
)
def test_a_configuration_that_cannot_be_used_changes_nothing(
    backend: Any, tmp_path: Path, mistake: str
) -> None:
    """One line is logged; forwarded spans have the scores of the running configuration."""
    path = written(
        tmp_path / "eval.json",
        backend.url,
        evaluation("tool_errors"),
    )
    run = run_of(1)
    with serving(path) as service:
        service.export(*run)
        path.write_text(mistake, encoding="utf-8")
        assert "the running configuration is kept" in service.reload()
        service.end()
    assert arrived(backend)[run[0].trace_id, run[0].span_id][0][1] == ["tool_errors"]


def test_another_backend_needs_a_restart_and_that_is_logged(backend: Any, tmp_path: Path) -> None:
    """The spans go where they went before."""
    path = written(
        tmp_path / "eval.json",
        backend.url,
        evaluation("tool_errors"),
        decision_wait="200ms",
        decision_wait_partial="200ms",
    )
    run = run_of(1)
    with serving(path) as service:
        written(
            path,
            "http://127.0.0.1:9",
            evaluation("tool_errors"),
            decision_wait="200ms",
            decision_wait_partial="200ms",
        )
        assert re.search("exporters changed; that needs a restart", service.reload())
        service.export(*run)
        assert backend.wait(lambda: len(arrived(backend)) == len(run))
