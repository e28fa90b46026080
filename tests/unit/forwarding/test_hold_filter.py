"""Which spans are held for scores when traces are forwarded: those that may be a run's own span by
the rule of assembly.
"""

from __future__ import annotations

from itertools import product

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval import create_scorer
from otel_eval.conventions.reader import is_local_root
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.forwarding.pending_spans import HoldFilter
from otel_eval.otlp.spans import resource_scope

SCOPES = {
    each: resource_scope(b"", InstrumentationScope(name=each).SerializeToString())
    for each in ("shop", "otel_eval")
}
PARENTS = (b"", b"p" * 8)
FLAGS = (None, 0, 1, 0x100, 0x101, 0x200, 0x300, 0x1FF, 0xFFFFFFFF)
KINDS = (
    Span.SPAN_KIND_INTERNAL,
    Span.SPAN_KIND_SERVER,
    Span.SPAN_KIND_CLIENT,
    Span.SPAN_KIND_CONSUMER,
)
WAITING = HoldFilter(
    Engine([ScorerSet(name="e", scorers=(create_scorer({"type": "tool_errors"}),))])
)


def frame(parent=b"", *, operation="chat", flags=None, kind=Span.SPAN_KIND_INTERNAL, scope="shop"):
    made = Span(name="n", kind=kind)
    if operation:
        made.attributes.add(key="gen_ai.operation.name").value.string_value = operation
    if flags is not None:
        made.flags = flags
    return parent, made.SerializeToString(), SCOPES[scope]


def waits(held):
    return bool(WAITING.chosen([(b"t" * 16, b"s" * 8, held, 7)]))


def test_a_local_root_waits_and_no_other_span(subtests: pytest.Subtests) -> None:
    """Also where its flags say of other things only, as older SDKs write them: then its kind
    tells.
    """
    for parent, flags, kind in [*product(PARENTS, FLAGS, KINDS)]:
        with subtests.test(parent=parent, flags=flags, kind=kind):
            held = frame(parent, flags=flags, kind=kind)
            assert waits(held) == is_local_root(held)


@pytest.mark.parametrize(("flags", "expected"), [(1, True), (0x100, False), (0x300, True)])
def test_a_server_span_whose_flags_do_not_tell_of_its_parent_waits(flags, expected):
    """It is the first of its process."""
    assert waits(frame(b"p" * 8, flags=flags, kind=Span.SPAN_KIND_SERVER)) is expected


def test_an_agent_waits_wherever_its_parent_is(subtests: pytest.Subtests) -> None:
    """Its run is scored."""
    for flags in FLAGS:
        with subtests.test(flags=flags):
            assert waits(frame(b"p" * 8, operation="invoke_agent", flags=flags))


def test_a_span_of_our_own_does_not_wait():
    """It is no part of a run."""
    assert not waits(frame(scope="otel_eval"))
