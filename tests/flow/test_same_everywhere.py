"""The same spans give the same results: in a process, over gRPC, over HTTP in both encodings, and
stored.
"""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_eval import EvalSpanProcessor
from otel_eval.app import stored_traces
from otel_eval.app.build import build_engine
from otel_eval.app.server import Server
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.engine import Engine
from otel_eval.exporters.result_rows import rows_of
from otel_eval.otlp.protobuf import read_traces
from otel_eval.sources.files import CollectedMessages
from tests.support import agent_programs
from tests.support.waiting import STAYS_OPEN, ShiftedClock, wait_until


def _replayed(spans: Any, folder: Path) -> list[dict[str, Any]]:
    file = folder / "stored.json"
    file.write_bytes(agent_programs.otlp_json(spans))
    problems: list[str] = []
    reports = list(
        stored_traces.replay(
            [file], load(agent_programs.CONFIG), listener=CollectedMessages(problems)
        )
    )
    assert problems == []
    return agent_programs.rows(
        "\n".join(json.dumps(row) for report in reports for row in rows_of(report))
    )


@contextmanager
def _server(results: Path, clock: ShiftedClock) -> Iterator[tuple[Server, Any]]:
    anywhere = {
        "otlp": {
            "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
        }
    }
    config = load(
        {
            **agent_programs.CONFIG,
            "traces": STAYS_OPEN,
            "receivers": anywhere,
            "exporters": {"jsonl": {"path": str(results)}},
        }
    )
    server = Server(config, clock=clock)
    try:
        yield server, server.start()
    finally:
        server.stop(60.0)


def _close_traces(server: Server, clock: ShiftedClock) -> None:
    clock.advance()
    wait_until(lambda: not server.counts()["open_traces"])


def _grpc(bound: Any, bodies: list[Any]) -> None:
    with grpc.insecure_channel(bound.grpc) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        for body in bodies:
            export(agent_programs.protobuf(body), timeout=300)


def _http(encode: Callable[[Any], bytes], content_type: str) -> Callable[[Any, list[Any]], None]:
    def send(bound: Any, bodies: list[Any]) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for body in bodies:
            url = f"http://{bound.http}/v1/traces"
            request = urllib.request.Request(
                url, data=encode(body), headers={"Content-Type": content_type}
            )
            with opener.open(request, timeout=300) as answer:
                assert answer.status == 200

    return send


WIRES = {
    "grpc": _grpc,
    "http-protobuf": _http(lambda spans: agent_programs.protobuf(spans), "application/x-protobuf"),
    "http-json": _http(lambda spans: agent_programs.otlp_json(spans), "application/json"),
}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_way_in_gives_the_same_results(seed: int, tmp_path: Path) -> None:
    """Rows are equal but for `joined`, whatever the path, the batches, the order and the
    repetitions.
    """
    live = tmp_path / "live.jsonl"
    spans = agent_programs.play(
        seed,
        EvalSpanProcessor({**agent_programs.CONFIG, "exporters": {"jsonl": {"path": str(live)}}}),
        traces=6,
    )
    expected = agent_programs.rows(live.read_text())
    assert len(expected) > 40
    assert {row["completeness"] for row in expected} == {"complete", "remote_parent"}
    assert _replayed(spans, tmp_path) == expected
    rng = random.Random(seed)
    for name, send in WIRES.items():
        results = tmp_path / f"{name}.jsonl"
        mixed = [*spans, *rng.sample(spans, len(spans) // 3)]
        rng.shuffle(mixed)
        clock = ShiftedClock()
        with _server(results, clock) as (server, bound):
            send(bound, [mixed[at : at + 7] for at in range(0, len(mixed), 7)])
            _close_traces(server, clock)
        # the spans are older than the server
        joined = [row | {"completeness": "joined"} for row in expected]
        assert agent_programs.rows(results.read_text()) == joined, name


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.randoms(use_true_random=False), st.integers(1, 9))
def test_order_batching_and_repetition_change_nothing(
    seed: int, rng: random.Random, batch: int
) -> None:
    """The core gives equal reports for any arrival of the same spans."""
    spans = agent_programs.play(seed, traces=2)
    whole = _judged([spans])
    mixed = [*spans, *rng.sample(spans, rng.randrange(len(spans) + 1))]
    rng.shuffle(mixed)
    assert _judged([mixed[at : at + batch] for at in range(0, len(mixed), batch)]) == whole


def _judged(batches: list[Any]) -> list[dict[str, Any]]:
    engine: Engine = build_engine(load(agent_programs.CONFIG))
    buffer = TraceBuffer(Limits())
    for batch in batches:
        buffer.push_many(read_traces(agent_programs.protobuf(batch)).spans, 0.0)
    reports = [report for trace in buffer.drain(0.0) for report in engine.evaluate(trace)]
    return sorted(
        (row for report in reports for row in rows_of(report)),
        key=lambda row: row["result_id"],
    )
