"""What a decision tree of ten expressions costs a run, against a scorer that does nothing and
against the expressions alone.

Run it by hand: ``python tests/bench/decision_tree.py``. The least of many rounds, in CPU time; the
ratios travel between machines, the microseconds do not. Wanted: 100 µs for ten nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from otel_eval import create_scorer
from otel_eval.model import Trajectory
from otel_eval.scorers.base_scorer import BaseScorer, Finding
from otel_eval.scorers.cel.binding import Bindings
from otel_eval.scorers.dag import Dag
from otel_eval.testing import call, trajectory

ROUNDS, TIMES = 40, 200


def decides(cel: str, then: str | int, score: int) -> dict[str, Any]:
    """A binary whose true leads on."""
    end = {"score": then} if isinstance(then, int) else {"then": then}
    return {
        "type": "binary",
        "cel": cel,
        "children": [{"verdict": True, **end}, {"verdict": False, "score": score}],
    }


NODES = {
    "names": {"type": "task", "cel": "calls.map(c, c.name)", "children": ["searched", "ordered"]},
    "searched": decides("'search' in names", "few", 0),
    "few": decides("calls.size() <= 25", "quick", 1),
    "quick": decides("run.duration_ms < 60000", "clean", 2),
    "clean": decides("calls.all(c, c.error == null)", "filled", 3),
    "filled": decides("calls.all(c, has(c.arguments.q))", "ordered", 4),
    "ordered": decides("names[0] == 'open'", "answered", 5),
    "answered": decides("run.output.size() > 3", "polite", 6),
    "polite": decides("run.output.contains('please')", "unrepeated", 7),
    "unrepeated": decides("!calls.exists(c, c.arguments.limit > 100)", 10, 8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(BaseScorer):
    """Scores without looking."""

    type: ClassVar[str] = "nothing"

    def find(self, trajectory: Trajectory) -> Finding:
        """The best."""
        return Finding(1.0, "")


def run_of(calls: int) -> Trajectory:
    """A run of so many calls with arguments and results."""
    made = [
        call(
            "search" if at % 2 else "open",
            arguments={"q": "weather", "limit": at},
            result={"hits": ["x" * 40] * 3},
        )
        for at in range(calls)
    ]
    return trajectory(*made, output="Here it is, please.", start_ns=0, end_ns=10**9)


def least_us(function: Callable[[], object]) -> float:
    """Microseconds of one call."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(TIMES):
            function()
        found.append((time.process_time() - began) / TIMES * 1e6)
    return min(found)


def main() -> None:
    """Print a line for each size of run."""
    scorer, nothing = create_scorer({"type": "dag", "root": "names", "nodes": NODES}), Nothing()
    assert isinstance(scorer, Dag)
    programs = [
        node.program
        for node in scorer.plan.nodes.values()
        if node.program is not None and not node.program.labels
    ]
    for calls in (2, 5, 20):
        run = run_of(calls)
        assert scorer(run).value == 1, scorer(run)  # type: ignore[union-attr]
        values = Bindings(scorer.reading, run).values

        def alone(values: Any = values) -> None:
            activation = programs[0]._environment.Activation(values)
            for program in programs:
                program._expression.eval(activation).plain_value()

        took = least_us(partial(scorer, run))
        floor, empty = least_us(alone), least_us(partial(nothing, run))
        print(
            f"10 nodes, {calls:2} calls: {took:.1f} us, {took / empty:4.1f} times an empty scorer"
            f" ({empty:.2f} us)"
        )
        print(
            f"    {took / floor:.1f} times CEL alone on {len(programs)} of the nodes"
            f" ({floor:.1f} us)"
        )


if __name__ == "__main__":
    main()
