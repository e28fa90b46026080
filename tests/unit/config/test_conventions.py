"""A user's convention from a mapping, and the errors of an invalid one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from otel_eval.config import EvalConfig
from otel_eval.config.conventions import (
    convention_from_mapping,
    conventions_from_list,
    mapping_of,
)
from otel_eval.conventions import TABLES, WRAPPERS, Convention, Field
from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.reader import Reader
from otel_eval.conventions.values import unwrap
from otel_eval.errors import ConfigError
from otel_eval.interfaces import SpanEvent
from tests.support.made_spans import span

MINE: dict[str, Any] = {
    "name": "mine",
    "source": "our wiki",
    "scopes": ["my.*"],
    "rules": [
        {"kind": "tool", "key": "step", "value": "action"},
        {"kind": "agent", "name": "run *"},
    ],
    "fields": {"tool_name": "step.name", "arguments": ["step.in", "step.input"]},
    "span_name": "run *",
    "errors": [{"key": "step.ok", "value": False}],
    "events": [{"event": "done", "field": "result", "key": "value"}],
    "messages": [{"key": "chat.in", "side": "history"}, {"key": "chat.out.", "conclusive": False}],
    "wrappers": ["kwargs"],
    "not_calls": ["noop"],
    "placeholders": {"*": ["hidden"]},
    "tool_spans": False,
}


def test_a_mapping_becomes_a_table():
    """With every field of its own."""
    table = convention_from_mapping(MINE)
    assert isinstance(table, Convention)
    assert table.fields[Field.ARGUMENTS] == ("step.in", "step.input")
    assert table.errors[0].value == "false"
    assert not table.tool_spans


def test_every_built_in_wrapper_can_be_written_by_a_user(subtests: pytest.Subtests) -> None:
    """A user's instrumentation may have its own."""
    mine = convention_from_mapping(MINE)
    for name, wrapper in WRAPPERS.items():
        with subtests.test(name=name):
            written = yaml.safe_dump(
                mapping_of(replace(mine, wrappers=(wrapper,))), sort_keys=False
            )
            assert convention_from_mapping(yaml.safe_load(written)).wrappers == (wrapper,)


def test_a_wrapper_of_a_users_own_is_taken_off():
    """With the call id and the failure that it knew; an object of another shape stays as it is."""
    shape = {
        "needs": {"payload": {"type": "object"}, "version": 2},
        "take": "payload.body",
        "only": ["payload", "version", "meta"],
        "call_id": "meta.id",
        "error": "meta.state",
        "failed": "broken",
    }
    (wrapper,) = convention_from_mapping({**MINE, "wrappers": [shape]}).wrappers
    meta = {"id": "c1", "state": "broken"}
    taken = unwrap(
        json.dumps({"payload": {"body": {"city": "Oslo"}}, "version": 2, "meta": meta}), (wrapper,)
    )
    assert (taken.value, taken.call_id, taken.failed) == ({"city": "Oslo"}, "c1", True)
    for other in (
        {"payload": "x", "version": 2},
        {"payload": {"body": 1}, "version": 3},
        {"payload": {}, "version": 2, "own": 1},
    ):
        assert unwrap(json.dumps(other), (wrapper,)).value == other


GEN_AI = next(table for table in TABLES if table.name == "gen_ai")
FAMILY: dict[str, Any] = {
    "name": "family",
    "extends": "gen_ai",
    "scopes": ["my.*"],
    "rules": [
        {"kind": "tool", "key": "my.tool"},
        {"from": "gen_ai"},
        {"kind": "other", "key": "x"},
    ],
    "fields": {"arguments": ["my.args", {"from": "gen_ai"}], "result": None, "input": "my.input"},
    "messages": [{"from": "gen_ai"}, {"key": "my.messages"}],
    "masks": None,
}


