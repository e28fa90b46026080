"""Stored traces: every format that is read, and what is said of files that are broken."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.errors import InputError
from otel_eval.interfaces import SpanEvent, Wanted
from otel_eval.otlp.protobuf import SpanBatch, read_traces
from otel_eval.sources.files import Gap
from tests.support.stored_files import read_file

TRACE, SPAN, PARENT = "ab" * 16, "cd" * 8, "ef" * 8
ALL = Wanted(frozenset(), ("",))
Write = Callable[[bytes | str | dict[str, Any] | list[Any]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file; documents as JSON over several lines."""

    def put(content: Any) -> Path:
        path = tmp_path / "traces"
        text = content if isinstance(content, (bytes, str)) else json.dumps(content, indent=1)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return put


def otlp(
    *names: str, key: str = "resourceSpans", encode: Callable[[str], str] = str
) -> dict[str, Any]:
    """A document with a span of each name, each in a trace of its own."""
    spans = [
        {
            "traceId": encode(f"{number:032x}"),
            "spanId": encode(SPAN),
            "parentSpanId": encode(PARENT),
            "name": name,
        }
        for number, name in enumerate(names, 1)
    ]
    return {key: [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}


def base64_of(hexadecimal: str) -> str:
    return b64encode(bytes.fromhex(hexadecimal)).decode()


def lines(*documents: Any) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def protobuf(*names: str) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number, name in enumerate(names, 1):
        scope.spans.add(trace_id=number.to_bytes(16, "big"), span_id=bytes.fromhex(SPAN), name=name)
    return request.SerializeToString()


def delimited(*messages: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(message)) + message for message in messages)


def read(path: Path | str) -> tuple[list[str], list[str]]:
    """Names of the spans, and the problems."""
    problems: list[str] = []
    pieces = list(read_file(path, problems.append))
    return [view.name for view in views(pieces)], problems


def views(pieces: list[SpanBatch]) -> list[Any]:
    return [
        resource_scope.reader(payload)
        for piece in pieces
        for _, _, (_, payload, resource_scope), _ in piece.spans
    ]


