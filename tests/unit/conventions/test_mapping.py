"""A user's table is a mapping; what is wrong with one is said in one line."""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.conventions import TABLES, Convention, Field, Reader, convention_from_mapping
from otel_eval.errors import ConfigError
from otel_eval.testing import span

MINE: dict[str, Any] = {
    "name": "mine",
    "source": "our wiki",
    "scopes": ["my.*"],
    "rules": [{"kind": "tool", "key": "step", "value": "action"}, {"kind": "agent", "name": "run *"}],
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


def test_a_users_table_goes_first():
    """It can overrule what is built in."""
    reader = Reader((convention_from_mapping(MINE), *TABLES))
    mine = reader.of_scope("my.app").read(span("s", attributes={"step": "action", "gen_ai.operation.name": "chat"}))
    theirs = reader.of_scope("other").read(span("s", attributes={"step": "action", "gen_ai.operation.name": "chat"}))
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
        ({"tool_spans": "no"}, "tool_spans"),
        ({"placeholders": ["x"]}, "placeholders"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(change: dict[str, Any], said: str):
    """The message is one line and names the key."""
    with pytest.raises(ConfigError) as raised:
        convention_from_mapping({**MINE, **change})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_mapping_is_refused():
    """A list of tables is a frequent slip."""
    with pytest.raises(ConfigError, match="not a mapping"):
        convention_from_mapping([MINE])  # type: ignore[arg-type]
