"""Which agents a call was made by: the path of names from its run's agent down to the one that made it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from otel_eval.model import Kind
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace

__all__ = ["AgentPaths"]

_Path = tuple[list[int], tuple[str, ...]]
"""The places of agents, the nearest first and each negated so that they ascend, and their names, the nearest last."""


class AgentPaths:
    """Paths of agents; an agent without a name is left out, and one within another of the same name is the same agent."""

    def __init__(self, read: ClassifiedTrace, name: Callable[[int], str]) -> None:
        self._read, self._name = read, name
        self._named: Final[dict[int, int]] = {-1: -1}  # agent → the nearest one with a name, itself or above
        self._above: Final[dict[int, int]] = {}  # agent with a name → the nearest one above with another name
        self._paths: Final[dict[int, _Path]] = {}

    def of(self, place: int, first: int) -> tuple[str, ...]:
        """Names of the agents around a span that are at `first` or below it, the nearest `MAX_ENCLOSING` of them."""
        agent = place if self._read.kinds[place] is Kind.AGENT else self._read.agent_above[place]
        if agent not in self._paths:
            self._paths[agent] = self._path(agent)
        places, names = self._paths[agent]
        return names[len(names) - bisect_right(places, -first) :]

    def _path(self, agent: int) -> _Path:
        if len(self._named) == 1:
            self._link()
        places: list[int] = []
        named = self._named[agent]
        while named >= 0 and len(places) < MAX_ENCLOSING:
            places.append(-named)
            named = self._above[named]
        return places, tuple(self._name(-each) for each in reversed(places))

    def _link(self) -> None:
        """Find the agents above each; in ascending order, so those of the outer ones are known."""
        for agent in self._read.agents:
            above = self._named[self._read.agent_above[agent]]
            name = self._name(agent)
            self._named[agent] = agent if name else above
            if name:
                self._above[agent] = self._above[above] if above >= 0 and self._name(above) == name else above
