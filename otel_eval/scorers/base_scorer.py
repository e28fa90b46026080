"""The base of all scorers (common parameters, reasons to skip, `strict`, `threshold`), and checks
of outcomes of users' scorers.

A single outcome that cannot be written as JSON would prevent the export of all results of its
report.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import combinations
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from otel_eval.errors import redacted_repr
from otel_eval.model import (
    Failed,
    ImmutableCall,
    ImmutableTrajectory,
    Outcome,
    Scored,
    Severity,
    Skipped,
    SkipReason,
    ToolCall,
    ToolError,
    Trajectory,
    Unnamed,
)
from otel_eval.records import make_immutable, replace
from otel_eval.scorers.parameters import Selection, Text
from otel_eval.scorers.tool_names import ToolNames, name_matcher, numbered, refused, tool
from otel_eval.validation import Flag, Record, Share

_REASONS: Final = get_args(SkipReason)


def checked_outcome(returned: object, who: str = "the scorer") -> Outcome:
    """Return a valid outcome unchanged, and for anything else a `Failed` that describes the
    problem.

    Args:
        who: the subject of the message.

    >>> checked_outcome(Scored(7, True)).message
    'the scorer returned the value 7, not a number in [0, 1]'
    """
    if not isinstance(returned, Scored | Skipped | Failed):
        return wrong_return(
            "TypeError", f"{who} returned {type(returned).__name__}, not an outcome"
        )
    if isinstance(returned, Scored) and not in_range(returned.value):
        return wrong_return(
            "ValueError", f"{who} returned the value {returned.value!r}, not a number in [0, 1]"
        )
    what = _invalid_part(returned)
    return returned if what is None else wrong_return("TypeError", f"{who} returned {what}")


def wrong_return(error_type: str, message: str) -> Failed:
    """The outcome of a scorer that returned an invalid value; the message describes the value
    without content.
    """
    return Failed(error_type, message, place=message)


def in_range(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    return isinstance(value, int | float) and 0 <= value <= 1


def _invalid_part(outcome: Any) -> str | None:
    """Describe the first part of an outcome that has the wrong type; None if there is none."""
    if not isinstance(outcome.passed, bool):
        return f"a {type(outcome.passed).__name__} as passed, not a bool"
    for key in ("error_type", "message") if isinstance(outcome, Failed) else ("explanation",):
        text = getattr(outcome, key)
        if not isinstance(text, str):
            return f"a {type(text).__name__} as {key}, not a text"
    # reasons are labels of metrics
    if isinstance(outcome, Skipped) and outcome.reason not in _REASONS:
        return f"a reason that is not one of {', '.join(_REASONS)}"
    return _invalid_details(outcome.details)


def _invalid_details(details: Any) -> str | None:
    """Describe the part of the details that cannot be written as JSON, without its value; None if
    there is none.
    """
    if not isinstance(details, Mapping):
        return f"a {type(details).__name__} as details, not a mapping"
    try:
        json.dumps(dict(details), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything
        return (
            f"details that are not JSON ({type(error).__name__}{_in_key(details)}); use texts,"
            " numbers, lists and mappings"
        )
    return None


def _in_key(details: Mapping[Any, Any]) -> str:
    """The first key whose value cannot be written as JSON, and the type of that value; "" if each
    value can.
    """
    for key, value in details.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except Exception:  # noqa: BLE001 - as above
            return f" in {redacted_repr(key)}, a {type(value).__name__}"
    return ""


class NoScore(Exception):
    """Raised by a scorer that cannot give a score; its caller returns `outcome` instead.

    Attributes:
        outcome: why there is no score.
    """

    def __init__(self, outcome: Skipped | Failed) -> None:
        super().__init__(outcome.message if isinstance(outcome, Failed) else outcome.explanation)
        self.outcome = outcome


def prefixed(outcome: Skipped | Failed, where: str, details: Mapping[str, Any]) -> Skipped | Failed:
    """Return the outcome of a part of a scorer as that of the scorer: with `where` before its text,
    and the given details.
    """
    if isinstance(outcome, Skipped):
        return Skipped(f"{where}{outcome.explanation}", outcome.reason, details)
    return replace(outcome, message=f"{where}{outcome.message}", details=details)


def too_large(why: str) -> Skipped:
    """The outcome if the evaluation of a trace would take more steps than are allowed."""
    return Skipped(f"too large: {why}", reason="too_large")


def failed_from(error: BaseException) -> Failed:
    """The outcome of a scorer that raised: the type of the error, and the line of the user's code
    that raised it.
    """
    return Failed(type(error).__name__, str(error), place=user_code_location(error))


_OURS: Final = str(Path(__file__).parents[1]) + "/"
_MACHINERY: Final = "<frozen importlib"


def user_code_location(error: BaseException) -> str:
    """`file:line` of the innermost frame in the file that this package called; "" if the error is
    not from a user's code.

    The innermost frame of all may be in a library; the line that called it is more useful.
    """
    frames = _frames(error)
    return (
        f"{frames[0][0]}:{[line for file, line in frames if file == frames[0][0]][-1]}"
        if frames
        else ""
    )


def describe_import_error(error: BaseException) -> str:
    """Describe an error raised by an import: its type, the missing module if there is one, and the
    line that failed.
    """
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}, line {error.lineno} of {error.filename}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        # of a URL the rest may be secret
        name = error.name if error.name and error.name.isidentifier() else "such attribute"
        return f"{kind}: {error.obj.__name__} has no {name}"
    missing = (
        f": no module named {error.name!r}"
        if isinstance(error, ModuleNotFoundError) and error.name
        else ""
    )
    frames = _frames(error)
    at = f", line {frames[-1][1]} of {frames[-1][0]}" if frames else ""
    raised_in = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1:]
    # for instance by `@scorer`
    refused = f": {error}" if raised_in and raised_in[0].startswith(_OURS) else ""
    return f"{kind}{missing}{at}{refused}"


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """File and line of each frame of the traceback that is neither ours nor the import
    machinery's.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return [
        (file, line)
        for file, line in frames
        if not file.startswith((_OURS, _MACHINERY)) and "/importlib/" not in file
    ]


