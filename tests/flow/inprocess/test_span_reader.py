"""A span of the process is read as the same span over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_eval.interfaces import Wanted
from otel_eval.otlp.protobuf import read_traces
from otel_eval.sources.inprocess.sdk_spans import frames_of

KEYS = ["gen_ai.tool.name", "llm.output.0", "other", "service.name", "scope.key"]
WANTED = Wanted(frozenset(KEYS) - {"llm.output.0"}, ("llm.",))

scalars = (
    st.text(max_size=8)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=8)
)
values = (
    scalars
    | st.lists(st.text(max_size=4), max_size=3).map(tuple)
    | st.lists(st.integers(0, 9), max_size=3).map(tuple)
)
attributes = st.dictionaries(st.sampled_from(KEYS[:3]), values, max_size=3)


def context(span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(0xABC, span_id, is_remote=remote, trace_flags=TraceFlags(1))


@st.composite
def spans(draw: st.DrawFn) -> ReadableSpan:
    """Ended spans of every kind and status, with parents or without."""
    return ReadableSpan(
        name=draw(st.text(max_size=8)),
        context=context(draw(st.integers(1, 2**64 - 1))),
        parent=draw(
            st.none() | st.builds(context, st.integers(1, 2**64 - 1), remote=st.booleans())
        ),
        resource=Resource({"service.name": "shop"}),
        attributes=draw(attributes),
        events=[Event(draw(st.text(max_size=4)), draw(attributes), timestamp=5)],
        kind=draw(st.sampled_from(SpanKind)),
        status=Status(draw(st.sampled_from(StatusCode))),
        start_time=draw(st.integers(0, 2**62)),
        end_time=draw(st.integers(0, 2**62)),
        instrumentation_scope=InstrumentationScope("app", "1", attributes={"scope.key": "s"}),
    )


def as_read(frame: tuple[bytes, bytes, Any, int]) -> list[Any]:
    """Everything that the core can learn of a span."""
    trace_id, span_id, (parent, payload, resource_scope), _ = frame
    view = resource_scope.reader(payload)
    facts = [
        view.name,
        view.span_kind,
        view.start_ns,
        view.end_ns,
        view.status_code,
        view.status_message,
    ]
    contents = [
        view.attributes(WANTED),
        list(view.events()),
        resource_scope.shared(WANTED),
        resource_scope.service,
        resource_scope.scope_name,
    ]
    remote = view.parent_is_remote if parent else None
    return [trace_id, span_id, parent, *facts, *contents, remote]


def _carries_scope_attributes() -> bool:
    """Exporters below 1.31 leave them out."""
    span = ReadableSpan(
        "s",
        context(1),
        instrumentation_scope=InstrumentationScope("app", attributes={"scope.key": "s"}),
    )
    return b"scope.key" in encode_spans([span]).SerializeToString()


@pytest.mark.skipif(
    not _carries_scope_attributes(), reason="this exporter sends no attributes of scopes"
)
@given(spans())
def test_a_span_reads_alike_in_the_process_and_from_otlp(span: ReadableSpan):
    """Ids, times, status, attributes, events, resource and scope; bytes are base64 text and tuples
    are lists.
    """
    (here,) = frames_of([span])
    (there,) = read_traces(encode_spans([span]).SerializeToString()).spans
    assert as_read(here) == as_read(there)


def test_a_number_that_python_refuses_to_write_is_read_as_hexadecimal_text():
    """The SDK takes any number; one of more than 4,300 digits would end the export of the run's
    results.
    """
    ((_, _, (_, payload, scope), _),) = frames_of(
        [ReadableSpan("s", attributes={"other": 1 << 20_000})]
    )
    assert scope.reader(payload).attributes(WANTED) == {"other": hex(1 << 20_000)}


@given(spans(), spans())
def test_which_of_two_spans_of_one_id_counts_does_not_depend_on_their_order(
    one: ReadableSpan, two: ReadableSpan
):
    """Ranks compare, and a span ranks equal with itself."""
    frames = frames_of([one, two])
    ranks = [resource_scope.rank(payload) for _, _, (_, payload, resource_scope), _ in frames]
    assert (max(ranks) == ranks[0]) or (max(ranks) == ranks[1])
    ((_, _, (_, payload, resource_scope), _),) = frames_of([one])
    assert ranks[0] == resource_scope.rank(payload)
    assert ranks[0][:2] == (one.end_time, len(one.attributes or {}))


def test_spans_without_ids_keep_the_order_of_the_list():
    """As tests build them by hand."""
    frames = frames_of([ReadableSpan(name) for name in ("a", "b", "c")])
    assert [frame[1].name for _, _, frame, _ in sorted(frames, key=lambda each: each[1])] == [
        "a",
        "b",
        "c",
    ]
    assert len({trace_id for trace_id, *_ in frames}) == 1


def test_the_size_of_a_span_grows_with_its_content():
    """Limits of memory count on it."""
    small, large = frames_of(
        [ReadableSpan("a"), ReadableSpan("a", attributes={"gen_ai.input.messages": "x" * 5000})]
    )
    assert large[3] - small[3] >= 5000