FORMATS: dict[str, Any] = {
    "otlp": otlp("a", "b"),
    "one line": json.dumps(otlp("a", "b")),
    "lines": lines(otlp("a"), otlp("b")),
    "lines with blanks and a mark": "\ufeff\n" + lines(otlp("a")) + "\n\n" + lines(otlp("b")),
    "a blank line first": "\n" + lines(otlp("a"), otlp("b")),
    "a list": [otlp("a"), otlp("b")],
    "snake case": otlp("a", "b", key="resource_spans"),
    "base64 ids": otlp("a", "b", encode=base64_of),
    "tempo": otlp("a", "b", key="batches", encode=base64_of),
    "tempo, hexadecimal": otlp("a", "b", key="batches"),
    "tempo, wrapped": {"trace": otlp("a", "b", encode=base64_of)},
    "protobuf": protobuf("a", "b"),
    "delimited protobuf": delimited(protobuf("a"), protobuf("b")),
    "protobuf of the Collector's file exporter": b"".join(
        struct.pack(">I", len(each)) + each for each in map(protobuf, "ab")
    ),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content", FORMATS.values(), ids=FORMATS)
def test_every_format_is_known_by_its_bytes(write: Write, content: Any, packed: bool) -> None:
    """Plain or gzipped, under a name that tells nothing."""
    path = write(content)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert read(path) == (["a", "b"], [])


@pytest.mark.parametrize("name", ["otlp", "base64 ids", "tempo", "tempo, wrapped"])
def test_ids_are_the_same_however_they_are_written(write: Write, name: str) -> None:
    """Hexadecimal or base64."""
    [piece] = read_file(write(FORMATS[name]))
    assert [(trace.hex(), span.hex(), frame[0].hex()) for trace, span, frame, _ in piece.spans] == [
        (f"{number:032x}", SPAN, PARENT) for number in (1, 2)
    ]


def test_older_tempo_names_its_scopes_otherwise(write: Write) -> None:
    """`instrumentationLibrarySpans`, and the library in them."""
    scope = {
        "instrumentationLibrary": {"name": "agent"},
        "spans": [{"traceId": TRACE, "spanId": SPAN, "name": "a"}],
    }
    [piece] = read_file(write({"batches": [{"instrumentationLibrarySpans": [scope]}]}))
    assert piece.spans[0][2][2].scope_name == "agent"


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name "-", gzipped or not, and it stays open."""
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(lines(otlp("a")).encode())))
    monkeypatch.setattr("sys.stdin", stdin)
    assert read("-") == (["a"], [])
    assert not stdin.buffer.closed


def test_logs_in_the_lines_are_read(write: Write) -> None:
    """Content that was stored as log events."""
    record = {"traceId": TRACE, "spanId": SPAN, "eventName": "gen_ai.choice"}
    path = write(lines(otlp("a"), {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}))
    assert [len(piece.logs) for piece in read_file(path)] == [0, 1]


JAEGER = {
    "data": [
        {
            "traceID": TRACE,
            "processes": {
                "p1": {
                    "serviceName": "shop",
                    "tags": [{"key": "host", "type": "string", "value": "h"}],
                }
            },
            "spans": [
                {
                    "traceID": TRACE.lstrip("0"),
                    "spanID": SPAN,
                    "processID": "p1",
                    "operationName": "execute_tool x",
                    "references": [
                        {"refType": "FOLLOWS_FROM", "traceID": TRACE, "spanID": "1"},
                        {"refType": "CHILD_OF", "traceID": TRACE, "spanID": "ef"},
                    ],
                    "startTime": 1_700_000_000_000_001,
                    "duration": 250,
                    "tags": [
                        {"key": "text", "type": "string", "value": "t"},
                        {"key": "count", "type": "int64", "value": 3},
                        {"key": "share", "type": "float64", "value": 0.5},
                        {"key": "flag", "type": "bool", "value": True},
                        {"key": "raw", "type": "binary", "value": "AP8="},
                        {"key": "untyped", "value": 7},
                        {"key": "span.kind", "type": "string", "value": "client"},
                        {"key": "otel.status_code", "type": "string", "value": "ERROR"},
                        {"key": "otel.status_description", "type": "string", "value": "no seat"},
                        {"key": "otel.library.name", "type": "string", "value": "agent"},
                    ],
                    "logs": [
                        {
                            "timestamp": 1_700_000_000_000_100,
                            "fields": [
                                {"key": "event", "type": "string", "value": "exception"},
                                {"key": "exception.type", "type": "string", "value": "SeatError"},
                            ],
                        }
                    ],
                }
            ],
        }
    ]
}


def test_jaeger_is_read_as_the_otlp_it_was_made_from(write: Write) -> None:
    """Tags, references, logs and microseconds."""
    [piece] = read_file(write(JAEGER))
    [(trace_id, span_id, (parent_id, payload, resource_scope), _)] = piece.spans
    view = resource_scope.reader(payload)
    assert (trace_id.hex(), span_id.hex(), parent_id.hex()) == (TRACE, SPAN, "ef".rjust(16, "0"))
    assert (view.name, view.span_kind, view.status_code, view.status_message) == (
        "execute_tool x",
        3,
        2,
        "no seat",
    )
    assert (view.start_ns, view.end_ns) == (1_700_000_000_000_001_000, 1_700_000_000_000_251_000)
    values = {"text": "t", "count": 3, "share": 0.5, "flag": True, "raw": "AP8=", "untyped": 7}
    assert view.attributes(ALL) == values
    assert list(view.events()) == [SpanEvent("exception", {"exception.type": "SeatError"})]
    assert (resource_scope.service, resource_scope.scope_name) == ("shop", "agent")
    assert resource_scope.shared(ALL) == {"host": "h", "service.name": "shop"}


@pytest.mark.parametrize("value", [True, "true"])
def test_the_error_tag_of_older_jaeger_clients_is_an_error(write: Write, value: Any) -> None:
    """They had no status."""
    span = {
        "traceID": TRACE,
        "spanID": SPAN,
        "startTime": 1,
        "duration": 1,
        "tags": [{"key": "error", "type": "bool", "value": value}],
    }
    assert [
        view.status_code for view in views(list(read_file(write({"data": [{"spans": [span]}]}))))
    ] == [2]


def test_a_broken_line_does_not_stop_the_others(write: Write) -> None:
    """It is named with its number, wherever it stands."""
    path = write(
        "{broken\n" + lines(otlp("a"), 5, {"other": 1}, otlp("b")) + '{"resourceSpans": 3}\n'
    )
    names, problems = read(path)
    assert names == ["a", "b"]
    places = [problem.removeprefix(f"{path}: ").split(":")[0] for problem in problems]
    assert places == ["line 1, column 2", "line 3", "line 4", "line 6"]


def test_a_broken_group_or_span_does_not_stop_the_others(write: Write) -> None:
    """Nor does a broken trace of Jaeger."""
    document = otlp("a", "b")
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "short"
    document["resourceSpans"].append({"scopeSpans": 5})
    names, problems = read(write(document))
    assert names == ["b"]
    assert ["1 skipped" in problems[0], "resourceSpans[1]" in problems[1]] == [True, True]
    names, problems = read(write({"data": [{"spans": [{"traceID": TRACE}]}, *JAEGER["data"]]}))
    assert names == ["execute_tool x"]
    assert "data[0]" in problems[0]


def test_a_row_of_messages_is_read_one_by_one(tmp_path: Path) -> None:
    """The first is there while most of the file is not read; the rest may be cut."""
    path = tmp_path / "row"
    path.write_bytes(delimited(*[protobuf("a")] * 20_000))
    pieces = read_file(path)
    assert len(next(pieces).spans) == 1
    os.truncate(path, 2**19)
    assert 2000 < sum(1 for _ in pieces) < 18_000


def test_a_broken_message_does_not_stop_the_others(write: Write) -> None:
    """In a row of protobuf messages."""
    names, problems = read(write(delimited(protobuf("a"), b"\xff\xff", protobuf("b"))))
    assert names == ["a", "b"]
    assert "message 2" in problems[0]


@pytest.mark.parametrize(
    "end", [protobuf("b")[:-3], b"", b"\xff" * 12], ids=["cut", "of no length", "no length"]
)
def test_a_row_that_breaks_off_is_reported(write: Write, end: bytes) -> None:
    length = (
        struct.pack(">I", len(protobuf("b"))) if end.startswith(b"\n") else b"" if end else bytes(8)
    )
    names, problems = read(write(delimited(protobuf("a")) + length + end))
    assert names == ["a"]
    assert len(problems) == 1
    assert "message 2: it is cut" in problems[0]


@cache
def request(resources: int, scopes: int, spans: int) -> bytes:
    """Each span has a kilobyte of text and a name of its own."""
    message, names = ExportTraceServiceRequest(), count(1)
    for resource in range(resources):
        group = message.resource_spans.add()
        group.resource.attributes.add(key="service.name").value.string_value = f"s{resource}"
        for _ in range(scopes):
            scope = group.scope_spans.add(schema_url="after the spans")
            scope.scope.name = "agent"
            for _ in range(spans):
                number = next(names)
                span = scope.spans.add(trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"))
                span.name = f"{resource}/{number}"
                span.attributes.add(key="text").value.string_value = "x" * 1000
    return message.SerializeToString()


LARGE = {
    "many resources": (3000, 1, 1),
    "a large resource": (1, 3000, 1),
    "a large scope": (1, 1, 3000),
    "several large scopes": (2, 2, 1500),
    "more than 16 MiB": (1, 1, 17_000),
}
"""How many resources, scopes of each and spans of each scope."""
AS_FILES: dict[str, Callable[[bytes], bytes]] = {
    "joined": lambda message: message,
    "as the Collector writes": delimited,
}


@pytest.mark.parametrize("as_file", AS_FILES.values(), ids=AS_FILES)
@pytest.mark.parametrize("shape", LARGE.values(), ids=LARGE)
def test_a_large_message_is_read_in_parts(
    write: Write, shape: tuple[int, int, int], as_file: Callable[[bytes], bytes]
) -> None:
    """With the same spans as the whole, each of its service and scope."""
    message = request(*shape)
    pieces = list(read_file(write(as_file(message))))
    assert max(sum(item[3] for item in piece.spans) for piece in pieces) < 2**21
    spans = [
        (span_id, payload, scope.service, scope.scope_name)
        for piece in pieces
        for _, span_id, (_, payload, scope), _ in piece.spans
    ]
    assert spans == [
        (span_id, payload, scope.service, scope.scope_name)
        for _, span_id, (_, payload, scope), _ in read_traces(message).spans
    ]


@pytest.mark.parametrize("as_file", AS_FILES.values(), ids=AS_FILES)
def test_a_large_message_that_is_cut_gives_what_came_before(
    write: Write, as_file: Callable[[bytes], bytes]
) -> None:
    """All whole spans; and the traces that may lack others are incomplete."""
    problems: list[str] = []
    content = as_file(request(*LARGE["a large scope"]))
    pieces = list(read_file(write(content[: len(content) // 2]), problems.append))
    assert 1400 < sum(len(piece.spans) for piece in pieces) <= 1500
    assert isinstance(pieces[-1], Gap)
    assert len(problems) == 1
    assert "it is cut" in problems[0]


def test_of_a_large_message_in_broken_gzip_what_came_before_is_used(write: Write) -> None:
    packed = gzip.compress(request(*LARGE["a large scope"]))
    pieces = read_file(write(packed[: len(packed) * 9 // 10]))
    counts: list[int] = []
    with pytest.raises(InputError, match="broken gzip"):
        counts.extend(len(piece.spans) for piece in pieces)
    assert sum(counts) > 2000


UNUSABLE = {
    "empty": b"",
    "blank": b" \n\n",
    "text": b"Dear diary,\n",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "cut json": json.dumps(otlp("a")).encode()[:-5],
    "cut pretty json": json.dumps(otlp("a"), indent=1).encode()[:-5],
    "no trace": b'{"hello": 1}',
    "a number": b"[5]",
    "no utf-8": b'{"a": "\xff"}',
    "metrics": b'{"resourceMetrics": []}',
    "no spans": b'{"resourceSpans": []}',
    "cut protobuf": protobuf("a", "b")[:-3],
    "cut gzip": gzip.compress(b"{}" * 100)[:-9],
    "bad gzip": b"\x1f\x8b" + bytes(30),
    "deep": b'{"a":' * 50_000,
    "all rejected": json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "00"}]}]}]}
    ).encode(),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_with_nothing_usable_is_refused_in_one_line(write: Write, content: bytes) -> None:
    """That names the file; and nothing is said besides."""
    path = write(content)
    problems: list[str] = []
    with pytest.raises(InputError) as caught:
        list(read_file(path, problems.append))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert problems == []


def test_an_error_in_a_document_is_reported_with_line_and_column(write: Write) -> None:
    """By line and column."""
    with pytest.raises(InputError, match=r"line 3, column 9: not JSON"):
        list(read_file(write('\n{\n "a": 1 "b"\n}')))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """As is a folder."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            list(read_file(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            lambda a, b: a + b, st.sampled_from([b"{", b"[", b"\n", b"\x0a\x7b"]), st.binary()
        ),
    )
)
@example(b"\n{" + bytes(121))
@example(struct.pack("<Q", 2**63))
def test_any_bytes_are_read_or_refused(write: Write, content: bytes) -> None:
    """And nothing else happens."""
    try:
        pieces = list(read_file(write(content)))
    except InputError:
        return
    assert pieces
