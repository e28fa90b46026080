"""Spans that may be a run's own, found in C and in Python: the same places, equally sure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.native import extension
from otel_eval.sinks.forward.waiting import entries, entries_slowly
from otel_eval.sources.otlp.views import span_envelope
from otel_eval.trajectory import Plan

if extension("_forest") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

OF_SCOPE = Plan().reader.of_scope
ENVELOPES = [span_envelope(b"", InstrumentationScope(name=each).SerializeToString()) for each in ("", "shop", "otel_eval")]
OPERATIONS = st.sampled_from(["", "invoke_agent", "execute_tool", "chat"])
FLAGS = st.sampled_from([None, 0, 0x100, 0x300, 0x1FF, 0x200, 0xFFFFFFFF])


def payload(operation: str, flags: int | None, name: str) -> bytes:
    """A span as SDKs write it; without flags as older ones do."""
    made = Span(name=name, kind=2)
    if operation:
        made.attributes.add(key="gen_ai.operation.name").value.string_value = operation
    if flags is not None:
        made.flags = flags
    return made.SerializeToString()


PAYLOADS = st.builds(payload, OPERATIONS, FLAGS, st.sampled_from(["", "a", "\x05\x01\x00\x02\x00\x00"]))
FRAMES = st.tuples(st.sampled_from([b"", b"p" * 8]), PAYLOADS, st.sampled_from(ENVELOPES))
SPANS = st.lists(st.tuples(st.just(b"t" * 16), st.just(b"s" * 8), FRAMES, st.just(7)), max_size=8)


def outcome(find: Any, spans: Any) -> list[tuple[int, str, bool]]:
    return [(place, view.name, sure) for place, view, sure in find(spans, OF_SCOPE)]


@given(SPANS)
def test_both_find_the_same(spans: list[Any]) -> None:
    """Agents, spans without a parent, spans whose parent is elsewhere; those that do not tell are not sure."""
    assert outcome(entries, spans) == outcome(entries_slowly, spans)


def test_who_may_be_a_run() -> None:
    """One of each."""
    kinds = [("invoke_agent", 0x100, b"p" * 8), ("chat", 0x100, b"p" * 8), ("chat", 0x300, b"p" * 8), ("", 0x100, b"")]
    kinds.append(("", None, b"p" * 8))
    spans = [(b"t" * 16, b"s" * 8, (parent, payload(each, flags, "n"), ENVELOPES[1]), 7) for each, flags, parent in kinds]
    assert outcome(entries, spans) == [(0, "n", True), (2, "n", True), (3, "n", True), (4, "n", False)]


def test_a_frame_of_another_form_goes_the_long_way() -> None:
    """Python sees to it, or says what is wrong with it."""
    spans: list[Any] = [(b"t" * 16, b"s" * 8, [b"", payload("", None, "n"), ENVELOPES[1]], 7)]
    assert outcome(entries, spans) == outcome(entries_slowly, spans)