def test_a_table_takes_from_the_one_it_extends_what_it_does_not_have_itself():
    """Its own rules stand before and after those that it names, its attributes before others."""
    table = convention_from_mapping(FAMILY)
    assert (table.name, table.source) == ("family", "configuration")
    assert [rule.key for rule in (table.rules[0], table.rules[-1])] == ["my.tool", "x"]
    assert table.rules[1:-1] == GEN_AI.rules
    assert table.fields[Field.ARGUMENTS] == ("my.args", *GEN_AI.fields[Field.ARGUMENTS])
    assert table.fields[Field.INPUT] == ("my.input",)
    assert table.fields[Field.OUTPUT] == GEN_AI.fields[Field.OUTPUT]
    assert table.messages[:-1] == GEN_AI.messages
    assert table.placeholders == GEN_AI.placeholders


def test_null_takes_an_inherited_key_away():
    """Of the table, and of a mapping of it."""
    table = convention_from_mapping(FAMILY)
    assert Field.RESULT not in table.fields
    assert (GEN_AI.masks != (), table.masks) == (True, ())


def test_entries_that_a_list_has_already_are_not_repeated():
    """An attribute that is looked at first need not be looked at again."""
    fields = {"agent_name": ["gen_ai.agent.name", "my.agent", {"from": "gen_ai"}]}
    table = convention_from_mapping({**FAMILY, "fields": fields})
    assert table.fields[Field.AGENT_NAME] == (
        "gen_ai.agent.name",
        "my.agent",
        "gen_ai.workflow.name",
    )


def test_a_table_extends_those_above_it_in_the_configuration():
    """Dialects of one instrumentation share what is the same."""
    child = {"name": "child", "extends": "family", "scopes": ["my.child"], "tool_spans": True}
    config = EvalConfig(conventions=[FAMILY, child])
    parent, table = config.own_conventions.tables
    assert table == replace(
        parent, name="child", source="configuration", scopes=("my.child",), tool_spans=True
    )
    with pytest.raises(ConfigError, match=r"\[0\].extends: 'family' is no convention"):
        conventions_from_list([child, FAMILY])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extends": "gen_aj"}, "extends: 'gen_aj' is no convention; did you mean 'gen_ai'?"),
        ({"extends": ["gen_ai"]}, "extends: ['gen_ai'] is no convention"),
        ({"not_calls": ["a", {"from": "b"}]}, "not_calls[1].from: 'b' is no convention"),
        (
            {"rules": [{"from": "gen_ai"}, {"kind": "robot", "key": "k"}]},
            "rules[1].kind: 'robot' is invalid",
        ),
        ({"fields": {"result": [{"from": "gen_ai"}, 3]}}, "fields.result[1]: 3 is not text"),
    ],
)
def test_a_problem_of_an_extended_table_names_the_entry_as_it_was_written(
    change: dict[str, Any], message: str
):
    """However many entries another table put before it."""
    with pytest.raises(ConfigError) as raised:
        convention_from_mapping({**FAMILY, **change})
    assert message in str(raised.value)


