"""What is expected of a run's calls, and what of them is compared.

Knows names, groups and what is prepared once for every run; knows no actual call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.model import UNRECORDED
from otel_eval.native import extension
from otel_eval.scorers.agreement import Agreement
from otel_eval.scorers.subsequence import Prepared, prepare

__all__ = ["Comparison", "Expectation", "Expected"]

_matching: Final = extension("_matching")


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected call. `arguments` and `result` are `UNRECORDED` where the expectation does not name them."""

    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected calls in order, prepared once. `groups` are the positions that may come in any order."""

    calls: tuple[Expected, ...]
    groups: tuple[range, ...]
    prepared: Prepared = field(init=False, repr=False, compare=False)
    names: Any = field(init=False, repr=False, compare=False)  # prepared for the shortcut in C; None: there is none
    bare: bool = field(init=False, repr=False, compare=False)  # no call names arguments or a result
    nested: bool = field(init=False, repr=False, compare=False)  # some group has more than one member

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", prepare([call.name for call in self.calls]))
        object.__setattr__(self, "names", None if _matching is None else _matching.names(self.prepared.names))
        named = any(call.arguments is not UNRECORDED or call.result is not UNRECORDED for call in self.calls)
        object.__setattr__(self, "bare", not named)
        object.__setattr__(self, "nested", len(self.groups) < len(self.calls))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What beside the names is compared: arguments by an agreement, results by equality."""

    arguments: Agreement | None = None
    results: bool = False

    @property
    def names_only(self) -> bool:
        """Whether nothing is."""
        return self.arguments is None and not self.results
