"""Random runs and expectations, the same for every peer.

Small alphabets on purpose: repeated, missing, extra and swapped calls must be common.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from otel_eval.model import Scored
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

NAMES = st.lists(st.sampled_from(["search", "open", "save"]), max_size=6)
ARGUMENTS = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 1), max_size=2)
CALLS = st.lists(st.tuples(st.sampled_from(["search", "open"]), ARGUMENTS), max_size=5)
OFTEN = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def ours(made: list[Any], **specification: Any) -> float:
    """Our value for calls given as names or as (name, arguments)."""
    calls = [
        call(each, arguments={}) if isinstance(each, str) else call(each[0], arguments=each[1])
        for each in made
    ]
    outcome = create_scorer(specification)(trajectory(*calls))
    assert isinstance(outcome, Scored), outcome
    return outcome.value


def expected(calls: list[tuple[str, dict[str, int]]]) -> list[dict[str, Any]]:
    """Expected calls with their arguments."""
    return [{"name": name, "arguments": own} for name, own in calls]
