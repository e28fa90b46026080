"""CPU per span of `otel-eval serve` that reads a topic, against the same spans over gRPC; needs
Java.

    python tests/bench/kafka.py [--rounds 3] [--spans 100000] [profiles]

Both get the same traces, with the scorers and profiles of receiver.py: over gRPC in requests of
about 512 spans, from the topic in records of one trace each, as the Collector writes them with
`partition_traces_by_id`; `pieces` and `single`: lean traces in records of five spans and of one,
which for gRPC are joined to larger requests as the Collector's batch processor does.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receiver import OURS, PROFILES, config_of, send, started, when_idle
from shapes import shapes

from otel_eval.otlp.protobuf import read_traces
from tests.kafka.kafka_rig.broker import Broker, missing

TRACES_PER_REQUEST = 25
PIECES = {"pieces": 5, "single": 1}  # spans of a record, by profile
IDLE_S = 3.0


def traces_of(profile: str, spans: int) -> list[list[bytes]]:
    """Traces with so many spans in all, each as the values of its records."""
    made, rng = shapes(), random.Random(7)
    synthetic = {name for names in PROFILES.values() for name in names}
    names = (
        ["lean"]
        if profile in PIECES
        else PROFILES[profile] or [name for name in made if name not in synthetic]
    )
    kinds, found, count = cycle(names), [], 0
    while count < spans:
        request = made[next(kinds)](rng)
        count += len(read_traces(request).spans)
        split = split_by_trace(request, PIECES.get(profile, count))
        found += split if profile in PIECES else [[b"".join(parts)] for parts in split]
    return found


def split_by_trace(request: bytes, most: int) -> list[list[bytes]]:
    """Each trace of a request in requests of at most so many spans: some of the recorded ones hold
    several traces.
    """
    parts: dict[bytes, list[bytes]] = {}
    for resource in ExportTraceServiceRequest.FromString(request).resource_spans:
        for scope in resource.scope_spans:
            for trace_id in dict.fromkeys(span.trace_id for span in scope.spans):
                spans = [span for span in scope.spans if span.trace_id == trace_id]
                for at in range(0, len(spans), most):
                    part = ExportTraceServiceRequest()
                    group = part.resource_spans.add(resource=resource.resource).scope_spans.add(
                        scope=scope.scope
                    )
                    group.spans.extend(spans[at : at + most])
                    parts.setdefault(trace_id, []).append(part.SerializeToString())
    return list(parts.values())


def written(folder: Path, name: str, **changes: object) -> Path:
    """A configuration in which every trace is evaluated before the process is taken for idle."""
    config: dict[str, Any] = config_of("recorded", str(folder / f"{name}.jsonl")) | changes
    config["traces"] |= {"decision_wait_partial": "1s", "decision_wait_detached": "1s"}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    return path


def by_grpc(folder: Path, traces: list[list[bytes]]) -> float:
    """CPU seconds of the process, from before the first request until it is idle: scoring goes on
    after the last response.
    """
    path = written(folder, "grpc")
    starts = range(0, len(traces), TRACES_PER_REQUEST)
    bodies = [
        b"".join(value for trace in traces[at : at + TRACES_PER_REQUEST] for value in trace)
        for at in starts
    ]
    with started([sys.executable, "-c", OURS, str(path)]) as (address, pid):
        before = when_idle(pid, IDLE_S)
        send(address, bodies)
        return when_idle(pid, IDLE_S) - before


def by_kafka(folder: Path, broker: Broker, topic: str, traces: list[list[bytes]]) -> float:
    """The same, from a topic that a producer fills meanwhile."""
    kafka = {"brokers": [broker.address], "topic": topic, "initial_offset": "earliest"}
    path = written(folder, "kafka", receivers={"kafka": kafka})
    broker.create(topic)
    server = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(path)],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stderr
        assert server.stderr.readline().startswith("ready")
        before = when_idle(server.pid, IDLE_S)
        write(broker, topic, traces)
        return when_idle(server.pid, IDLE_S) - before
    finally:
        server.terminate()
        server.communicate(timeout=60)


def write(broker: Broker, topic: str, traces: list[list[bytes]]) -> None:
    producer = broker.producer()
    for trace in traces:
        key = read_traces(trace[0]).spans[0][0].hex()
        for value in trace:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
    assert producer.flush(120) == 0


def both(
    folder: Path, broker: Broker, topic: str, traces: list[list[bytes]]
) -> tuple[float, float]:
    """CPU seconds over gRPC and from the topic, which made the same number of results."""
    folder.mkdir()
    used = by_grpc(folder, traces), by_kafka(folder, broker, topic, traces)
    made = [
        len((folder / name).read_bytes().splitlines()) for name in ("grpc.jsonl", "kafka.jsonl")
    ]
    assert made[0] == made[1] > 0, f"{made} results"
    return used


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("profiles", nargs="*", help="lean, pieces and recorded if none is given")
    options = parser.parse_args()
    if reason := missing():
        return print(f"not run: {reason}")
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        for profile in options.profiles or ["lean", "pieces", "single", "recorded"]:
            traces = traces_of(profile, options.spans)
            spans = sum(len(read_traces(value).spans) for trace in traces for value in trace)
            names = [f"{profile}-{number}" for number in range(options.rounds)]
            rounds = [both(Path(folder) / name, broker, name, traces) for name in names]
            grpc, kafka = (
                statistics.median(each) / spans * 1e6 for each in zip(*rounds, strict=True)
            )
            ratio = statistics.median(kafka / grpc for grpc, kafka in rounds)
            print(
                f"{profile:9} {spans} spans: gRPC {grpc:.1f} us, Kafka {kafka:.1f} us of CPU a"
                f" span, ratio {ratio:.2f}",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
