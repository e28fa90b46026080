"""The memo of recognised spans changes no result: each span is classified as if it were the
first.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.conventions import TABLES, Convention, Rule
from otel_eval.conventions.reader import DROPPED, UNRECOGNIZED, Reader, ScopeReader
from otel_eval.interfaces import LONG_TEXT, SpanReader
from otel_eval.model import Kind
from otel_eval.otlp.spans import read_span
from tests.support.made_spans import span

SEARCHED = Convention(
    name="searched",
    source="test",
    scopes=("test",),
    rules=(
        Rule(Kind.OTHER, "id", "none"),
        Rule(Kind.AGENT, "free", '*"agent": "{name}"*'),
        Rule(Kind.TOOL, "free", "*tool*call*|exactly", name="t*"),
        Rule(Kind.MODEL, "id"),
        Rule(Kind.AGENT, "free", "*late*"),
    ),
)
ENCODED = Convention(
    name="encoded",
    source="test",
    scopes=("test",),
    rules=(Rule(Kind.TOOL, "json", "tool"),),
    json_encoded=True,
)
LONG = "-" * LONG_TEXT
TEXTS = [
    "",
    "none",
    "exactly",
    "tool call",
    "late",
    '"agent": "t"',
    "ö" * 33,
    "ö" * 32,
    "tool" + LONG + "call",
    LONG + "late",
]
TEXTS += [
    f'{LONG}"agent": "t"',
    f'{LONG}"agent": "u"',
    LONG + "call tool",
    LONG,
    LONG[:-1],
    "\ud800" * 22,
]
SPELT = [
    '"tool"',
    '"' + r"\u0074\u006f\u006f\u006c" + '"',
    " " * LONG_TEXT + '"tool"',
    " " * LONG_TEXT + '"toll"',
]
VALUES = st.sampled_from([*TEXTS, *SPELT, 1, 1.0, True, None, ["tool"]])
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["id", "free", "json", "other", "openinference.span.kind"]), VALUES
)
SPANS = st.lists(st.tuples(st.sampled_from(["t", "u", ""]), ATTRIBUTES), min_size=2, max_size=12)


def alone(name: str, attributes: dict[str, Any]) -> SpanReader:
    return span("s", "", name, attributes=attributes)


def wired(name: str, attributes: dict[str, Any]) -> SpanReader:
    message = Span(trace_id=b"t" * 16, span_id=b"s" * 8, name=name)
    for key, value in attributes.items():
        message.attributes.add(key=key, value=any_value(value))
    return read_span(message.SerializeToString())


def any_value(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    if isinstance(value, str):
        return AnyValue(string_value=value.replace("\ud800", "?"))
    return (
        AnyValue()
        if value is None
        else AnyValue(**{"int_value" if isinstance(value, int) else "double_value": value})
    )


def first(view: SpanReader) -> tuple[Kind, str]:
    """The classification by a reader without a memo entry, rule by rule."""
    decided = fresh().explain(view)
    return (decided.rule.kind, decided.table) if decided.rule is not None else (Kind.OTHER, "")


def fresh() -> ScopeReader:
    return Reader((SEARCHED, ENCODED)).of_scope("test")


@pytest.mark.parametrize("made", [alone, wired])
@given(spans=SPANS)
def test_spans_that_were_read_before_change_nothing(
    made: Any, spans: list[tuple[str, dict[str, Any]]]
) -> None:
    reader = fresh()
    for view in [made(name, attributes) for name, attributes in spans]:
        read = reader.read(view)
        assert (read.kind, read.table.name if read.table else "") == first(view)


@pytest.mark.parametrize("made", [alone, wired])
def test_a_long_text_is_looked_at_each_time(made: Any) -> None:
    """Spans that differ only in that text are read differently, in either order."""
    here, there = (made("t", {"free": f'{LONG} "agent": "{name}"'}) for name in ("t", "u"))
    for pair in ((here, there), (there, here)):
        reader = fresh()
        assert {id(view): reader.read(view).kind for view in pair} == {
            id(here): Kind.AGENT,
            id(there): Kind.OTHER,
        }


@pytest.mark.parametrize("made", [alone, wired])
def test_an_evaluation_is_left_out_whatever_long_texts_it_has(made: Any) -> None:
    reader = Reader(TABLES).of_scope("openinference.instrumentation.langchain")
    evaluation = made(
        "e", {"openinference.span.kind": "EVALUATOR", "metadata": LONG + '"langgraph_node": "x"'}
    )
    assert reader.read(evaluation) is reader.read(evaluation) is DROPPED


def test_ids_and_long_texts_take_one_entry() -> None:
    """So that spans with ids of their own, which is all real ones, are remembered."""
    reader = Reader(TABLES).of_scope("my.agent")
    for number in range(100):
        call = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "x",
            "gen_ai.tool.call.id": f"call_{number}",
        }
        reader.read(alone("execute_tool x", call))
        reader.read(wired("execute_tool x", call))
    # one by fingerprint, and one by values for each order of attributes
    assert len(reader._memo) <= 3
    assert reader.read(alone("", {})) is UNRECOGNIZED


def test_the_names_of_scopes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memos of all scopes together are limited, and names of spans that are too long are not
    kept.
    """
    monkeypatch.setattr("otel_eval.conventions.reader._MOST_ENTRIES", 100)
    reader = Reader(TABLES)
    for number in range(300):
        reader.of_scope(f"scope {number % 30}").read(span("a", "", f"chat {number}"))
        reader.of_scope("scope").read(span("a", "", f"{number}" * 1000))
    assert 0 < sum(map(len, reader._memos)) <= 100
    assert max(len(key[0]) for memo in reader._memos for key in memo) < 1000
