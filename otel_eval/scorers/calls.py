"""The scorers that compare a run's calls with expected ones: order, arguments, results, and the general form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from otel_eval.model import Outcome, Skipped, Trajectory
from otel_eval.scorers.alignment.expected import Comparison, Expectation, calls, names
from otel_eval.scorers.alignment.parallel_calls import TimedCall
from otel_eval.scorers.matching import MATCHES, MEASURES, Matching, arguments_mode
from otel_eval.scorers.spec.base_scorer import Finding
from otel_eval.scorers.spec.parameters import one_of, reads
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.tool_names import ToolNames

__all__ = ["ExecutionOrder", "ToolCallArgs", "ToolCallOrder", "ToolCallOutput", "TrajectoryMatch"]

_CALLS: Final = calls("arguments", "result")
_WITH_ARGUMENTS: Final = calls("arguments")
_WITH_RESULTS: Final = calls("result")


@scorer("execution_order")
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOrder(Matching):
    """How many of the expected tools (or nodes) were visited, by name. 1 is best, range 0-1.

    Weight of the alignment by names / number expected. Details: `matched`, `missing`, `extra`, `misplaced`. Skipped: `of:
    spans` in a run without any span.

    Attributes:
        match: `exact`, `in_order` or `any_order`.
        of: `tools`, or `spans`: all spans of the run by name, filtered by `tools`.

    Example:
        {type: execution_order, expected: [plan, search, answer], match: in_order}

    >>> from otel_eval.testing import call, trajectory
    >>> run = trajectory(call("a"), call("c"), call("b"))
    >>> ExecutionOrder(expected=names("expected", ["a", "b", "c"]))(run).value
    1.0
    >>> ExecutionOrder(expected=names("expected", ["a", "b", "c"]), match="in_order")(run).value
    0.6666666666666666
    """

    type: ClassVar[str] = "execution_order"

    expected: Expectation | None = field(default=None, metadata=reads(names))
    match: str = field(default="any_order", metadata=reads(one_of(*MATCHES)))
    of: str = field(default="tools", metadata=reads(one_of("tools", "spans")))

    @property
    def reads_calls(self) -> bool:
        """Only of tools."""
        return self.of == "tools"

    @property
    def needs(self) -> frozenset[str]:
        """The spans, if they are what is looked at."""
        return frozenset({"spans"}) if self.of == "spans" else frozenset()

    @property
    def named_tools(self) -> ToolNames:
        """The expected tools; spans are none."""
        return super(ExecutionOrder, self).named_tools if self.of == "tools" else ToolNames()

    def compared_calls(self, trajectory: Trajectory) -> Sequence[TimedCall]:
        """Calls, or spans of the names wanted."""
        if self.of == "tools":
            return trajectory.calls
        keeps = self.keeps
        return trajectory.spans if keeps is None else [span for span in trajectory.spans if keeps(span.name)]

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """As every matching scorer, but no span at all is no evidence."""
        if self.of == "spans" and not trajectory.spans:
            return Skipped("no spans recorded", reason="not_recorded")
        return Matching.find(self, trajectory)


@scorer("tool_call_order")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOrder(Matching):
    """How much of the expected order of tools was kept. 1 is best, range 0-1.

    Longest common subsequence of names / number expected; extra calls cost nothing. `strict: true`: 1 if the calls are exactly
    the expected ones in that order, else 0. Parallel calls may come in any order. Details: as `execution_order`.

    Example:
        {type: tool_call_order, expected: [search, [open, read], refund], threshold: 1.0}

    >>> from otel_eval.testing import call, trajectory
    >>> order = ToolCallOrder(expected=names("expected", ["search", "open"]))
    >>> order(trajectory(call("search"), call("wait"), call("open"))).value
    1.0
    """

    type: ClassVar[str] = "tool_call_order"

    expected: Expectation | None = field(default=None, metadata=reads(names))

    @property
    def match(self) -> str:
        """In order; exact where strict."""
        return "exact" if self.strict else "in_order"


@scorer("tool_call_args")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallArgs(Matching):
    """How many expected calls were made with the expected arguments, in any order. 1 is best, range 0-1.

    Weight of the best one-to-one assignment / number expected. Details: as `execution_order`, with the weight of each pair.
    Skipped: a same-named call did not record arguments that the expectation names.

    Attributes:
        arguments: how arguments agree: `exact`, `subset`, `superset`, `overlap`, or a list of dotted keys to compare.

    Example:
        {type: tool_call_args, expected: [{name: refund, arguments: {order: 17}}]}

    >>> from otel_eval.testing import call, trajectory
    >>> args = ToolCallArgs(expected=_WITH_ARGUMENTS("expected", [{"name": "open", "arguments": {"id": 1}}]))
    >>> args(trajectory(call("open", arguments={"id": 1, "page": 2}))).value
    1.0
    """

    type: ClassVar[str] = "tool_call_args"

    expected: Expectation | None = field(default=None, metadata=reads(_WITH_ARGUMENTS))
    arguments: str | tuple[str, ...] = field(default="subset", metadata=reads(arguments_mode))

    @property
    def match(self) -> str:
        """In any order."""
        return "any_order"

    @property
    def compared(self) -> Comparison:
        """Arguments."""
        return Comparison(arguments=self.arguments)


@scorer("tool_call_output")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutput(Matching):
    """How many expected calls gave the expected result, in any order. 1 is best, range 0-1.

    Weight of the best one-to-one assignment / number expected. Results are equal (`==`) after JSON text was decoded on both
    sides. Details: as `tool_call_args`. Skipped: a same-named call did not record a result that the expectation names.

    Example:
        {type: tool_call_output, expected: [{name: refund, result: {status: done}}]}

    >>> from otel_eval.testing import call, trajectory
    >>> output = ToolCallOutput(expected=_WITH_RESULTS("expected", [{"name": "add", "result": 3}]))
    >>> output(trajectory(call("add", result="3"))).value
    1.0
    """

    type: ClassVar[str] = "tool_call_output"

    expected: Expectation | None = field(default=None, metadata=reads(_WITH_RESULTS))

    @property
    def match(self) -> str:
        """In any order."""
        return "any_order"

    @property
    def compared(self) -> Comparison:
        """Results."""
        return Comparison(results=True)


@scorer("trajectory_match")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryMatch(Matching):
    """The general form: any match, any measure, arguments and results wherever the expectation names them. 1 is best.

    Weight of the alignment by `measure`, range 0-1. `missing: forbid` asks for a superset of what is expected, `extra: forbid`
    for a subset: a forbidden call gives 0. Details: as `execution_order`. Skipped: a same-named call did not record what the
    expectation names.

    Attributes:
        match: `exact`, `in_order` or `any_order`.
        measure: `recall`, `precision` or `f1`.
        arguments: how arguments agree: `exact`, `subset`, `superset`, `overlap`, or a list of dotted keys to compare.
        extra: `allow`, or `forbid`: the value is 0 where a call is extra.
        missing: `allow`, or `forbid`: the value is 0 where an expected call is missing.

    Example:
        {type: trajectory_match, expected: [search, answer], match: any_order, extra: forbid}

    >>> from otel_eval.testing import call, trajectory
    >>> subset = TrajectoryMatch(expected=_CALLS("expected", ["search", "open"]), measure="precision", extra="forbid")
    >>> subset(trajectory(call("search"))).value
    1.0
    """

    type: ClassVar[str] = "trajectory_match"

    expected: Expectation | None = field(default=None, metadata=reads(_CALLS))
    match: str = field(default="in_order", metadata=reads(one_of(*MATCHES)))
    measure: str = field(default="recall", metadata=reads(one_of(*MEASURES)))
    arguments: str | tuple[str, ...] = field(default="subset", metadata=reads(arguments_mode))
    extra: str = field(default="allow", metadata=reads(one_of("allow", "forbid")))
    missing: str = field(default="allow", metadata=reads(one_of("allow", "forbid")))

    @property
    def compared(self) -> Comparison:
        """All that the expectation names."""
        return Comparison(arguments=self.arguments, results=True)

    def weighed(self, value: float, missing: int, extra: int) -> float:
        """Nothing where something forbidden happened."""
        forbidden = (missing and self.missing == "forbid") or (extra and self.extra == "forbid")
        return 0.0 if forbidden else value
