"""What is known of a span without decoding it is the same for spans of the SDK as for those that
came over the wire.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Status, StatusCode

from otel_eval.conventions import Convention, Field
from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.tool_spans import ToolSpanReader
from otel_eval.interfaces import SpanFrame, Wanted
from otel_eval.native import extension
from otel_eval.otlp.protobuf import read_traces
from otel_eval.sources.inprocess.sdk_spans import frames_of

TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("app")
DESCRIBED_BY = Wanted(frozenset({"tool", "error"}), named=True)
NAMES: tuple[Any, ...] = ("search", "sea\udcffrch", "", 1, 1.0, True, 2**70, ["search"], "x" * 100)


def span(name: str = "run", status: StatusCode = StatusCode.UNSET, **attributes: Any) -> Any:
    made = TRACER.start_span(name)
    # as a span has them that another library made; the SDK's own refuses some of these values
    recorded = {key: value for key, value in attributes.items() if value is not None}
    made.set_status(Status(status))
    made.end()
    return ReadableSpan(
        name,
        context=made.context,
        attributes=recorded,
        status=made.status,
        start_time=made.start_time,
        end_time=made.end_time,
    )


def reader(frame: SpanFrame) -> Any:
    _, payload, resource_scope = frame[2]
    return resource_scope.reader(payload)


def of_sdk(one: ReadableSpan) -> Any:
    (frame,) = frames_of([one])
    return reader(frame)


def succeeded(span_reader: Any) -> Any:
    """What is known of a call whose tool was seen before."""
    convention = Convention(
        name="tools",
        source="",
        rules=(),
        fields={
            Field.TOOL_NAME: ("tool",),
            Field.ERROR_TYPE: ("error",),
            Field.CALL_ID: ("id",),
            Field.RESULT: ("result",),
        },
    )
    tools = ToolSpanReader(ReadTable(convention), frozenset())
    tools.read_fields(span_reader)
    return tools.succeeded(span_reader)


@pytest.mark.skipif(extension("_native") is None, reason="the extension is not built")
def test_a_call_succeeded_for_certain_on_every_way_in_or_on_none() -> None:
    """Whatever its id, result and status are."""
    results = ("", "fine", '{"isError": true}', "Grüße", 5, ["fine"], None)
    seen = set()
    for status, call_id, result in product(StatusCode, ("call_1", "", 7, None), results):
        made = span(status=status, id=call_id, result=result, tool="search")
        ways = of_sdk(made), reader(read_traces(encode_spans([made]).SerializeToString()).spans[0])
        sdk, native = map(succeeded, ways)
        assert native == sdk, (status, call_id, result)
        seen.add(None if sdk is None else sdk[1])
        is_certain = status is not StatusCode.ERROR and {type(call_id), type(result)} <= {
            str,
            type(None),
        }
        assert (sdk is not None) == (is_certain and "rror" not in str(result))
    assert seen == {None, "", "call_1"}


def test_equal_fingerprints_are_equal_attributes() -> None:
    made = [of_sdk(span(name, tool=tool)) for name in ("run", "other") for tool in (None, *NAMES)]
    marks = [each.fingerprint(DESCRIBED_BY) for each in made]
    known = [mark for mark in marks if mark is not None]
    assert len(known) == len(set(known)) == 2 * (len(NAMES) - 1)  # neither the list nor 2**70


def test_a_fingerprint_leaves_out_texts_that_do_not_matter() -> None:
    wanted = Wanted(frozenset({"tool", "id"}), presence=frozenset({"id"}), short=True)
    texts = ("call_1", "call_2"), ("x" * 65, "y" * 65)
    marks = {of_sdk(span(id=one, tool=tool)).fingerprint(wanted) for one, tool in product(*texts)}
    empty = of_sdk(span(id="", tool="x" * 65)).fingerprint(wanted)
    assert len(marks) == 1
    assert empty not in marks
