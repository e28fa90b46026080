"""A score that is the value of a CEL expression."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Failed, Outcome, Skipped, Trajectory
from otel_eval.scorers.cel import ExpressionEvaluator, InvalidExpression, Program, Unavailable, bind, compiled
from otel_eval.scorers.references import Reference, reference
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import STRING, invalid_value, optional, reads, with_schema
from otel_eval.scorers.spec.registry import scorer

__all__ = ["Expression"]

_SCORES: Final = ("BOOL", "INT", "UINT", "DOUBLE", "DYN")
_MOST_SAID: Final = 80


@with_schema(STRING)
def _program(key: str, value: Any) -> Program:
    program = compiled(key, value)
    if program.returns not in _SCORES:
        raise invalid_value(key, value, f"a score, it gives {program.returns}", "compare it with something, or count")
    return program


@scorer("expression")
@dataclass(frozen=True, slots=True, kw_only=True)
class Expression(BaseScorer):
    """The value of an expression over `run` and `calls`. 1 is best, range 0-1.

    The expression is written in CEL, the Common Expression Language. `true` is 1, `false` is 0, a number from 0 to 1 is itself;
    anything else fails. The explanation is the expression and its value. Skipped: something was not recorded that decides the
    value, or the evaluation takes too much memory or too many steps (`too_large`). Needs the extra `cel`. Variables, functions
    and limits: [dag.md](dag.md#expressions).

    Attributes:
        expression: the expression.
        reference: what the variable `reference` stands for, see [References](#references).

    Example:
        {type: expression, expression: 'calls.filter(c, c.name == "search").size() <= 3'}

    >>> from otel_eval.scorers import create_scorer
    >>> from otel_eval.testing import call, trajectory
    >>> few = create_scorer({"type": "expression", "expression": "calls.filter(c, c.name == 'search').size() <= 1"})
    >>> few(trajectory(call("search"), call("open"))).value
    1.0
    """

    type: ClassVar[str] = "expression"

    expression: Program = field(metadata=reads(_program))
    reference: Reference | None = field(default=None, metadata=reads(optional(reference)))

    @property
    def reads_calls(self) -> bool:
        """If it looks at them."""
        return "calls" in self.expression.reading.names

    @property
    def needs(self) -> frozenset[str]:
        """What it looks at."""
        return self.expression.reading.needs

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attributes that it looks at."""
        return self.expression.reading.attributes | ({self.reference.key} if self.reference else set())

    def prepare(self) -> None:
        """There must be a reference to look at, if it does."""
        if "reference" in self.expression.reading.names and self.reference is None:
            raise ConfigError("reference: missing, and the expression looks at it; name the attribute that holds it")

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Evaluate it."""
        found = self.reference.of(trajectory) if self.reference else UNRECORDED
        if isinstance(found, Failed):
            return found
        try:
            value = ExpressionEvaluator(bind(self.expression.reading, trajectory, found)).of(self.expression)
        except Unavailable as unavailable:
            return Skipped(str(unavailable), reason=unavailable.reason)
        except InvalidExpression as invalid:
            return Failed("ExpressionError", str(invalid))
        if not isinstance(value, bool | int | float):
            return Failed("TypeError", f"the expression gave a {type(value).__name__}, not a truth value or a number")
        return Finding(float(value), _told(self.expression.source, value))


def _told(source: str, value: float) -> str:
    source = " ".join(source.split())
    source = source if len(source) <= _MOST_SAID else f"{source[: _MOST_SAID - 1]}…"
    return f"{source} is {str(value).lower() if isinstance(value, bool) else value}"
