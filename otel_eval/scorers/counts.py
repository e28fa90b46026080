"""How often tools were called: counts that must hold, tools that must and must not appear, budgets,
and calls that failed.

Error messages are content and never read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from otel_eval.errors import ConfigError, collect_errors
from otel_eval.model import REFUSED, Outcome, Skipped, Trajectory
from otel_eval.scorers.base_scorer import BaseScorer, Finding, Requirements
from otel_eval.scorers.parameters import (
    count,
    invalid_value,
    optional,
    patterns,
    reads,
    with_schema,
)
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import (
    ToolNames,
    listed,
    listed_names,
    name_matcher,
    plural,
    seen,
    tool,
)

_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGN_TYPOS: Final = {
    "=<": "<=",
    "=>": ">=",
    "=!": "!=",
    "<>": "!=",
    "===": "==",
    "!==": "!=",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
}
_OPERATOR_WORDS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lte": "<=",
    "le": "<=",
    "gt": ">",
    "gte": ">=",
    "ge": ">=",
}
_SIGN_OR_WORD: Final = re.compile(r"[^\w\s]+|[a-z]+")
_CRITERION_TEXT: Final = re.compile(r"(==|!=|<=|>=|=|<|>)\s*([0-9]{1,18})")
_REMEDY: Final = 'write e.g. "<= 3" or ["==", 1], operators in quotes'


class CallCount(NamedTuple):
    """The criterion for one tool: `number of calls` `operator` `expected`."""

    tool: str
    operator: str
    expected: int


_MOST_CALLS: Final = 10**18 - 1  # 18 digits, the limit of a criterion that is one text
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": _MOST_CALLS}
_CRITERION: Final = {
    "anyOf": [
        {"type": "string", "pattern": rf"^{_CRITERION_TEXT.pattern}$"},
        {
            "type": "array",
            "prefixItems": [{"enum": [*_OPERATORS]}, _NUMBER],
            "minItems": 2,
            "maxItems": 2,
        },
    ]
}


@with_schema({"type": "object", "additionalProperties": _CRITERION, "minProperties": 1})
def read_criteria(key: str, value: Any) -> tuple[CallCount, ...]:
    """Read a mapping of tools to criteria, each `"<= 3"` or `["<=", 3]`."""
    if not isinstance(value, Mapping) or not value:
        raise invalid_value(
            key, value, "a mapping of tools to criteria", f'write e.g. {key}: {{search: "<= 3"}}'
        )
    return tuple(
        collect_errors(partial(_criterion, key, name, given) for name, given in value.items())
    )


def _criterion(key: str, name: Any, given: Any) -> CallCount:
    if not isinstance(name, str) or not name:
        example = "search" if name == "" else name
        raise invalid_value(
            key, name, "the name of a tool", f'write e.g. {key}: {{"{example}": "<= 3"}}'
        )
    where = f"{key}.{name}"
    if isinstance(given, str):
        written = _CRITERION_TEXT.fullmatch(given)
        if written is None:
            begins = _SIGN_OR_WORD.match(given)
            raise invalid_value(
                where,
                given,
                "an operator (= == != < <= > >=) and a whole number, 0 or more",
                _suggestion(begins and begins[0]),
            )
        return CallCount(name, written[1], int(written[2]))
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise invalid_value(where, given, "an operator and a number", _REMEDY)
    sign, number = given
    if not isinstance(sign, str) or sign not in _OPERATORS:
        raise invalid_value(
            where, sign, "one of the operators = == != < <= > >=", _suggestion(sign)
        )
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MOST_CALLS:
        raise invalid_value(where, number, "a whole number of calls, 0 or more", _REMEDY)
    return CallCount(name, sign, number)


def _suggestion(sign: Any) -> str:
    known = sign.strip() if isinstance(sign, str) else ""
    meant = (
        _SIGN_TYPOS.get(known)
        or _OPERATOR_WORDS.get(known)
        or (known if known in _OPERATORS and known != sign else None)
    )
    return f"did you mean {meant!r}?" if meant else _REMEDY


@scorer("tool_call_count")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallCount(BaseScorer):
    """Share of tools that were called as often as required. 1 is best, range 0-1.

    Criteria that hold / criteria. A tool that was never called counts 0; tools without a criterion
    are ignored. Skipped for the common reasons only. Details: `tools`, per tool `actual`,
    `operator`, `expected`, `score`.

    Attributes:
        criteria: tool → `"<= 3"` or `["<=", 3]`; operators `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`,
            in quotes.

    Example:
        {type: tool_call_count, criteria: {search: "<= 3", refund: ["==", 1]}}

    >>> from otel_eval.testing import call, trajectory
    >>> count = ToolCallCount(
    ...     criteria=read_criteria("criteria", {"search": "<= 1", "open": [">", 0]})
    ... )
    >>> count(trajectory(call("search"), call("search"), call("open"))).explanation
    '1 of 2 criteria hold; search: 2 calls, not <= 1'
    """

    criteria: tuple[CallCount, ...] = field(metadata=reads(read_criteria))

    def requires(self) -> Requirements:
        """Calls. A tool is required if 0 calls break its criterion, forbidden if 0 calls meet it
        and 1 call breaks it.
        """
        never = {name: _OPERATORS[sign](0, expected) for name, sign, expected in self.criteria}
        once = {name: _OPERATORS[sign](1, expected) for name, sign, expected in self.criteria}
        tools = ToolNames(
            required=tuple(name for name in never if not never[name]),
            optional=tuple(name for name in never if never[name] and once[name]),
            forbidden=tuple(name for name in never if never[name] and not once[name]),
        )
        return Requirements(tools=tools)

    def find(self, trajectory: Trajectory) -> Finding:
        """Count the calls of each tool and test the criteria."""
        counts: dict[str, int] = {}
        for call in trajectory.calls:
            counts[call.name] = counts.get(call.name, 0) + 1
        tools, broken, kept = {}, [], 0
        for name, sign, expected in self.criteria:
            actual = counts.get(name, 0)
            holds = _OPERATORS[sign](actual, expected)
            kept += holds
            tools[name] = {
                "actual": actual,
                "operator": sign,
                "expected": expected,
                "score": float(holds),
            }
            if not holds:
                broken.append(f"; {tool(name)}: {plural(actual, 'call')}, not {sign} {expected}")
        text = f"{kept} of {len(self.criteria)} criteria hold{''.join(broken)}"
        return Finding(
            kept / len(self.criteria), text, {"tools": tools, "seen": listed_names(counts)}
        )


@scorer("forbidden_tools")
@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenTools(BaseScorer):
    """Share of forbidden patterns that no call matches. 1 (none was called) is best, range 0-1.

    1 - matched patterns / patterns. Details: `broken` (patterns), `calls` (positions).

    Attributes:
        patterns: glob patterns over tool names.

    Example:
        {type: forbidden_tools, patterns: ["delete_*"]}

    >>> from otel_eval.testing import call, trajectory
    >>> ForbiddenTools(patterns=patterns("patterns", ["delete_*", "pay"]))(
    ...     trajectory(call("delete_user"))
    ... ).value
    0.5
    """

    patterns: tuple[str, ...] = field(metadata=reads(patterns))

    def requires(self) -> Requirements:
        """Calls; the patterns name forbidden tools."""
        return Requirements(tools=ToolNames(forbidden=self.patterns))

    def find(self, trajectory: Trajectory) -> Finding:
        """Look for calls of forbidden tools."""
        names = {call.name for call in trajectory.calls}
        broken = [each for each in self.patterns if any(map(name_matcher(each), names))]
        matches = name_matcher(*broken)
        calls = [
            (call.name, position)
            for position, call in enumerate(trajectory.calls)
            if matches(call.name)
        ]
        text = f"called: {listed(calls)}" if calls else "no forbidden tool was called"
        details = {
            "broken": broken,
            "calls": [position for _, position in calls],
            "seen": seen(trajectory.calls),
        }
        total = len(self.patterns)
        return Finding((total - len(broken)) / total, text, details)


@scorer("required_tools")
@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredTools(BaseScorer):
    """Share of required patterns that some call matches. 1 (all appear) is best, range 0-1.

    Matched patterns / patterns. Details: `missing` (patterns).

    Attributes:
        patterns: glob patterns over tool names.

    Example:
        {type: required_tools, patterns: [verify_identity]}

    >>> from otel_eval.testing import call, trajectory
    >>> RequiredTools(patterns=patterns("patterns", ["search_*", "pay"]))(
    ...     trajectory(call("search_web"))
    ... ).explanation
    'never called: pay'
    """

    patterns: tuple[str, ...] = field(metadata=reads(patterns))

    def requires(self) -> Requirements:
        """Calls; the patterns name required tools."""
        return Requirements(tools=ToolNames(required=self.patterns))

    def find(self, trajectory: Trajectory) -> Finding:
        """Look for patterns that no call matches; one that was refused does not count."""
        names = {
            call.name
            for call in trajectory.calls
            if call.error is None or call.error.type != REFUSED
        }
        missing = [each for each in self.patterns if not any(map(name_matcher(each), names))]
        text = (
            f"never called: {', '.join(missing)}" if missing else "every required tool was called"
        )
        total = len(self.patterns)
        return Finding(
            (total - len(missing)) / total,
            text,
            {"missing": missing, "seen": seen(trajectory.calls)},
        )


@scorer("step_efficiency")
@dataclass(frozen=True, slots=True, kw_only=True)
class StepEfficiency(BaseScorer):
    """How far a run stayed within its budgets. 1 (within all) is best, range 0-1.

    Product of min(1, budget / used) over the budgets given, at least one. Details: `used` and
    `budget` for each. Skipped: `max_tokens` is given and some model call recorded no tokens;
    `max_model_calls` is given and the instrumentation records no model calls; `max_calls` is given
    and the calls are unknown.

    Attributes:
        max_calls: budget of tool calls.
        max_model_calls: budget of model calls.
        max_tokens: budget of input and output tokens.

    Example:
        {type: step_efficiency, max_calls: 10, max_tokens: 20000}

    >>> from otel_eval.testing import call, trajectory
    >>> StepEfficiency(max_calls=1)(trajectory(call("a"), call("b"))).value
    0.5
    """

    max_calls: int | None = field(default=None, metadata=reads(optional(count("calls", 10))))
    max_model_calls: int | None = field(
        default=None, metadata=reads(optional(count("model calls", 10)))
    )
    max_tokens: int | None = field(default=None, metadata=reads(optional(count("tokens", 20000))))

    def requires(self) -> Requirements:
        """Calls and the sums of tokens, each only if it has a budget."""
        needs = frozenset[str]() if self.max_tokens is None else frozenset({"tokens"})
        return Requirements(needs=needs, calls=self.max_calls is not None)

    def prepare(self) -> None:
        """Check that at least one budget is given."""
        if self.max_calls is None and self.max_model_calls is None and self.max_tokens is None:
            raise ConfigError(
                "max_calls: missing; give at least one of max_calls, max_model_calls and max_tokens"
            )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Multiply budget / used of each budget that is exceeded."""
        value, details, over = 1.0, {}, []
        for noun, budget, used in self._budgets(trajectory):
            if used is None:
                return Skipped(f"{noun} not recorded", reason="not_recorded")
            details[noun] = {"used": used, "budget": budget}
            if used > budget:
                value *= budget / used
                over.append(f"{used} {noun}, budget {budget}")
        return Finding(value, "; ".join(over) or "within every budget", details)

    def _budgets(self, run: Trajectory) -> list[tuple[str, int, int | None]]:
        inputs, outputs = run.input_tokens, run.output_tokens
        used = (
            ("calls", self.max_calls, len(run.calls)),
            # 0 means that they were not recorded: every agent makes model calls, and many
            # instrumentations record none.
            ("model calls", self.max_model_calls, run.model_calls or None),
            (
                "tokens",
                self.max_tokens,
                None if inputs is None or outputs is None else inputs + outputs,
            ),
        )
        return [(noun, budget, number) for noun, budget, number in used if budget is not None]


