"""Which attributes of spans are kept where content is left out: an allow-list from the tables.

Kept is what tells a span's kind, names, ids, errors, tokens and finish reasons. Messages,
arguments, results, inputs and outputs are content, and so is every attribute that no table knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from otel_eval.conventions.table import (
    EVALUATION_MARKS,
    FINISH_REASONS,
    KEPT_TOOLS,
    OFFERED_TOOLS,
    RESPONSE_ID,
    Convention,
    Field,
)
from otel_eval.conventions.values import parse_json

CONTENT_FIELDS: Final = frozenset(
    {Field.ARGUMENTS, Field.PARAMETERS, Field.RESULT, Field.INPUT, Field.OUTPUT}
)
# Written beside content, and as long as it: reasons for ending are there without it.
_BESIDE_CONTENT: Final = "finish_reason"
_LONGEST: Final = 256  # characters of a kept value; names, ids and classes of errors are shorter
_NAME_IN_GLOB: Final = re.compile(r'"([\w.]+)":')


class WithoutContent:
    """Reduces the attributes of spans and events.

    Args:
        tables: the conventions in use.
        further: keys that are kept whatever they hold, because the configuration names them.
    """

    def __init__(self, tables: Iterable[Convention], further: Iterable[str] = ()) -> None:
        conventions = tuple(tables)
        rows = {row.key for table in conventions for row in table.messages}
        fields = [(field, keys) for table in conventions for field, keys in table.fields.items()]
        marks = [
            mark
            for table in conventions
            for mark in (
                *table.errors,
                *table.not_call_marks,
                *table.unreliable_finish_reasons,
                *EVALUATION_MARKS,
            )
        ]
        content = {key for field, keys in fields if field in CONTENT_FIELDS for key in keys}
        self._content: Final = frozenset(content | rows | {*OFFERED_TOOLS} - {KEPT_TOOLS})
        self._families: Final = tuple(key for key in self._content if key.endswith("."))
        self._further: Final = frozenset(further)
        self._counts: Final = frozenset(
            key
            for field, keys in fields
            if field in (Field.INPUT_TOKENS, Field.OUTPUT_TOKENS)
            for key in keys
        )
        # what only the rules read, by the names that they look for in JSON
        self._tested: dict[str, set[str]] = {}
        for rule in (rule for table in conventions for rule in table.rules if rule.key):
            self._tested.setdefault(rule.key, set()).update(_NAME_IN_GLOB.findall(rule.value))
        self._kept: Final = frozenset(
            {
                *(key for field, keys in fields if field not in CONTENT_FIELDS for key in keys),
                *(mark.key for mark in marks),
                *(mark for table in conventions for mark in table.truncated.values()),
                *(table.title for table in conventions if table.title),
                *FINISH_REASONS,
                *RESPONSE_ID,
                *self._tested,
            }
        )
        self._events: Final = frozenset(
            row.key
            for table in conventions
            for row in table.events
            if row.field not in CONTENT_FIELDS
        ) | {"exception.type"}

    def kept(self, key: str, value: Any) -> Any:
        """What is kept of an attribute of a span: the value, a part of it, or None."""
        if key in self._further:
            return value
        if key not in self._kept or self._is_content(key):
            return None
        if not isinstance(value, str):
            return value if _is_short(value) else None
        if value.lstrip()[:1] == "{":
            read = parse_json(value)
            if not isinstance(read, dict):
                return None
            names = self._tested.get(key, set[str]())
            is_count = key in self._counts
            return json.dumps(
                {
                    name: part
                    for name, part in read.items()
                    if (name in names and _is_short(part))
                    or (is_count and isinstance(part, int | float))
                }
            )
        return value if len(value) <= _LONGEST else None

    def kept_of_event(self, key: str, value: Any) -> Any:
        """What is kept of an attribute of an event: the value or None."""
        return value if key in self._events and _is_short(value) else None

    def _is_content(self, key: str) -> bool:
        return (key in self._content or key.startswith(self._families)) and not key.endswith(
            _BESIDE_CONTENT
        )


def _is_short(value: Any) -> bool:
    """Whether a value is no longer than a name or an id."""
    if isinstance(value, list):
        return sum(len(str(item)) for item in value) <= _LONGEST
    return not isinstance(value, dict) and len(str(value)) <= _LONGEST
