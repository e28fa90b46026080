"""The scorers that compare a run's calls with expected ones (order, arguments, results, the general
form), and their base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, ClassVar, Final, Literal

from otel_eval.errors import ConfigError
from otel_eval.model import Outcome, Skipped, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.alignment import Alignment
from otel_eval.scorers.alignment.expected import (
    CallList,
    CallListWithArguments,
    CallListWithResults,
    Comparison,
    Criterion,
    Expectation,
    SpanNameList,
    ToolNameList,
    TooManyPairs,
)
from otel_eval.scorers.base_scorer import Finding, ReferencedScorer, Requirements
from otel_eval.scorers.parameters import Name, literal_name
from otel_eval.scorers.partial_order import Concurrency, TimedCall
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames
from otel_eval.scorers.values import MODES
from otel_eval.validation import LIST, TEXT, Flag, ReadAs, Some, Words, one_of

Match = Literal["exact", "in_order", "any_order"]
Measure = Literal["recall", "precision", "f1"]
_NO_MODE: Final = Words(
    f"is not one of {', '.join(MODES)} or a list of keys; write e.g. subset or [user.id]"
)
ArgumentsMode = Literal["exact", "subset", "superset", "overlap"]
Mode = Annotated[
    str | tuple[str, ...],
    ReadAs(one_of({TEXT: Annotated[ArgumentsMode, _NO_MODE], LIST: Some[Name]})),
    _NO_MODE,
]
"""How arguments are compared: one of the modes, or the dotted keys to compare."""


@frozen_record
class Matching(ReferencedScorer):
    """Base of the scorers that compare calls with expected ones.

    Attributes:
        expected: what should have been called, see [Expectations](#expectations); required unless
            there is a `reference`.
        reference: a run's own expectation, see [References](#references); it replaces `expected`.
        concurrency: `respect` lets parallel calls come in any order; `ignore` takes them in order
            of start.
        include_content: `true` includes arguments and results in explanation and details.
    """

    expected: Expectation | None = None
    concurrency: Concurrency = "respect"
    include_content: Flag = False
    # the inline expectation, prepared
    criterion: Criterion | None = field(init=False, repr=False, compare=False)

    @property
    def match(self) -> Match:
        """How calls are aligned."""
        raise NotImplementedError

    @property
    def measure(self) -> Measure:
        """What the weight of the alignment is divided by."""
        return "recall"

    @property
    def compared(self) -> Comparison:
        """What is compared in addition to names."""
        return Comparison()

    def requires(self) -> Requirements:
        """Arguments and results where they are compared or shown, the reference's attribute, calls
        of the expected tools.
        """
        compared, criterion = self.compared._asdict(), self.criterion
        reads_names = criterion is not None and criterion.plain and not self.include_content
        return Requirements(
            outline_only=reads_names,
            needs=frozenset(part for part, how in compared.items() if how or self.include_content),
            tools=ToolNames(
                required=tuple(call.name for call in self.expected.calls) if self.expected else ()
            ),
        )

    def prepare(self) -> None:
        """Check that there is an expectation, inline or by reference."""
        if self.expected is None and self.reference is None:
            raise ConfigError(
                "expected: missing; list the expected calls, or name the attribute that does:"
                " reference: my.expected"
            )
        criterion = self.criterion_of(self.expected, "expected") if self.expected else None
        self._set("criterion", criterion)

    def criterion_of(self, expectation: Expectation, key: str = "reference") -> Criterion:
        """Prepare an expectation for comparison; `key` is where it stands.

        Raises:
            ConfigError: this scorer cannot have it.
        """
        return Criterion(expectation, self.compared)

    @property
    def compared_noun(self) -> str:
        """What an explanation calls a member of `compared_calls`."""
        return "call"

    def compared_calls(self, trajectory: Trajectory) -> Sequence[TimedCall]:
        """The calls, or the spans, that are compared with the expectation."""
        return trajectory.calls

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Align the calls with the expected ones, and compute the value and its explanation."""
        criterion = self.expectation("expected", trajectory, self.criterion, self.criterion_of)
        actual, match = self.compared_calls(trajectory), self.match
        expected, called = len(criterion.names), len(actual)
        try:
            alignment = Alignment(
                criterion,
                actual,
                any_order=match == "any_order",
                concurrency=self.concurrency == "respect",
            )
        except TooManyPairs:
            return Skipped(
                f"too many calls to be weighed: {expected} expected, {called} made",
                reason="too_large",
            )
        value = (
            float(alignment.is_exact)
            if match == "exact"
            else _ratio(alignment.weight, expected, called, self.measure)
        )
        value = self.adjusted(value, expected - len(alignment.pairs), called - len(alignment.pairs))
        return Finding(
            value, *alignment.explain(content=self.include_content, noun=self.compared_noun)
        )

    def adjusted(self, value: float, missing: int, extra: int) -> float:
        """Adjust the value to the numbers of missing and extra calls; the base class returns it
        unchanged.
        """
        return value


def _ratio(weight: float, expected: int, actual: int, measure: str) -> float:
    """The weight of an alignment divided as `measure` says."""
    # No expected and no actual calls agree completely; if only one side is empty, nothing agrees.
    if not expected or not actual:
        return float(expected == actual)
    if measure == "recall":
        return weight / expected
    return weight / actual if measure == "precision" else 2 * weight / (expected + actual)


@scorer("execution_order")
@frozen_record
class ExecutionOrder(Matching):
    """How many of the expected tools (or nodes) were visited, by name. 1 is best, range 0-1.

    Weight of the alignment by names / number expected. Details: `matched`, `missing`, `extra`,
    `misplaced`. Skipped: `of: spans` in a run without any span.

    Attributes:
        match: `exact`, `in_order` or `any_order`.
        of: `tools`, or `spans`: all spans of the run by name, filtered by `tools`.

    Example:
        {type: execution_order, expected: [plan, search, answer], match: in_order}

    >>> from otel_eval.testing import call, trajectory
    >>> run = trajectory(call("a"), call("c"), call("b"))
    >>> from otel_eval.scorers import create_scorer
    >>> spec = {"type": "execution_order", "expected": ["a", "b", "c"]}
    >>> create_scorer(spec)(run).value, create_scorer({**spec, "match": "in_order"})(run).value
    (1.0, 0.6666666666666666)
    """

    expected: SpanNameList | None = None
    match: Match = "any_order"
    of: Literal["tools", "spans"] = "tools"

    def requires(self) -> Requirements:
        """Calls of the expected tools; or spans, which are there even if tool calls are unknown."""
        required = Matching.requires(self)
        if self.of == "tools":
            return replace(required, needs=frozenset())
        return Requirements(needs=frozenset({"spans"}), calls=False)

    def criterion_of(self, expectation: Expectation, key: str = "reference") -> Criterion:
        """Prepare an expectation, whose names of tools are no patterns."""
        for call in expectation.calls if self.of == "tools" else ():
            try:
                literal_name(call.name)
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from None
        return Matching.criterion_of(self, expectation, key)

    @property
    def compared_noun(self) -> str:
        """What an explanation calls a visit."""
        return "span" if self.of == "spans" else "call"

    def compared_calls(self, trajectory: Trajectory) -> Sequence[TimedCall]:
        """The calls, or the spans whose names `tools` selects."""
        if self.of == "tools":
            return trajectory.calls
        keeps = self.keeps
        return (
            trajectory.spans
            if keeps is None
            else [span for span in trajectory.spans if keeps(span.name)]
        )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Compare as every matching scorer does; a run without any span is skipped."""
        if self.of == "spans" and not trajectory.spans:
            return Skipped("no spans recorded", reason="not_recorded")
        return Matching.find(self, trajectory)


@scorer("tool_call_order")
@frozen_record
class ToolCallOrder(Matching):
    """How much of the expected order of tools was kept. 1 is best, range 0-1.

    Longest common subsequence of names / number expected; extra calls cost nothing. `strict: true`:
    1 if the calls are exactly the expected ones in that order, else 0. Parallel calls may come in
    any order. Details: as `execution_order`.

    Example:
        {type: tool_call_order, expected: [search, [open, read], refund], threshold: 1.0}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> order = create_scorer({"type": "tool_call_order", "expected": ["search", "open"]})
    >>> order(trajectory(call("search"), call("wait"), call("open"))).value
    1.0
    """

    expected: ToolNameList | None = None

    @property
    def match(self) -> Match:
        """`in_order`; `exact` with `strict`."""
        return "exact" if self.strict else "in_order"


@scorer("tool_call_args")
@frozen_record
class ToolCallArgs(Matching):
    """How many expected calls were made with the expected arguments, in any order. 1 is best, range
    0-1.

    Weight of the best one-to-one assignment / number expected. Details: as `execution_order`, with
    the weight of each pair.
    Skipped: a same-named call did not record arguments that the expectation names.

    Attributes:
        arguments: how arguments agree: `exact`, `subset`, `superset`, `overlap`, or a list of
            dotted keys to compare.

    Example:
        {type: tool_call_args, expected: [{name: refund, arguments: {order: 17}}]}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> expected = [{"name": "open", "arguments": {"id": 1}}]
    >>> args = create_scorer({"type": "tool_call_args", "expected": expected})
    >>> args(trajectory(call("open", arguments={"id": 1, "page": 2}))).value
    1.0
    """

    match: ClassVar[Match] = "any_order"

    expected: CallListWithArguments | None = None
    arguments: Mode = "subset"

    @property
    def compared(self) -> Comparison:
        """Arguments, by the mode in `arguments`."""
        return Comparison(arguments=self.arguments)


@scorer("tool_call_output")
@frozen_record
class ToolCallOutput(Matching):
    """How many expected calls gave the expected result, in any order. 1 is best, range 0-1.

    Weight of the best one-to-one assignment / number expected. Results are equal (`==`) after JSON
    text was decoded on both sides. Details: as `tool_call_args`. Skipped: a same-named call did not
    record a result that the expectation names.

    Example:
        {type: tool_call_output, expected: [{name: refund, result: {status: done}}]}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> expected = [{"name": "add", "result": 3}]
    >>> output = create_scorer({"type": "tool_call_output", "expected": expected})
    >>> output(trajectory(call("add", result="3"))).value
    1.0
    """

    match: ClassVar[Match] = "any_order"
    compared: ClassVar[Comparison] = Comparison(results=True)

    expected: CallListWithResults | None = None


@scorer("trajectory_match")
@frozen_record
class TrajectoryMatch(Matching):
    """How well the calls match the expected ones, with a match and a measure of your choice. 1 is
    best.

    Arguments and results are compared wherever the expectation names them.

    Weight of the alignment by `measure`, range 0-1. `missing: forbid` asks for a superset of what
    is expected, `extra: forbid` for a subset: a forbidden call gives 0. Details: as
    `execution_order`. Skipped: a same-named call did not record what the expectation names.

    Attributes:
        match: `exact`, `in_order` or `any_order`.
        measure: `recall`, `precision` or `f1`.
        arguments: how arguments agree: `exact`, `subset`, `superset`, `overlap`, or a list of
            dotted keys to compare.
        extra: `allow`, or `forbid`: the value is 0 where a call is extra.
        missing: `allow`, or `forbid`: the value is 0 where an expected call is missing.

    Example:
        {type: trajectory_match, expected: [search, answer], match: any_order, extra: forbid}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> spec = {"type": "trajectory_match", "expected": ["search", "open"], "extra": "forbid"}
    >>> subset = create_scorer({**spec, "measure": "precision"})
    >>> subset(trajectory(call("search"))).value
    1.0
    """

    expected: CallList | None = None
    match: Match = "in_order"
    measure: Measure = "recall"
    arguments: Mode = "subset"
    extra: Literal["allow", "forbid"] = "allow"
    missing: Literal["allow", "forbid"] = "allow"

    @property
    def compared(self) -> Comparison:
        """Arguments and results, wherever the expectation names them."""
        return Comparison(arguments=self.arguments, results=True)

    def adjusted(self, value: float, missing: int, extra: int) -> float:
        """0 if a call is missing or extra and that is forbidden, else the value unchanged."""
        forbidden = (missing and self.missing == "forbid") or (extra and self.extra == "forbid")
        return 0.0 if forbidden else value
