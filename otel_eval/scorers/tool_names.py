"""Names of tools: how explanations list them, and which names in policies no run uses.

Most names that never occur are misspelt, and a policy with such a name has no effect. Values of
arguments and results never appear in explanations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from functools import reduce
from operator import add, or_
from typing import Any, Final

from otel_eval.errors import nearest, printable
from otel_eval.globs import glob_matcher
from otel_eval.model import HOSTED_TOOLS, SpanRef, ToolCall, Trajectory
from otel_eval.records import record

_MOST_LISTED: Final = 8
_MOST_CALLED: Final = 8  # names of tools in a warning
_LONGEST_NAME: Final = 60
_MOST_SEEN: Final = 50


def shortened(text: str, limit: int) -> str:
    """The text, cut to at most `limit` characters; "…" marks the cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tool(name: str) -> str:
    """A tool's name, cut to 60 characters."""
    return shortened(name, _LONGEST_NAME)


def numbered(name: str, position: int, noun: str = "call") -> str:
    """A call by its place and name, `call 3 (open)`; positions count from 0, places from 1."""
    return f"{noun} {position + 1} ({tool(name)})"


def listed(items: Sequence[tuple[str, int]], noun: str = "call") -> str:
    """Names with positions: `call 1 (search), call 4 (open) and 2 more`."""
    first = [numbered(name, position, noun) for name, position in items[:_MOST_LISTED]]
    return some_of(first, len(items))


def some_of(texts: Sequence[str], total: int) -> str:
    """The first of `total` texts, and how many more there are: `a, b and 2 more`."""
    unlisted = total - len(texts)
    return ", ".join(texts) + (f" and {unlisted} more" if unlisted else "")


def name_matcher(*patterns: str) -> Callable[[str], bool]:
    """A function that is true for the names of tools that one of the patterns matches; names of
    tools that a provider runs also without `_call`.
    """
    matches = glob_matcher(*patterns)
    return lambda name: bool(
        matches(name) or (name in HOSTED_TOOLS and matches(name.removesuffix("_call")))
    )


def refused(calls: Iterable[ToolCall]) -> str:
    """A note that names the calls that the framework refused to run, "" if there is none."""
    names = dict.fromkeys([call.name for call in calls if call.refused])
    return f"; refused: {', '.join(map(tool, [*names][:_MOST_LISTED]))}" if names else ""


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seen(calls: Iterable[ToolCall | SpanRef]) -> list[str]:
    """The distinct names, sorted, at most 50: what a misspelt name of a policy is compared with."""
    return listed_names({call.name for call in calls})


def listed_names(names: Iterable[str]) -> list[str]:
    """Sort distinct names, cut long ones, and return at most 50."""
    return [
        name if len(name) <= _LONGEST_NAME else tool(name) for name in sorted(names)[:_MOST_SEEN]
    ]


ENOUGH_RUNS: Final = 1000
"""Runs after which a required tool that never occurred is reported."""

_CHECK_AFTER: Final = (1, 10, 100, ENOUGH_RUNS)  # run counts at which misspelt names are looked for
_MOST_TRACKED: Final = 1000
_LONGEST_TRACKED: Final = 256  # characters of a name, which is kept until the process ends
_LEAST_SIMILARITY: Final = 0.75


@record
class ToolNames:
    """The names, or glob patterns, of tools in a scorer's parameters.

    Attributes:
        required: a run without a call of them cannot reach the best score.
        optional: other names, whose absence from a run does not matter.
        forbidden: a run without a call of them can reach the best score, so they are never reported
            as unused.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __or__(self, other: ToolNames) -> ToolNames:
        return ToolNames(*map(add, astuple(self), astuple(other)))


@dataclass(slots=True)
class _Evaluation:
    """The tool names in the scorers of one evaluation, and the tools that its runs called."""

    names: ToolNames
    runs: int = 0
    seen: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)

    def warnings(self, evaluation: str, *, never: bool) -> list[str]:
        """A warning for each name that no call had and that was not reported yet: where it
        resembles a called tool that no name matches, and with `never` each required name.
        """
        warnings = []
        names = (*self.names.required, *self.names.optional)
        unmentioned = sorted(
            seen
            for seen in self.seen
            if not any(_matches(name, seen) for name in (*names, *self.names.forbidden))
        )
        for name in dict.fromkeys(names):
            if name in self.reported or any(_matches(name, seen) for seen in self.seen):
                continue
            near = nearest(name, unmentioned, alike=_LEAST_SIMILARITY)
            if near is None and not (never and name in self.names.required):
                continue
            self.reported.add(name)
            remedy = f"; did you mean `{near}`?" if near else _list_called(self.seen)
            warnings.append(
                printable(
                    f"`{name}` was never called{remedy} (evaluation {evaluation},"
                    f" {plural(self.runs, 'run')})"
                )
            )
        return warnings


class ToolNameCheck:
    """Compares the names in policies with the tools that runs called, and reports each suspicious
    name once.

    Args:
        scorers: the scorers of each evaluation, by its name.
        live: whether the input is endless: then names are reported as soon as they are suspicious,
            at the latest after `ENOUGH_RUNS` runs, and further runs are ignored. Otherwise `finish`
            reports all of them.
    """

    def __init__(self, scorers: Mapping[str, Iterable[Any]], *, live: bool) -> None:
        self._evaluations: Final = {
            key: _Evaluation(names)
            for key, names in zip(scorers, map(tool_names_of, scorers.values()), strict=True)
            if names.required or names.optional
        }
        self._live: Final = live

    def observe(self, trajectory: Trajectory, evaluations: Iterable[str]) -> list[str]:
        """Count a run for the evaluations that match it, and return the warnings that are due,
        usually none.

        Runs whose calls are not all known are ignored.
        """
        if trajectory.incomplete or trajectory.calls_unknown:
            return []
        due: list[str] = []
        for name in evaluations:
            evaluation = self._evaluations.get(name)
            if evaluation is None or (self._live and evaluation.runs >= ENOUGH_RUNS):
                continue
            evaluation.runs += 1
            if len(evaluation.seen) < _MOST_TRACKED:
                evaluation.seen.update(
                    [shortened(call.name, _LONGEST_TRACKED) for call in trajectory.calls]
                )
            if self._live and evaluation.runs in _CHECK_AFTER:
                due += evaluation.warnings(name, never=evaluation.runs == ENOUGH_RUNS)
        return due

    def finish(self) -> list[str]:
        """The warnings at the end of the input; for live input only those about names that resemble
        a called tool.
        """
        return [
            warning
            for name, evaluation in self._evaluations.items()
            if evaluation.runs
            for warning in evaluation.warnings(name, never=not self._live)
        ]


def _list_called(seen: set[str]) -> str:
    if not seen:
        return "; no tool was called at all"
    return f"; called were {some_of(sorted(seen)[:_MOST_CALLED], len(seen))}"


def _matches(name: str, seen: str) -> bool:
    return name == seen or fnmatchcase(seen, name)


def tool_names_of(scorers: Iterable[Any]) -> ToolNames:
    """The names in the parameters of these scorers; a user's scorer may have an attribute
    `tool_names` as well.
    """
    named = [getattr(scorer, "tool_names", None) for scorer in scorers]
    return reduce(or_, [names for names in named if isinstance(names, ToolNames)], ToolNames())
