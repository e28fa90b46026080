"""How often tools were called: counts that must hold, tools that must and must not appear, budgets,
and calls that failed.

Error messages are content and never read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from otel_eval.errors import ConfigError
from otel_eval.model import Outcome, Skipped, ToolCall, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import BaseScorer, Finding, ReferencedScorer, Requirements
from otel_eval.scorers.parameters import Name, Patterns, is_pattern
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
from otel_eval.validation import LIST, OTHER, TEXT, Count, ReadAs, Words, own_words

_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEANT: Final = {
    "=<": "<=",
    "=>": ">=",
    "=!": "!=",
    "<>": "!=",
    "===": "==",
    "!==": "!=",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
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


def _operator_remedy(sign: object) -> str:
    """The operator that an unknown sign or word means, or an example of a criterion."""
    stripped = sign.strip() if isinstance(sign, str) else ""
    meant = stripped if stripped in _OPERATORS and stripped != sign else _MEANT.get(stripped)
    return f"did you mean {meant!r}?" if meant else _REMEDY


def _parse_criterion(text: str) -> tuple[str, int]:
    parts = _CRITERION_TEXT.fullmatch(text)
    if parts is None:
        begins = _SIGN_OR_WORD.match(text)
        raise own_words(
            "is not an operator (= == != < <= > >=) and a whole number, 0 or more;"
            f" {_operator_remedy(begins and begins[0])}"
        )
    return parts[1], int(parts[2])


def _check_operator(sign: object) -> object:
    if not isinstance(sign, str) or sign not in _OPERATORS:
        raise own_words(f"is not one of the operators = == != < <= > >=; {_operator_remedy(sign)}")
    return sign


def _criterion_kind(value: object) -> str | None:
    """The tag of a criterion, or of a list of criteria."""
    if isinstance(value, list | tuple):
        are_criteria = value and all(
            isinstance(member, list | tuple)
            or (isinstance(member, str) and any(map(str.isdigit, member)))
            for member in value
        )
        if are_criteria:
            return LIST
        return OTHER if len(value) == 2 else None
    return TEXT if isinstance(value, str) else None


_ONE_TEXT: Final = {"type": "string", "pattern": f"^{_CRITERION_TEXT.pattern}$"}
_Text = Annotated[str, AfterValidator(_parse_criterion), WithJsonSchema(_ONE_TEXT), Tag(TEXT)]
_Sign = Annotated[Literal["=", "==", "!=", "<", "<=", ">", ">="], BeforeValidator(_check_operator)]
_Number = Annotated[int, Field(strict=True, ge=0)]
_NO_CRITERION: Final = Words(f"is not an operator and a number; {_REMEDY}")
_Pair = Annotated[tuple[_Sign, _Number], _NO_CRITERION, Tag(OTHER)]
_Criterion = Annotated[_Text | _Pair, Discriminator(_criterion_kind), _NO_CRITERION]
_Several = Annotated[tuple[_Criterion, ...], Tag(LIST)]
_Written = Annotated[
    dict[
        Annotated[Name, Words('is not the name of a tool; write e.g. {"search": "<= 3"}')],
        Annotated[_Text | _Pair | _Several, Discriminator(_criterion_kind), _NO_CRITERION],
    ],
    Field(min_length=1),
    Words('is not a mapping of tools to criteria; write e.g. {search: "<= 3"}'),
]


def _call_counts(criteria_by_name: Mapping[str, Any]) -> tuple[CallCount, ...]:
    """The criteria by name as one list."""
    return tuple(
        CallCount(name, *criterion)
        for name, criteria in criteria_by_name.items()
        for criterion in (criteria if isinstance(criteria[0], tuple) else [criteria])
    )


_Criteria = Annotated[tuple[CallCount, ...], ReadAs(_Written, _call_counts)]


class _CountedTools(NamedTuple):
    """A tool or pattern, and the criteria for the number of its calls.

    Attributes:
        matches: a test of names; None if only the name itself matches.
        stated: the criteria in details: operators and numbers, which are lists if there are
            several.
    """

    tool: str
    criteria: tuple[CallCount, ...]
    matches: Callable[[str], object] | None
    stated: Mapping[str, Any]

    def count(self, counts: Mapping[str, int]) -> int:
        """The number of calls of the tools that match."""
        if self.matches is None:
            return counts.get(self.tool, 0)
        return sum(number for name, number in counts.items() if self.matches(name))

    def unmet(self, number: int) -> list[CallCount]:
        """The criteria that do not hold for a number of calls."""
        return [
            criterion
            for criterion in self.criteria
            if not _OPERATORS[criterion.operator](number, criterion.expected)
        ]

    def allows(self, number: int) -> bool:
        """Whether all criteria hold for a number of calls."""
        return not self.unmet(number)

    @property
    def least(self) -> int | None:
        """The least number of calls that is allowed; None if no number is."""
        # What is allowed changes only at the numbers that criteria name.
        numbers = {0, *(criterion.expected + by for criterion in self.criteria for by in (0, 1))}
        return next(filter(self.allows, sorted(numbers)), None)

    @property
    def greatest(self) -> int | None:
        """The greatest number of calls that is allowed; None if there is none, or no limit."""
        numbers = {
            max(0, criterion.expected + by) for criterion in self.criteria for by in (-1, 0, 1)
        }
        allowed = [number for number in sorted(numbers) if self.allows(number)]
        return None if not allowed or self.allows(max(numbers) + 1) else allowed[-1]


def _counted(criteria: Sequence[CallCount]) -> tuple[_CountedTools, ...]:
    """Criteria by tool, in order."""
    by_tool: dict[str, list[CallCount]] = {}
    for criterion in criteria:
        by_tool.setdefault(criterion.tool, []).append(criterion)
    return tuple(
        _CountedTools(
            name,
            tuple(criteria_of_tool),
            name_matcher(name) if is_pattern(name) else None,
            _stated(criteria_of_tool),
        )
        for name, criteria_of_tool in by_tool.items()
    )


def _stated(criteria: Sequence[CallCount]) -> dict[str, Any]:
    _, *columns = map(list, zip(*criteria, strict=True))
    operators, numbers = (column if len(column) > 1 else column[0] for column in columns)
    return {"operator": operators, "expected": numbers}


@scorer("tool_call_count")
@frozen_record
class ToolCallCount(ReferencedScorer):
    """Share of tools that were called as often as required. 1 is best, range 0-1.

    Tools whose criteria all hold / tools with criteria. A pattern counts the calls of all tools
    that match it, `"*"` every call. A tool that was never called counts 0; tools without a
    criterion are ignored. Skipped: with a `reference`, a run without criteria. Details: `tools`,
    per tool or pattern `actual`, `operator`, `expected`, `score`; lists for several criteria.

    Attributes:
        criteria: tool or pattern → `"<= 3"` or `["<=", 3]`, or a list of such criteria, which must
            all hold; operators `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, in quotes. Required unless
            there is a `reference`.
        reference: a run's own criteria, see [References](#references); they replace `criteria`.

    Example:
        {type: tool_call_count, criteria: {search: [">= 1", "<= 3"], "*": "<= 9"}}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> criteria = {"search": "<= 1", "open": [">", 0]}
    >>> count = create_scorer({"type": "tool_call_count", "criteria": criteria})
    >>> count(trajectory(call("search"), call("search"), call("open"))).explanation
    '1 of 2 criteria hold; search: 2 calls, not <= 1'
    """

    criteria: _Criteria | None = None
    counted: tuple[_CountedTools, ...] | None = field(init=False, repr=False, compare=False)

    def prepare(self) -> None:
        """Check that there are criteria, inline or by reference."""
        if self.criteria is None and self.reference is None:
            raise ConfigError(
                'criteria: missing; write e.g. criteria: {search: "<= 3"}, or name the attribute'
                " that holds them: reference: my.criteria"
            )
        self._set("counted", None if self.criteria is None else _counted(self.criteria))

    def requires(self) -> Requirements:
        """Calls. A tool is required if 0 calls break its criteria, forbidden if 0 calls meet them
        and 1 call breaks them.
        """
        tools = ToolNames()
        for counted in self.counted or ():
            names = (counted.tool,)
            tools |= (
                ToolNames(required=names)
                if not counted.allows(0)
                else ToolNames(optional=names)
                if counted.allows(1)
                else ToolNames(forbidden=names)
            )
        return Requirements(tools=tools, outline_only=True)

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Hints at criteria for one tool that no number of calls meets."""
        return tuple(
            f"criteria.{tool_count.tool}: no number of calls meets all of them; correct one of them"
            for tool_count in self.counted or ()
            if tool_count.least is None
        )

    def find(self, trajectory: Trajectory) -> Finding:
        """Count the calls of each tool and test the criteria."""
        counted = self.expectation("criteria", trajectory, self.counted, _counted)
        counts: dict[str, int] = {}
        for call in trajectory.calls:
            counts[call.name] = counts.get(call.name, 0) + 1
        tools: dict[str, Any] = {}
        broken = []
        for tool_count in counted:
            number = tool_count.count(counts)
            if unmet := tool_count.unmet(number):
                criteria = " and ".join(f"{sign} {expected}" for _, sign, expected in unmet)
                broken.append(
                    f"; {tool(tool_count.tool)}: {plural(number, 'call')}, not {criteria}"
                )
            score = 0.0 if unmet else 1.0
            tools[tool_count.tool] = {"actual": number, **tool_count.stated, "score": score}
        holding = len(counted) - len(broken)
        return Finding(
            holding / len(counted),
            f"{holding} of {len(counted)} criteria hold{''.join(broken)}",
            {"tools": tools, "seen": listed_names(counts)},
        )


@scorer("forbidden_tools")
@frozen_record
class ForbiddenTools(BaseScorer):
    """Share of forbidden patterns that no call matches. 1 (none was called) is best, range 0-1.

    1 - matched patterns / patterns. Details: `broken` (patterns), `calls` (positions).

    Attributes:
        patterns: glob patterns over tool names.

    Example:
        {type: forbidden_tools, patterns: ["delete_*"]}

    >>> from otel_eval.testing import call, trajectory
    >>> ForbiddenTools(patterns=("delete_*", "pay"))(trajectory(call("delete_user"))).value
    0.5
    """

    patterns: Patterns

    def requires(self) -> Requirements:
        """Calls; the patterns name forbidden tools."""
        return Requirements(tools=ToolNames(forbidden=self.patterns), outline_only=True)

    def find(self, trajectory: Trajectory) -> Finding:
        """Look for calls of forbidden tools."""
        names = {call.name for call in trajectory.calls}
        broken = [pattern for pattern in self.patterns if any(map(name_matcher(pattern), names))]
        matches = name_matcher(*broken)
        calls = [
            (call.name, position)
            for position, call in enumerate(trajectory.calls)
            if matches(call.name)
        ]
        total = len(self.patterns)
        return Finding(
            (total - len(broken)) / total,
            f"called: {listed(calls)}" if calls else "no forbidden tool was called",
            {
                "broken": broken,
                "calls": [position for _, position in calls],
                "seen": seen(trajectory.calls),
            },
        )


@scorer("required_tools")
@frozen_record
class RequiredTools(BaseScorer):
    """Share of required patterns that some call matches. 1 (all appear) is best, range 0-1.

    Matched patterns / patterns; a call that was refused before it ran does not count. Details:
    `missing` (patterns). Skipped: a pattern matches only failed calls of which it was not recorded
    whether they were refused.

    Attributes:
        patterns: glob patterns over tool names.

    Example:
        {type: required_tools, patterns: [verify_identity]}

    >>> from otel_eval.testing import call, trajectory
    >>> RequiredTools(patterns=("search_*", "pay"))(trajectory(call("search_web"))).explanation
    'never called: pay'
    """

    patterns: Patterns

    def requires(self) -> Requirements:
        """Calls; the patterns name required tools."""
        return Requirements(tools=ToolNames(required=self.patterns), outline_only=True)

    def _missing(self, calls: Iterable[ToolCall]) -> list[str]:
        """The patterns that no call matches."""
        names = {call.name for call in calls}
        return [pattern for pattern in self.patterns if not any(map(name_matcher(pattern), names))]

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Look for patterns that no call matches; one that was refused does not count."""
        missing = self._missing(call for call in trajectory.calls if call.refused is False)
        doubtful = [call for call in trajectory.calls if call.refused is None]
        if (
            doubtful
            and self._missing(call for call in trajectory.calls if not call.refused) != missing
        ):
            return Skipped(
                f"whether {tool(doubtful[0].name)} was refused before it ran is unknown: the answer"
                " to the request was not recorded",
                reason="not_recorded",
            )
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
@frozen_record
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

    max_calls: Count | None = None
    max_model_calls: Count | None = None
    max_tokens: Count | None = None

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
        for noun, budget, number in self._budgets(trajectory):
            if number is None:
                return Skipped(f"{noun} not recorded", reason="not_recorded")
            details[noun] = {"used": number, "budget": budget}
            if number > budget:
                value *= budget / number
                over.append(f"{number} {noun}, budget {budget}")
        return Finding(value, "; ".join(over) or "within every budget", details)

    def _budgets(self, run: Trajectory) -> list[tuple[str, int, int | None]]:
        """What has a budget: noun, budget and the number used, None where it was not recorded."""
        inputs, outputs = run.input_tokens, run.output_tokens
        budgets = (
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
        return [(noun, budget, number) for noun, budget, number in budgets if budget is not None]


@scorer("tool_errors")
@frozen_record
class ToolErrors(BaseScorer):
    """Share of calls without error. 1 (none failed) is best, range 0-1.

    1 - failed calls / calls. Details: `failed`, `total`, `errors` [{tool, actual, type}], where
    `actual` is the call's position. Skipped: no call; a call that may have failed, because its
    instrumentation shows some failures in results only and its result was not recorded.

    Example:
        {type: tool_errors, threshold: 1.0}

    >>> from otel_eval.testing import call, trajectory
    >>> ToolErrors()(trajectory(call("search"), call("open", error="404"))).explanation
    '1 of 2 calls failed: call 2 (open)'
    """

    def requires(self) -> Requirements:
        """Calls, and of each whether it failed."""
        return Requirements(failures=True, outline_only=True)

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Count the failed calls."""
        calls = trajectory.calls
        if not calls:
            return Skipped("no tool call")
        errors = [
            {"tool": call.name, "actual": position, "type": call.error.type}
            for position, call in enumerate(calls)
            if call.error
        ]
        failed, total = len(errors), len(calls)
        text = f"{failed} of {total} calls failed"
        if errors:
            failures = [(call.name, at) for at, call in enumerate(calls) if call.error]
            text += f": {listed(failures)}"
        details = {"failed": failed, "total": total, "errors": errors}
        return Finding((total - failed) / total, text, details)


@scorer("error_recovery")
@frozen_record
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

    within: Count | None = None

    def requires(self) -> Requirements:
        """Calls, and of each whether it failed."""
        return Requirements(failures=True, outline_only=True)

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
