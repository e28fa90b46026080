"""Whatever is done to the receiver: every acknowledged run has exactly one result of each scorer,
and the right one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fault_rig import reference
from tests.faults.fault_rig.books import balance
from tests.faults.fault_rig.catalogue import SCENARIOS
from tests.faults.fault_rig.outcome import Scenario
from tests.faults.fault_rig.traffic import Run, run_of, trace_id


def test_two_references_agree() -> None:
    """Counted out by hand, and by `otel-eval replay`."""
    reference.agree([run_of(number) for number in range(500)])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.fault)
def test_a_fault_costs_no_score(scenario: Scenario, tmp_path: Path) -> None:
    """With small numbers; `make faults` does it with great ones."""
    books = scenario.play(tmp_path).books
    assert books.balanced, books


def rows(run: Run) -> list[dict[str, object]]:
    """The results that a run should have."""
    return [
        {
            "evaluation": "rig",
            "trace_id": trace_id(run.number).hex(),
            "scorer": scorer,
            "outcome": outcome,
            "value": value,
            "revision": 0,
            "result_id": f"{run.number} {scorer}",
        }
        for scorer, (outcome, value) in reference.by_hand(run).items()
    ]


def test_books_that_do_not_balance_are_noticed() -> None:
    """A missing row, a second id for one result, another value; a row written twice is only
    counted.
    """
    run = run_of(3)
    good = rows(run)
    assert balance([run], {3}, good).balanced
    assert balance([run], {3}, good[1:]).lost == 1
    assert balance([run], {3}, [*good, {**good[0], "result_id": "other"}]).duplicated == 1
    assert balance([run], {3}, [{**good[0], "value": 0.123}, *good[1:]]).wrong == 1
    assert balance([run], {3}, [*good, good[0]]).repeated == 1
    assert balance([run], set(), []).balanced
