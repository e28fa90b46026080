"""What evaluation makes of a request is estimated; where it is far more than of an ordinary one it
counts against limits.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_eval.otlp.decoded_size import ORDINARY, content_size, excess_size
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_logs, read_traces
from otel_eval.wire import sized

IDS = sized(1, b"t" * 16) + sized(2, b"s" * 8)
ROOT = Path(__file__).parents[3]


def span(key: bytes, value: bytes) -> bytes:
    """A span of one attribute."""
    return IDS + sized(9, sized(1, key) + sized(2, value))


def request(*spans: bytes) -> bytes:
    return sized(1, sized(2, b"".join([sized(2, each) for each in spans])))


def text(content: str) -> bytes:
    return sized(1, content.encode())


PARSED = r"""
import re, resource
from otel_eval.otlp.protobuf import read_logs
from otel_eval.wire import sized
body = sized(1, sized(2, b"\x12\x00" * 2**22))
size = int(re.search(r"VmSize:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 2**24, size + 2**24))
try:
    read_logs(body)
except MemoryError:
    print("no memory")
"""
DENSE = {
    "lists in JSON text": text("[]," * 20_000),
    "objects in JSON text": text("{}," * 20_000),
    "lists": sized(5, sized(1, b"\x2a\x00") * 20_000),
    "maps": sized(6, sized(1, sized(2, b"\x32\x00")) * 20_000),
}


@pytest.mark.parametrize("value", DENSE.values(), ids=DENSE)
def test_small_parts_weigh_more_than_their_bytes(value: bytes) -> None:
    """Each becomes an object, and some of them several."""
    body = request(span(b"gen_ai.tool.call.arguments", value))
    assert content_size(body) > 8 * len(body)
    (*_, size) = read_traces(body).spans[0]
    assert size > 4 * len(body)


def test_a_span_weighs_the_same_in_both_encodings() -> None:
    """In JSON it is weighed as what it is written as."""
    value = "[]," * 2000
    attribute = {"key": "k", "value": {"stringValue": value}}
    document = {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {"traceId": "74" * 16, "spanId": "73" * 8, "attributes": [attribute]}
                        ]
                    }
                ]
            }
        ]
    }
    as_json = read_json("traces", json.dumps(document).encode()).spans[0]
    assert as_json[3] == read_traces(request(span(b"k", text(value)))).spans[0][3]


def test_a_log_record_weighs_what_its_body_becomes() -> None:
    """As a span does."""
    record = (
        sized(5, DENSE["lists"])
        + sized(9, b"t" * 16)
        + sized(10, b"s" * 8)
        + sized(12, b"gen_ai.x")
    )
    (*_, size) = read_logs(request(record)).logs[0]
    assert size > 4 * len(record)


def test_ordinary_spans_weigh_their_bytes() -> None:
    """Messages of recorded traces among them: hardly one weighs more, and one of few bytes not by
    much.
    """
    bytes_of_all, excess_of_all = 0, 0
    for recorded in (ROOT / "tests" / "traces").glob("*.json"):
        try:
            framed = read_json("traces", recorded.read_bytes())
        except ValueError:
            continue
        total = sum(len(frame[1]) for _, _, frame, _ in framed.spans)
        excess = sum(excess_size(frame[1]) for _, _, frame, _ in framed.spans)
        assert excess < total / 10 + 3000, recorded.name
        bytes_of_all, excess_of_all = bytes_of_all + total, excess_of_all + excess
    assert excess_of_all < bytes_of_all / 100


def test_dense_content_anywhere_in_a_large_request_is_found() -> None:
    """Only a part of it is looked at."""
    ordinary = span(b"k", text("an ordinary text " * 60_000))
    dense = span(b"k", text("[]," * 300_000))
    body = request(ordinary, ordinary)
    assert content_size(body) < ORDINARY * len(body)
    body = request(ordinary, dense)
    assert content_size(body) > ORDINARY * len(body)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as Linux does it")
def test_too_little_memory_to_parse_a_request_is_not_a_corrupt_request() -> None:
    """The client would drop the request instead of retrying."""
    done = subprocess.run(
        [sys.executable, "-c", PARSED], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout == "no memory\n", done.stderr