def test_a_users_table_goes_first():
    """It can overrule what is built in."""
    reader = Reader((convention_from_mapping(MINE), *TABLES))
    mine = reader.of_scope("my.app").read(
        span("s", attributes={"step": "action", "gen_ai.operation.name": "chat"})
    )
    theirs = reader.of_scope("other").read(
        span("s", attributes={"step": "action", "gen_ai.operation.name": "chat"})
    )
    assert (mine.kind, theirs.kind) == ("tool", "model")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "name"),
        ({"rules": []}, "rules"),
        ({"rules": "tool"}, "rules"),
        ({"rules": [{"kind": "robot", "key": "k"}]}, "kind"),
        ({"rules": [{"kind": "tool"}]}, "every span"),
        ({"rules": [{"kind": "tool", "key": "k", "vale": "v"}]}, "vale"),
        ({"fields": {"tool": "k"}}, "tool"),
        ({"fields": {"tool_name": 3}}, "tool_name"),
        ({"events": [{"event": "e", "field": "x", "key": "k"}]}, "field"),
        ({"messages": [{"key": "k", "side": "left"}]}, "side"),
        ({"wrappers": ["cling film"]}, "cling film"),
        ({"wrappers": {"needs": {"a": "*"}}}, "wrappers"),
        ({"wrappers": [3]}, "wrappers[0]"),
        ({"wrappers": [{"take": "a"}]}, "needs"),
        ({"wrappers": [{"needs": {}, "take": "a"}]}, "names no key"),
        ({"wrappers": [{"needs": {"a": {"type": "robot"}}, "take": "a"}]}, "robot"),
        ({"wrappers": [{"needs": {"a": {"type": []}}, "take": "a"}]}, "wrappers[0].needs.a"),
        ({"rules": [3]}, "rules[0]"),
        ({"placeholders": {"*": {"a": 1}}}, "placeholders.*"),
        ({"tool_spans": "no"}, "tool_spans"),
        ({"placeholders": ["x"]}, "placeholders"),
        ({"truncated": ["x"]}, "truncated"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(change: dict[str, Any], said: str):
    """The message is one line and names the key."""
    with pytest.raises(ConfigError) as raised:
        convention_from_mapping({**MINE, **change})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_convention_that_is_no_mapping_is_refused():
    """A list of tables is a frequent slip."""
    with pytest.raises(ConfigError, match="not a mapping"):
        convention_from_mapping([MINE])  # type: ignore[arg-type]


def test_a_value_that_was_cut_is_not_recorded():
    """A part of a result is not the result; the next attribute that holds it counts."""
    fields = {"result": ["step.out", "step.output"]}
    table = ReadTable(
        convention_from_mapping({**MINE, "fields": fields, "truncated": {"step.out": "step.cut"}})
    )
    assert "step.cut" in table.keys_wanted(Field.RESULT).keys
    for cut, value in ((True, None), ("true", None), (False, "par"), (None, "par")):
        assert table.value({"step.out": "par", "step.cut": cut}, Field.RESULT) == value
    assert (
        table.value({"step.out": "par", "step.cut": True, "step.output": "paris"}, Field.RESULT)
        == "paris"
    )


def test_a_value_of_which_a_part_is_masked_is_not_recorded():
    """A password's place is not the password, and the rest alone is not the arguments."""
    fields = {"arguments": ["step.args", "step.input"]}
    table = ReadTable(convention_from_mapping({**MINE, "fields": fields, "masks": ["<masked>"]}))
    masked = '{"user": "ann", "password": "<masked>"}'
    assert table.value({"step.args": masked}, Field.ARGUMENTS) is None
    assert table.value({"step.args": masked, "step.input": "{}"}, Field.ARGUMENTS) == "{}"
    assert table.value({"step.args": "masked"}, Field.ARGUMENTS) == "masked"


def test_a_title_is_read_instead_of_the_spans_name():
    """Where it is recorded and no attribute has the name."""
    names = {
        "fields": {"tool_name": "step.name"},
        "title": "step.title",
        "span_name": ["action *"],
        "agent_span_name": ["by *"],
    }
    table = ReadTable(convention_from_mapping({**MINE, **names}))
    assert {"step.title", "step.name"} == table.keys_wanted(Field.TOOL_NAME).keys
    assert table.tool_name({"step.title": "action look"}, "action {name}") == "look"
    assert (
        table.tool_name({"step.title": "action look", "step.name": "see"}, "action {name}") == "see"
    )
    assert table.tool_name({}, "action go") == "go"
    assert table.agent_name({"step.title": "by ann"}, "action look") == "ann"


def test_fields_come_out_of_events_by_a_glob_of_their_names():
    """The part that `*` stands for can be the value, and a word that stands for nothing is none."""
    rows = [
        {"event": "finish_*", "field": "tool_name", "key": "*"},
        {"event": "finish_*", "field": "error_type", "key": "status"},
        {"event": "done", "field": "result", "key": "value"},
    ]
    table = ReadTable(
        convention_from_mapping({**MINE, "events": rows, "placeholders": {"status": "success"}})
    )
    read = [
        dict(table.fields_of(event))
        for event in (
            SpanEvent("finish_pay", {"status": "error"}),
            SpanEvent("finish_pay", {"status": "success"}),
            SpanEvent("done", {}, {"value": 3}),
            SpanEvent("started", {"value": 3}),
        )
    ]
    assert read == [
        {Field.TOOL_NAME: "pay", Field.ERROR_TYPE: "error"},
        {Field.TOOL_NAME: "pay"},
        {Field.RESULT: 3},
        {},
    ]
