"""LangChain `agentevals` and we agree, except where docs/how-to/migration.md says otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given

pytest.importorskip("agentevals", reason="agentevals is not installed; run make peers")
from agentevals.trajectory.match import create_trajectory_match_evaluator

sys.path.insert(0, str(Path(__file__).parent))
from runs import ARGUMENTS, CALLS, NAMES, OFTEN, expected, ours

pytestmark = pytest.mark.filterwarnings("default")
SUPERSET = {
    "type": "trajectory_match",
    "match": "any_order",
    "arguments": "exact",
    "missing": "forbid",
    "strict": True,
}
SUBSET = {**SUPERSET, "missing": "allow", "extra": "forbid", "measure": "precision"}
UNORDERED = {**SUPERSET, "extra": "forbid"}
STRICT = {**SUPERSET, "match": "exact"}


def theirs(mode, made, wanted, arguments="exact"):
    """One message for each call."""
    evaluate = create_trajectory_match_evaluator(
        trajectory_match_mode=mode, tool_args_match_mode=arguments
    )

    def messages(calls):
        return [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": "",
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(own)},
                    }
                ],
            }
            for name, own in calls
        ]

    return float(evaluate(outputs=messages(made), reference_outputs=messages(wanted))["score"])


@OFTEN
@given(CALLS, CALLS)
def test_strict_is_an_exact_match(made, wanted):
    assert ours(made, **STRICT, expected=expected(wanted)) == theirs("strict", made, wanted)


@OFTEN
@given(CALLS, CALLS)
def test_unordered_forbids_missing_and_extra_calls(made, wanted):
    assert ours(made, **UNORDERED, expected=expected(wanted)) == theirs("unordered", made, wanted)


@OFTEN
@given(CALLS, CALLS)
def test_superset_forbids_missing_calls(made, wanted):
    assume(wanted or not made)
    assert ours(made, **SUPERSET, expected=expected(wanted)) == theirs("superset", made, wanted)


@OFTEN
@given(CALLS, CALLS)
def test_subset_forbids_extra_calls(made, wanted):
    assume(made or not wanted)
    assert ours(made, **SUBSET, expected=expected(wanted)) == theirs("subset", made, wanted)


@OFTEN
@given(NAMES, NAMES)
def test_without_arguments_names_decide(made, wanted):
    assume(wanted or not made)
    calls = [(name, {"n": 1}) for name in made]
    assert ours(calls, **SUPERSET, expected=wanted) == theirs(
        "superset", calls, [(name, {}) for name in wanted], "ignore"
    )


def test_nothing_expected_is_a_superset_of_anything_there_and_of_nothing_here():
    made = [("search", {})]
    assert (theirs("superset", made, []), ours(made, **SUPERSET, expected=[])) == (1, 0)
    assert (theirs("subset", [], made), ours([], **SUBSET, expected=expected(made))) == (1, 0)


def test_the_first_call_that_fits_is_taken_there_and_the_best_one_here():
    made, wanted = (
        [("search", {"x": 1, "y": 1}), ("search", {"x": 1})],
        [("search", {"x": 1}), ("search", {"x": 1, "y": 1})],
    )
    assert theirs("superset", made, wanted, "superset") == 0
    assert ours(made, **{**SUPERSET, "arguments": "subset"}, expected=expected(wanted)) == 1


@pytest.mark.parametrize(
    ("mode", "specification", "theirs_is", "ours_is"),
    [
        ("superset", SUPERSET, "superset", "subset"),
        ("superset", SUPERSET, "subset", "superset"),
        ("strict", STRICT, "superset", "subset"),
        ("subset", SUBSET, "superset", "superset"),
        ("subset", SUBSET, "subset", "subset"),
        ("unordered", UNORDERED, "superset", "exact"),
        ("unordered", UNORDERED, "subset", "exact"),
    ],
)
@OFTEN
@given(ARGUMENTS, ARGUMENTS)
def test_whose_arguments_are_the_subset_depends_on_the_mode_there(
    mode, specification, theirs_is, ours_is, made, wanted
):
    value = ours(
        [("search", made)],
        **{**specification, "arguments": ours_is},
        expected=expected([("search", wanted)]),
    )
    assert value == theirs(mode, [("search", made)], [("search", wanted)], theirs_is)
