"""The estimated size of a request is more than the memory that decoding takes, and not much more
for an ordinary one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.otlp import decoded_size as size
from otel_eval.otlp.decoded_size import json_decoded_size, protobuf_decoded_size
from otel_eval.wire import sized, varint
from tests.fuzz.fuzzing.plain_size import plain_size

ROOT = Path(__file__).parents[3]
SIZE = 2**19
EVERYTHING = 2**50
IDS = sized(1, b"t" * 16) + sized(2, b"s" * 8)


def scope(number: int, *spans: bytes) -> bytes:
    """A scope that no other is equal to."""
    return sized(
        2, sized(1, sized(1, b"%07d" % number)) + b"".join([sized(2, span) for span in spans])
    )


def one(content: bytes) -> bytes:
    """A request of one resource and scope."""
    return sized(1, sized(2, content))


def document(*spans: str) -> bytes:
    return f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{",".join(spans)}]}}]}}]}}'.encode()


SHAPES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "empty spans": ("traces", lambda: one(b"\x12\x00" * (SIZE // 2))),
    "small spans": ("traces", lambda: one(sized(2, IDS) * (SIZE // 30))),
    "empty groups": ("traces", lambda: b"\x0a\x00" * (SIZE // 2)),
    "empty scopes": ("traces", lambda: sized(1, b"\x12\x00" * (SIZE // 2))),
    "different scopes": ("traces", lambda: sized(1, b"".join(map(scope, range(SIZE // 13))))),
    "different scopes with a span": (
        "traces",
        lambda: sized(1, b"".join(scope(number, IDS) for number in range(SIZE // 43))),
    ),
    "parts of a resource": ("traces", lambda: sized(1, b"\x0a\x00" * (SIZE // 2))),
    "a resource of attributes": (
        "traces",
        lambda: sized(1, sized(1, b"\x0a\x00" * (SIZE // 2)) + scope(1, IDS)),
    ),
    "a span of attributes": ("traces", lambda: one(sized(2, IDS + b"\x4a\x00" * (SIZE // 2)))),
    "empty records": ("logs", lambda: one(b"\x12\x00" * (SIZE // 2))),
    "a record of attributes": ("logs", lambda: one(sized(2, b"\x32\x00" * (SIZE // 2)))),
    "groups of metrics": ("metrics", lambda: b"\x0a\x00" * (SIZE // 2)),
    "empty objects": ("json", lambda: document(*["{}"] * (SIZE // 3))),
    "empty lists": ("json", lambda: document(*["[]"] * (SIZE // 3))),
    "objects of one": ("json", lambda: document(*['{"":0}'] * (SIZE // 7))),
    "many keys": (
        "json",
        lambda: document("{" + ",".join(f'"{number:x}":0' for number in range(SIZE // 9)) + "}"),
    ),
    "short texts": ("json", lambda: document(*['"ab"'] * (SIZE // 5))),
    "wide text": (
        "json",
        lambda: document(json.dumps({"name": "😀" + "x" * SIZE}, ensure_ascii=False)),
    ),
}

GROWN = """
import os, re, sys
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_logs, read_traces
from otel_eval.otlp.spans import parse_metrics
from functools import partial
readers = {"traces": read_traces, "logs": read_logs, "json": partial(read_json, "traces")}
readers["metrics"] = parse_metrics
def grown(read, body):
    held = int(open("/proc/self/statm").read().split()[1]) * 4096
    open("/proc/self/clear_refs", "w").write("5")
    read(body)
    peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
    return peak - held
for path in sys.argv[1:]:
    if os.fork() == 0:  # a process that has read nothing yet
        print(grown(readers[path.rpartition(".")[2]], open(path, "rb").read()), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="the peak of a process's memory is Linux's to tell",
)
def test_decoding_takes_no_more_than_the_estimated_size(tmp_path: Path) -> None:
    """Resident memory of a process that reads one such request, at its peak."""
    weights: list[int] = []
    paths: list[Path] = []
    for number, (signal, make) in enumerate(SHAPES.values()):
        body = make()
        weights.append(
            json_decoded_size(body)
            if signal == "json"
            else protobuf_decoded_size(signal, body, EVERYTHING)
        )
        paths.append(tmp_path / f"{number}.{signal}")
        paths[-1].write_bytes(body)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", GROWN, *paths],
        capture_output=True,
        check=True,
        env=environment,
    )
    # Python alone copies a body once more
    beyond = {
        shape: grown / weight
        for shape, grown, weight in zip(SHAPES, map(int, done.stdout.split()), weights, strict=True)
        if grown > weight * 1.1 + 3 * 2**20
    }
    assert beyond == {}


def test_an_ordinary_request_weighs_little_more_than_its_bytes() -> None:
    """Spans of half a kilobyte: about twice as much, and in JSON ten times."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(500):
        span = scope.spans.add(
            trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"), name="execute_tool search"
        )
        for key in range(10):
            span.attributes.add(
                key=f"gen_ai.some.key.{key}"
            ).value.string_value = "a value of some length"
    body = request.SerializeToString()
    assert protobuf_decoded_size("traces", body, EVERYTHING) < 2.5 * len(body)
    attributes = [
        {"key": f"gen_ai.some.key.{key}", "value": {"stringValue": "a value of some length"}}
        for key in range(10)
    ]
    text = document(
        *[json.dumps({"traceId": "7" * 32, "spanId": "7" * 16, "attributes": attributes})] * 500
    )
    assert json_decoded_size(text) < 12 * len(text)


def test_counting_ends_when_it_is_enough() -> None:
    """However long the request is."""
    body = one(b"\x12\x00" * SIZE)
    assert 10_000 < protobuf_decoded_size("traces", body, 10_000) - len(body) < 11_000


PLAIN = st.one_of(
    st.integers(0, 2**64 - 1).map(lambda number: b"\x08" + varint(number)),
    st.sampled_from(
        [
            b"\x09" + bytes(8),
            b"\x0d" + bytes(4),
            b"\x0b",
            b"\x0c",
            b"\x0e",
            b"\x92\x00\x01a",
            b"\x12\x81\x00a",
        ]
    ),
    st.sampled_from(
        [
            b"\x08" + b"\xff" * 9 + b"\x01",
            b"\x08" + b"\xff" * 9 + b"\x02",
            b"\x80" * 12,
            b"\x12\xff\x01",
        ]
    ),
    st.integers(128, 40_000).map(lambda size: sized(2, bytes(size))),
    st.binary(max_size=4),
)
FIELDS = st.recursive(
    PLAIN,
    lambda inner: st.builds(
        lambda number, parts: sized(number, b"".join(parts)), st.integers(1, 4), st.lists(inner)
    ),
)


@given(
    st.lists(FIELDS).map(b"".join),
    st.sampled_from(sorted(size._LEVELS)),
    st.sampled_from([0, 700, 10_000, 10**12]),
)
@example(b"\x0a\x06\x12\x04\x12\x01a\x12", "traces", 10**12)
@example(b"\x0a\x07\x12\x05\x12\x01a\x12\x02", "traces", 10**12)
@example(b"\x0a\x02\x0a\x00\x0c", "traces", 10**12)
def test_the_estimated_size_counts_each_field_once(body: bytes, signal: str, enough: int) -> None:
    """Up to where the bytes are broken, or to where it is enough."""
    assert protobuf_decoded_size(signal, body, enough) == len(body) + plain_size(
        body, signal, enough
    )
