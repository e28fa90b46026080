"""Scorers that users write as functions, and what may come back from one.

Knows how to call a function and to judge what it returns; knows no registry. It starts no thread: a coroutine is run
to its end where no event loop runs in the calling thread; where one runs, await `FunctionScorer.evaluate` instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from otel_eval.model import Failed, Outcome, Scored, Skipped, Trajectory
from otel_eval.scorers.built_in import BuiltIn, Finding
from otel_eval.scorers.coroutines import completed, is_awaited
from otel_eval.scorers.outcomes import failed_by, in_range, outcome_of

__all__ = ["FunctionScorer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionScorer(BuiltIn):
    """A function as a scorer, inside the frame that every scorer has.

    Attributes:
        kind, edition, reading, about_calls: its type, version, needs, and whether it reads calls.
        function: takes a trajectory and the `arguments` by keyword; may be a coroutine function.
        decides: the threshold was given, so that it also decides over a `Scored` that the function made itself.
    """

    kind: str
    edition: str = "1"
    reading: frozenset[str] = frozenset()
    about_calls: bool = True
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    decides: bool = False

    @property
    def type(self) -> str:  # type: ignore[override] # what is fixed for a class is a field of this one
        """The name it was registered under."""
        return self.kind

    @property
    def version(self) -> str:  # type: ignore[override] # as above
        """As registered."""
        return self.edition

    @property
    def needs(self) -> frozenset[str]:
        """As registered."""
        return self.reading

    @property
    def asynchronous(self) -> bool:
        """Whether it is a coroutine function: such a one may take its time."""
        return is_awaited(self.function)

    @property
    def reads_calls(self) -> bool:
        """As registered."""
        return self.about_calls

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Call the function; a coroutine is run to its end."""
        try:
            returned = self.function(trajectory, **self.arguments)
            if inspect.iscoroutine(returned):
                returned = completed(returned)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything; that is an outcome
            return failed_by(error)
        return self._understood(returned)

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        """The outcome, for callers inside a running event loop."""
        skipped = self.skips(trajectory)
        if skipped is not None:
            return skipped
        try:
            returned = self.function(self.kept(trajectory), **self.arguments)
            if inspect.isawaitable(returned):
                returned = await returned
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            return failed_by(error)
        return self.judged(self._understood(returned))

    def _understood(self, returned: Any) -> Finding | Outcome:
        if isinstance(returned, Scored | Skipped | Failed):
            outcome = outcome_of(returned, self.type)
            if isinstance(outcome, Scored) and (self.strict or self.decides):
                return Finding(outcome.value, outcome.explanation, outcome.details)
            return outcome
        if in_range(returned):
            return Finding(float(returned), "")
        if isinstance(returned, int | float):
            return Failed("ValueError", f"{self.type} returned {returned!r}, not a number in [0, 1]")
        return Failed("TypeError", f"{self.type} returned a {type(returned).__name__}, not an outcome, a number or a bool")
