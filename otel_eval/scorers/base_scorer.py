"""What every scorer shares: parameters, reasons to skip, `strict` and `threshold`; and checks of the outcomes of users' scorers.

One outcome that cannot be written as JSON would cost the other results of its report.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, ClassVar, Final, get_args

from otel_eval.errors import redacted_repr
from otel_eval.interfaces import constructor
from otel_eval.model import Failed, Outcome, Scored, Skipped, SkipReason, ToolCall, Trajectory
from otel_eval.scorers.parameters import Selection, flag, one_of, reads, selection, share, text
from otel_eval.scorers.tool_names import ToolNames, tool

_TEXTS: Final = {Scored: ("explanation",), Skipped: ("text",), Failed: ("error_type", "message")}
_REASONS: Final = get_args(SkipReason)


def checked_outcome(returned: Any, who: str = "the scorer") -> Outcome:
    """What was returned, if it is a sound outcome.

    Args:
        who: whose it is, for the message.

    >>> checked_outcome(Scored(7, True)).message
    'the scorer returned the value 7, not a number in [0, 1]'
    """
    texts = next((texts for kind, texts in _TEXTS.items() if isinstance(returned, kind)), None)
    if texts is None:
        return wrong_return("TypeError", f"{who} returned {type(returned).__name__}, not an outcome")
    if isinstance(returned, Scored) and not in_range(returned.value):
        return wrong_return("ValueError", f"{who} returned the value {returned.value!r}, not a number in [0, 1]")
    what = _wrong_part(returned, texts)
    if what is not None:
        return wrong_return("TypeError", f"{who} returned {what}")
    outcome: Outcome = returned
    return outcome


def wrong_return(error_type: str, message: str) -> Failed:
    """The outcome of a scorer that returned what is none; the message says what, without content."""
    return Failed(error_type, message, place=message)


def in_range(value: Any) -> bool:
    """Whether it is a number from 0 to 1."""
    return isinstance(value, int | float) and 0 <= value <= 1


def _wrong_part(outcome: Any, texts: tuple[str, ...]) -> str | None:
    passed = getattr(outcome, "passed", True)  # only a score has it
    if not isinstance(passed, bool):
        return f"a {type(passed).__name__} as passed, not a bool"
    for key in texts:
        text = getattr(outcome, key)
        if not isinstance(text, str):
            return f"a {type(text).__name__} as {key}, not a text"
    if isinstance(outcome, Skipped) and outcome.reason not in _REASONS:  # it is a label of metrics
        return f"a reason that is not one of {', '.join(_REASONS)}"
    return _wrong_details(outcome.details)


def _wrong_details(details: Any) -> str | None:
    """What of the details cannot be written as JSON, without its value."""
    if not isinstance(details, Mapping):
        return f"a {type(details).__name__} as details, not a mapping"
    try:
        json.dumps(dict(details), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - whatever its parts do when they are looked at
        return f"details that are not JSON ({type(error).__name__}{_where(details)}); use texts, numbers, lists and mappings"
    return None


def _where(details: Mapping[Any, Any]) -> str:
    """The first key whose value cannot be written, and the type of that value."""
    for key, value in details.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except Exception:  # noqa: BLE001 - as above
            return f" in {redacted_repr(key)}, a {type(value).__name__}"
    return ""


class NoScore(Exception):
    """Ends a scorer without a score; every scorer's frame makes the outcome of it.

    Attributes:
        outcome: why there is none.
    """

    def __init__(self, outcome: Skipped | Failed) -> None:
        super().__init__(outcome.text if isinstance(outcome, Skipped) else outcome.message)
        self.outcome = outcome


def prefixed(outcome: Skipped | Failed, where: str, details: Mapping[str, Any]) -> Skipped | Failed:
    """The outcome of a part as that of the whole: where it comes from stands before its text; the details are the whole's."""
    if isinstance(outcome, Skipped):
        return Skipped(f"{where}{outcome.text}", details, outcome.reason)
    return replace(outcome, message=f"{where}{outcome.message}", details=details)


def too_large(why: str) -> Skipped:
    """The outcome where the evaluation of a trace takes more steps than it may."""
    return Skipped(f"too large: {why}", reason="too_large")


def failed_from(error: BaseException) -> Failed:
    """The outcome of a scorer that raised: the type of the error, and where in the user's code it came from."""
    return Failed(type(error).__name__, str(error), place=user_code_location(error))