_ROUNDING: Final = 1e-9  # rounding error of sums of weights


@dataclass(slots=True)  # not frozen: created for each run, at a third of the cost
class Finding:
    """What a scorer measured, before strict and threshold are applied. `value` is in [0, 1]."""

    value: float
    explanation: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a scorer reads of a run, and which unknown parts of a run make it skip the run.

    Attributes:
        needs: what must be read beyond names, times and errors of the calls, see `Scorer`.
        attributes: keys of the attributes that must be in `Trajectory.attributes`.
        calls: whether a run is skipped if some of its tool calls are unknown.
        failures: whether a run is skipped if it is unknown whether one of its calls failed.
        tools: the tools that the scorer's own parameters name, beside the common `tools`.
    """

    needs: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    calls: bool = True
    failures: bool = False
    tools: ToolNames = field(default=ToolNames())


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseScorer:
    """Base of the built-in scorers and of `FunctionScorer`.

    Attributes:
        name: the name in results; the type if left out.
        threshold: the least value that passes, from 0 to 1; `default_threshold` if left out.
        strict: `true` turns values below 1 into 0, and only 1 passes, whatever the threshold.
        tools: `{include: [patterns], exclude: [patterns]}` over tool names; other calls are removed
            before anything is measured.
    failed_calls: `include`, or `exclude` to leave out calls that failed; where it is unknown
            whether one failed, the run is skipped if that changes the score.
        severity: `error`, or `warn` to export results without their counting for the verdict of the
            run and for exit codes.
    """

    type: ClassVar[str]
    version: ClassVar[str] = "1"

    name: Text = ""
    threshold: Share | None = None
    strict: Flag = False
    tools: Annotated[Selection, Record()] = field(default=Selection())
    failed_calls: Literal["include", "exclude"] = "include"
    severity: Severity = "error"
    keeps: Callable[[str], bool] | None = field(init=False, repr=False, compare=False)
    _requires: Requirements = field(init=False, repr=False, compare=False)
    # `select_calls` removes no call
    _keeps_all: bool = field(init=False, repr=False, compare=False)
    # `applied_threshold`, computed once
    _least: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("keeps", self.tools.matcher())
        self._set("_keeps_all", self.keeps is None and self.failed_calls == "include")
        if self.threshold is None:
            self._set("threshold", self.default_threshold)
        self._set("_least", self.applied_threshold)
        if not self.name:
            self._set("name", self.type)
        self.prepare()
        self._set("_requires", self.requires())

    def _set(self, key: str, value: Any) -> None:
        object.__setattr__(self, key, value)

    def prepare(self) -> None:
        """Check the combination of parameters, and compute once what does not depend on a run.

        Raises:
            ConfigError: the parameters cannot be combined.
        """

    @property
    def default_threshold(self) -> float | None:
        """The threshold if none is given: 1, since a partly broken policy did not pass; None if the
        value does not decide.
        """
        return 1.0

    @property
    def applied_threshold(self) -> float | None:
        """The least value that passes, 1 with `strict`; None if the value does not decide."""
        return 1.0 if self.strict else self.threshold

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values of parameters that were left out, where they differ from those of the
        fields.
        """
        return {"threshold": self.default_threshold}

    def parameters_given(self) -> Mapping[str, Any]:
        """The parameters that differ from their defaults, apart from those that change no score:
        they are what makes two policies of one type different.
        """
        defaults = {**{key.name: _default_of(key) for key in fields(self)}, **self.defaults}
        return {
            key: value
            for key in parameters_of(type(self))
            if key not in _SCORELESS and (value := getattr(self, key)) != defaults[key]
        }

    def requires(self) -> Requirements:
        """What the scorer reads; called once, after `prepare`."""
        return Requirements()

    @property
    def reads_calls(self) -> bool:
        """Whether a run is skipped if some of its tool calls are unknown."""
        return self._requires.calls

    @property
    def needs(self) -> frozenset[str]:
        """What must be read beyond names, times and errors of the calls."""
        return self._requires.needs

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attributes that must be in `Trajectory.attributes`."""
        return self._requires.attributes

    @property
    def tool_names(self) -> ToolNames:
        """The tools that the parameters name."""
        return (
            ToolNames(optional=self.tools.include, forbidden=self.tools.exclude)
            | self._requires.tools
        )

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Hints at parameters that may not mean what the user intended; `otel-eval check` prints
        them.
        """
        return ()

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Measure a trajectory whose evidence is complete and whose calls are filtered.

        Raises:
            NoScore: there is nothing to measure, or it cannot be measured.
        """
        raise NotImplementedError

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run; equal trajectories give equal outcomes."""
        skipped = self.skip_common(trajectory)
        if skipped is not None:
            return skipped
        try:
            return self._scored(trajectory)
        except NoScore as ended:
            return ended.outcome
        except RecursionError:
            return Failed("RecursionError", "values are nested too deeply to be compared")

    def _scored(self, trajectory: Trajectory) -> Outcome:
        """The outcome of a run that has what the scorer requires.

        Where failed calls are left out and it is unknown whether some failed, it is scored for each
        way in which they may have; it is skipped if the scores differ, or there are too many ways.

        Raises:
            NoScore: there is nothing to measure, or it cannot be measured.
        """
        if self._keeps_all:
            return self._measured(trajectory)
        outcome = self._measured(self.select_calls(trajectory))
        if self.failed_calls == "exclude":
            skipped = self.skip_unknown_failures(trajectory)
            unknown = [at for at, call in enumerate(trajectory.calls) if call.failure_unknown]
            if skipped is not None and (
                len(unknown) > _MOST_UNKNOWN
                or not all(
                    _same_score(outcome, self._measured(self.select_calls(other)))
                    for other in _ways_to_fail(trajectory, unknown)
                )
            ):
                return skipped
        return outcome

    def _measured(self, trajectory: Trajectory) -> Outcome:
        finding = self.find(trajectory)
        if isinstance(finding, Finding) and finding.value < 1:
            finding.explanation += refused(trajectory.calls)
        return self.to_outcome(finding)

    def skip_common(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome of a run that lacks what the scorer requires; None if it can be measured."""
        if trajectory.incomplete:
            return Skipped(f"incomplete: {trajectory.incomplete}", reason="incomplete")
        if trajectory.waiting:
            return Skipped(f"waiting: {trajectory.waiting}", reason="waiting")
        if trajectory.too_large:
            return too_large(trajectory.too_large)
        if trajectory.calls_unknown and self.reads_calls:
            return Skipped(f"calls unknown: {trajectory.calls_unknown}", reason="calls_unknown")
        if trajectory.unseen_tools and self.reads_calls:
            unseen = self._unseen(trajectory)
            if unseen is not None:
                return unseen
        return self.skip_unknown_failures(trajectory) if self._requires.failures else None

    def _unseen(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome if a tool that the parameters name may have been called without a trace."""
        names = self.tool_names
        named = name_matcher(*names.required, *names.optional, *names.forbidden)
        hidden = next((name for name in sorted(trajectory.unseen_tools) if named(name)), None)
        if hidden is None:
            return None
        why = f"calls unknown: the instrumentation records no call of {tool(hidden)}"
        return Skipped(why, reason="calls_unknown")

    def skip_unknown_failures(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome of a run with a call of which it is unknown whether it failed; None if there
        is no such call.
        """
        of_spans = "spans" in self.needs and not self.reads_calls
        for position, call in enumerate(trajectory.calls):
            # A scorer of spans only removes the spans of failed calls; a call read from messages
            # has no span.
            if (
                call.failure_unknown
                and (call.span_id or not of_spans)
                and (self.keeps is None or self.keeps(call.name))
            ):
                why = (
                    f"whether {numbered(call.name, position)} failed is unknown: its result was not"
                    " recorded"
                )
                return Skipped(why, reason="not_recorded")
        return None

    def select_calls(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory without the calls that `tools` and `failed_calls` leave out, and without
        the spans of failed ones.
        """
        if self._keeps_all:
            return trajectory
        keeps, drop_failed = self.keeps, self.failed_calls == "exclude"
        calls = tuple(
            call
            for call in trajectory.calls
            if (keeps is None or keeps(call.name)) and not (drop_failed and call.error)
        )
        failed = {
            call.span_id for call in trajectory.calls if drop_failed and call.error and call.span_id
        }
        return replace(
            trajectory,
            calls=calls,
            spans=tuple(span for span in trajectory.spans if span.span_id not in failed),
        )

    def to_outcome(self, finding: Finding | Outcome) -> Outcome:
        """Convert a finding to an outcome, with `strict` and the threshold applied; an outcome is
        returned unchanged.
        """
        if not isinstance(finding, Finding):
            return finding
        value = finding.value
        if not 0 <= value <= 1:
            if not -_ROUNDING <= value <= 1 + _ROUNDING:  # also true of a NaN
                return Failed("ValueError", f"{value} is not in [0, 1]", finding.details)
            value = min(1.0, max(0.0, value))
        value += 0.0  # a float, and never -0.0
        if self.strict:
            value = 1.0 if value == 1 else 0.0
        threshold = self._least
        passed = self.passes(finding) if threshold is None else value >= threshold
        return Scored(value, passed, finding.explanation, finding.details)

    def passes(self, finding: Finding) -> bool:
        """Whether a run passes; called only if there is no threshold."""
        return False


_SCORELESS: Final = ("name", "include_content")


def parameters_of(scorer: type[BaseScorer]) -> dict[str, Field[Any]]:
    """The parameters of a built-in scorer by key."""
    return {key.name: key for key in fields(scorer) if key.init}


def _default_of(parameter: Field[Any]) -> Any:
    if parameter.default_factory is not MISSING:
        return parameter.default_factory()
    return parameter.default


_MOST_UNKNOWN: Final = 5  # calls: there are two to the power of this ways in which they may fail


def _ways_to_fail(trajectory: Trajectory, unknown: Sequence[int]) -> Iterator[Trajectory]:
    """The trajectory for each way in which at least one of the calls at these positions may have
    failed.
    """
    for number in range(1, len(unknown) + 1):
        for failed in combinations(unknown, number):
            calls = list(trajectory.calls)
            for at in failed:
                calls[at] = replace(calls[at], error=ToolError("unknown"))
            yield replace(trajectory, calls=tuple(calls))


def _same_score(one: Outcome, other: Outcome) -> bool:
    return (
        isinstance(one, Scored)
        and isinstance(other, Scored)
        and (one.value, one.passed) == (other.value, other.passed)
    )


def is_coroutine_function(function: object) -> bool:
    """Whether `function` is a coroutine function, or an object whose `__call__` is one."""
    call_method = getattr(type(function), "__call__", None)  # noqa: B004 - inspects it
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_method)


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop, and return its result.

    Raises:
        RuntimeError: an event loop runs in this thread; the coroutine is closed without having
            started.
    """
    # Imported only if a scorer is a coroutine function: importing asyncio takes longer than
    # importing this package.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError(
        "an event loop is running in this thread; await scorer.evaluate(trajectory) instead"
    )


def private_copy(trajectory: Trajectory, needs: frozenset[str]) -> Trajectory:
    """The trajectory for a user-defined scorer that reads `needs`: immutable, with copies of every
    JSON value that could be changed in place, and without tokens if it does not need them, so that
    its score does not depend on what else reads them.

    Arguments, results, input, output and attributes are shared by all scorers of a run. The cost is
    proportional to what was recorded; a value nested deeper than Python recurses raises
    `RecursionError`, which fails the scorer's result.
    """
    reads_tokens = "tokens" in needs
    copy = replace(
        trajectory,
        input_tokens=trajectory.input_tokens if reads_tokens else None,
        output_tokens=trajectory.output_tokens if reads_tokens else None,
        calls=tuple(map(_copy_call, trajectory.calls)),
        input=_copy_value(trajectory.input),
        output=_copy_value(trajectory.output),
        attributes=_copy_value(dict(trajectory.attributes)),
        resource=_copy_value(dict(trajectory.resource)),
    )
    return make_immutable(copy, ImmutableTrajectory)


def _copy_call(call: ToolCall) -> ToolCall:
    copy = replace(call, arguments=_copy_value(call.arguments), result=_copy_value(call.result))
    return make_immutable(copy, ImmutableCall)


def _copy_value(value: Any) -> Any:
    if isinstance(value, dict):
        copied = {key: _copy_value(member) for key, member in value.items()}
        return Unnamed(copied) if type(value) is Unnamed else copied
    return [_copy_value(member) for member in value] if isinstance(value, list) else value