@scorer("tool_errors")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolErrors(BaseScorer):
    """Share of calls without error. 1 (none failed) is best, range 0-1.

    1 - failed calls / calls. Details: `failed`, `total`, `errors` [{tool, actual, type}], where
    `actual` is the call's position. Skipped: no call; a call that may have failed, because its
    instrumentation shows some failures in results only and its result was not recorded.

    Example:
        {type: tool_errors, threshold: 1.0}

    >>> from otel_eval.testing import call, trajectory
    >>> ToolErrors()(trajectory(call("search"), call("open", error="404"))).explanation
    '1 of 2 calls failed: open (1)'
    """

    def requires(self) -> Requirements:
        """Calls, and of each whether it failed."""
        return Requirements(failures=True)

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Count the failed calls."""
        calls = trajectory.calls
        if not calls:
            return Skipped("no tool call")
        failed = [(call, position) for position, call in enumerate(calls) if call.error]
        errors = [
            {"tool": call.name, "actual": at, "type": call.error.type}
            for call, at in failed
            if call.error
        ]
        text = f"{len(failed)} of {len(calls)} calls failed"
        if failed:
            text += f": {listed([(call.name, position) for call, position in failed])}"
        details = {"failed": len(failed), "total": len(calls), "errors": errors}
        return Finding((len(calls) - len(failed)) / len(calls), text, details)


@scorer("error_recovery")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecovery(BaseScorer):
    """Share of failed calls that were followed by a success of the same tool. 1 is best, range 0-1.

    Recovered / failed. Details: `recovered`, `lost` (positions of failed calls). Skipped: no call
    failed; a call that may have failed, as for `tool_errors`.

    Attributes:
        within: how many calls later the success may come; left out: any later call.

    Example:
        {type: error_recovery, within: 3}

    >>> from otel_eval.testing import call, trajectory
    >>> ErrorRecovery(within=1)(
    ...     trajectory(call("open", error="404"), call("search"), call("open"))
    ... ).value
    0.0
    """

    within: int | None = field(default=None, metadata=reads(optional(count("calls", 3))))

    def requires(self) -> Requirements:
        """Calls, and of each whether it failed."""
        return Requirements(failures=True)

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Look from each failure for the next success of its tool, from the last call backwards."""
        succeeded: dict[str, int] = {}  # tool → the nearest success after the position
        recovered: list[int] = []
        lost: list[int] = []
        for position in range(len(trajectory.calls) - 1, -1, -1):
            call = trajectory.calls[position]
            if call.error is None:
                succeeded[call.name] = position
                continue
            success = succeeded.get(call.name)
            near = success is not None and (
                self.within is None or success - position <= self.within
            )
            (recovered if near else lost).append(position)
        if not recovered and not lost:
            return Skipped("no call failed")
        text = f"{len(recovered)} of {len(recovered) + len(lost)} failed calls recovered"
        if lost:
            names = [(trajectory.calls[position].name, position) for position in reversed(lost)]
            text += f"; not: {listed(names)}"
        details = {"recovered": recovered[::-1], "lost": lost[::-1]}
        return Finding(len(recovered) / (len(recovered) + len(lost)), text, details)