_OURS: Final = str(Path(__file__).parents[1]) + "/"
_MACHINERY: Final = "<frozen importlib"


def user_code_location(error: BaseException) -> str:
    """`file:line` of the innermost frame in the file that we called into; "" if the error is not from a user's code.

    The innermost frame of all may be in a library; the line that called it is more useful.
    """
    frames = _frames(error)
    return f"{frames[0][0]}:{[line for file, line in frames if file == frames[0][0]][-1]}" if frames else ""


def describe_import_error(error: BaseException) -> str:
    """The type of an error while a module was imported, the module that is missing, and the line that is to blame."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}, line {error.lineno} of {error.filename}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return f"{kind}: {error.obj.__name__} has no {error.name}"
    missing = f": no module named {error.name!r}" if isinstance(error, ModuleNotFoundError) and error.name else ""
    frames = _frames(error)
    place = f", line {frames[-1][1]} of {frames[-1][0]}" if frames else ""
    raised_in = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1:]
    refused = f": {error}" if raised_in and raised_in[0].startswith(_OURS) else ""  # by `@scorer`, for instance
    return f"{kind}{missing}{place}{refused}"


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """File and line of each frame of the traceback that is neither ours nor the import machinery's."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return [(file, line) for file, line in frames if not file.startswith((_OURS, _MACHINERY)) and "/importlib/" not in file]


_new_scored: Final = constructor(Scored)
_SLACK: Final = 1e-9  # what sums of weights may be off by


