"""The types of parameters that several scorers have; pydantic reads a specification by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, WrapValidator

from otel_eval.errors import redacted_repr
from otel_eval.records import record
from otel_eval.scorers.tool_names import name_matcher
from otel_eval.validation import Deferred, Record, Some, Words

FullText = Annotated[str, Field(strict=True, pattern=r"\S")]
"""A text that is not blank."""
Text = Annotated[FullText, Words("is not a non-empty text; write e.g. some-name")]
Name = Annotated[str, Field(strict=True, min_length=1)]
Patterns = Annotated[
    Some[Name], Words('is not a list of names or patterns; write e.g. [search, "delete_*"]')
]
"""Glob patterns over names, at least one."""


def _as_written(value: object, validate: Callable[[Any], Any]) -> object:
    """Validate a value, and return it as it is written."""
    validate(value)
    return value


AsWritten: Final = WrapValidator(_as_written)
"""For numbers in details of results: an int stays one."""
Milliseconds = Annotated[
    float,
    Field(strict=True, gt=0, allow_inf_nan=False),
    Words("is not a positive number of milliseconds; write e.g. 30000"),
    AsWritten,
]


_WILDCARDS: Final = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern: it has a wildcard."""
    return not _WILDCARDS.isdisjoint(name)


def literal_name(name: str) -> str:
    """Return a name that is compared literally; a pattern there would match no tool.

    Raises:
        ValueError: the name has a wildcard.
    """
    if is_pattern(name):
        raise ValueError(
            f"{redacted_repr(name)} is not the name of a tool: patterns have no effect here; write"
            " the whole name, or use required_tools, forbidden_tools, tool_call_count or"
            " precedence, which take patterns"
        )
    return name


NO_TOOL: Final = (
    "is not the name of a tool; write e.g. search (names like 3 or true need quotes in YAML)"
)
SpanName = Annotated[Name, Words(NO_TOOL)]
ToolName = Annotated[SpanName, AfterValidator(literal_name)]


@record
class Selection:
    """A selection of names: those that `include` matches (all, if it has no pattern) and `exclude`
    does not.
    """

    include: Patterns = ()
    exclude: Patterns = ()

    def matcher(self) -> Callable[[str], bool] | None:
        """A function that is true for selected names; None if all names are selected."""
        if not self.include and not self.exclude:
            return None
        include, exclude = name_matcher(*self.include or ("*",)), name_matcher(*self.exclude)
        return lambda name: include(name) and not exclude(name)


SelectionOfTools = Annotated[Selection, Deferred(Annotated[Selection, Record()])]