@dataclass(slots=True)  # not frozen: each run makes some, at a third of the cost
class Finding:
    """What a scorer measured, before strict and threshold are applied. `value` is in [0, 1]."""

    value: float
    explanation: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a scorer reads, and so what must be known of a run.

    Attributes:
        needs: what must be read beyond names, times and errors of the calls, see `Scorer`.
        attributes: those that must be in `Trajectory.attributes`.
        calls: whether there is no result where the instrumentation records no tool calls.
        failures: whether there is no result where it is unknown whether a call failed.
        tools: the tools that the scorer's own parameters name.
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
        name: the name that results carry; the type if left out.
        threshold: the least value that passes, from 0 to 1; left out, `default_threshold`.
        strict: `true` turns values below 1 into 0, and only 1 passes, whatever the threshold.
        tools: `{include: [patterns], exclude: [patterns]}` over tool names; other calls are left out before anything is measured.
        failed_calls: `include`, or `exclude` to leave out calls that failed.
    """

    type: ClassVar[str]
    version: ClassVar[str] = "1"

    name: str = field(default="", metadata=reads(text))
    threshold: float | None = field(default=None, metadata=reads(share))
    strict: bool = field(default=False, metadata=reads(flag))
    tools: Selection = field(default=Selection(), metadata=reads(selection))
    failed_calls: str = field(default="include", metadata=reads(one_of("include", "exclude")))
    keeps: Callable[[str], bool] | None = field(init=False, repr=False, compare=False)
    _requires: Requirements = field(init=False, repr=False, compare=False)
    _takes_all: bool = field(init=False, repr=False, compare=False)  # no call is left out
    _needs_failures: bool = field(init=False, repr=False, compare=False)  # it must be known of each call whether it failed
    _least: float | None = field(init=False, repr=False, compare=False)  # value that passes, as `applied_threshold`

    def __post_init__(self) -> None:
        self._set("keeps", self.tools.matcher())
        self._set("_takes_all", self.keeps is None and self.failed_calls == "include")
        if self.threshold is None:
            self._set("threshold", self.default_threshold)
        self._set("_least", self.applied_threshold)
        if not self.name:
            self._set("name", self.type)
        self.prepare()
        self._set("_requires", self.requires())
        self._set("_needs_failures", self._requires.failures or self.failed_calls == "exclude")

    def _set(self, key: str, value: Any) -> None:
        object.__setattr__(self, key, value)

    def prepare(self) -> None:
        """Check parameters against one another and derive what every run would derive again.

        Raises:
            ConfigError: the parameters do not go together.
        """

    @property
    def default_threshold(self) -> float | None:
        """1: a policy that is partly broken did not pass. None where something else than the value decides."""
        return 1.0

    @property
    def applied_threshold(self) -> float | None:
        """The least value that passes, `strict` considered; None where something else decides."""
        return 1.0 if self.strict else self.threshold

    def requires(self) -> Requirements:
        """What it reads; asked once, when everything is prepared."""
        return Requirements()

    @property
    def reads_calls(self) -> bool:
        """Whether it reads tool calls, so that it is skipped where the calls are unknown."""
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
        return ToolNames(optional=self.tools.include, forbidden=self.tools.exclude) | self._requires.tools

    @property
    def suggestions(self) -> tuple[str, ...]:
        """What may be meant otherwise than it is written; `otel-eval check` prints it."""
        return ()

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Measure a trajectory whose evidence is complete and whose calls are filtered.

        Raises:
            NoScore: there is nothing to measure, or no way to.
        """
        raise NotImplementedError

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run; equal trajectories give equal outcomes."""
        skipped = self.skip_common(trajectory)
        if skipped is not None:
            return skipped
        try:
            return self.to_outcome(self.find(trajectory if self._takes_all else self.select_calls(trajectory)))
        except NoScore as ended:
            return ended.outcome
        except RecursionError:
            return Failed("RecursionError", "values are nested too deeply to be compared")

    def skip_common(self, trajectory: Trajectory) -> Skipped | None:
        """Why a run cannot be measured at all, if so."""
        if trajectory.incomplete:
            return Skipped(f"incomplete: {trajectory.incomplete}", reason="incomplete")
        if trajectory.too_large:
            return too_large(trajectory.too_large)
        if trajectory.calls_unknown and self.reads_calls:
            return Skipped(f"calls unknown: {trajectory.calls_unknown}", reason="calls_unknown")
        return self._unsure(trajectory) if self._needs_failures else None

    def _unsure(self, trajectory: Trajectory) -> Skipped | None:
        """Skips a run with a call of which it is unknown whether it failed."""
        for position, call in enumerate(trajectory.calls):
            # A scorer of spans leaves out those of failed calls; a call from messages has none.
            if call.failure_unknown and (self.reads_calls or call.span_id) and (self.keeps is None or self.keeps(call.name)):
                why = f"whether {tool(call.name)} ({position}) failed is unknown: its result was not recorded"
                return Skipped(why, reason="not_recorded")
        return None

    def select_calls(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory without the calls that `tools` and `failed_calls` leave out."""
        if self._takes_all:
            return trajectory
        keeps, drop_failed = self.keeps, self.failed_calls == "exclude"
        calls = tuple(
            call for call in trajectory.calls if (keeps is None or keeps(call.name)) and not (drop_failed and call.error)
        )
        return replace(trajectory, calls=calls)

    def to_outcome(self, found: Finding | Outcome) -> Outcome:
        """A finding as an outcome: its value in [0, 1], strict and threshold applied."""
        if not isinstance(found, Finding):
            return found
        value = found.value
        if not 0 <= value <= 1:
            if not -_SLACK <= value <= 1 + _SLACK:  # also true of a NaN
                return Failed("ValueError", f"{value} is not in [0, 1]", found.details)
            value = min(1.0, max(0.0, value))
        value += 0.0  # a float, and never -0.0
        if self.strict:
            value = 1.0 if value == 1 else 0.0
        threshold = self._least
        passed = self.passes(found) if threshold is None else value >= threshold
        return _new_scored(value, passed, found.explanation, found.details)

    def passes(self, found: Finding) -> bool:
        """Whether a run passes where no threshold decides."""
        del found
        return False


def is_coroutine_function(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004 - not whether, but how


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns.

    Raises:
        RuntimeError: an event loop runs in this thread; then the coroutine was not begun.
    """
    # Loaded only where a scorer is a coroutine: asyncio costs more to import than this package.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError("an event loop is running in this thread; await scorer.evaluate(trajectory) instead")


def private_copy(trajectory: Trajectory) -> Trajectory:
    """The trajectory with copies of every JSON value that could be changed in place.

    Arguments, results, input, output and attributes are shared by all scorers of a run. The cost is proportional to
    what was recorded; a value nested deeper than Python recurses raises `RecursionError`, which fails the scorer's result.
    """
    return replace(
        trajectory,
        calls=tuple(map(_call, trajectory.calls)),
        input=_copied(trajectory.input),
        output=_copied(trajectory.output),
        attributes=_copied(dict(trajectory.attributes)),
        resource=_copied(dict(trajectory.resource)),
    )


def _call(call: ToolCall) -> ToolCall:
    if not isinstance(call.arguments, dict | list) and not isinstance(call.result, dict | list):
        return call
    return replace(call, arguments=_copied(call.arguments), result=_copied(call.result))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
