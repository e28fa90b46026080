"""Counts, times, structure, failures, repeats, precedence, budgets and labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.model import Skipped
from otel_eval.scorers import create_scorer, summarize
from otel_eval.scorers.partial_order import parallel_groups
from otel_eval.scorers.recorded import covered, longest_chain
from otel_eval.testing import call, trajectory

MS = 1_000_000
ASKED = dict.fromkeys("0123456789", 1)
TENTH = call("a", arguments={**ASKED, **dict.fromkeys("123456789", 2)})


def run(*names, **facts):
    """A trajectory of calls by name."""
    return trajectory(*map(call, names), **facts)


def value(spec, trajectory):
    """The value of a score, or the text of a skip."""
    outcome = create_scorer(spec)(trajectory)
    return outcome.explanation if isinstance(outcome, Skipped) else pytest.approx(outcome.value)


def at(name, start, end, **fields):
    """A call with times in milliseconds."""
    return call(name, start_ns=start * MS, end_ns=end * MS, **fields)


def test_each_criterion_is_reported_with_what_was_and_what_should_be():
    """Operator and number are reported, too."""
    outcome = create_scorer({"type": "tool_call_count", "criteria": {"a": "<= 1", "b": ["==", 0]}})(
        run("a", "a")
    )
    assert outcome.details["tools"] == {
        "a": {"actual": 2, "operator": "<=", "expected": 1, "score": 0.0},
        "b": {"actual": 0, "operator": "==", "expected": 0, "score": 1.0},
    }
    assert outcome.explanation == "1 of 2 criteria hold; a: 2 calls, not <= 1"


@pytest.mark.parametrize(
    ("of", "expected"),
    [("run", 0.9), ("tools", 0.92), ("critical_path", 0.94), ("a", 0.95), ("z", "no call of z")],
)
def test_time_is_that_of_the_run_the_tools_the_critical_path_or_one_tool(of, expected):
    """The budget is 100 ms."""
    calls = trajectory(
        at("a", 1, 4),
        at("b", 2, 5),
        at("a", 6, 8),
        at("c", 7, 9),
        at("c", 9, 10),
        start_ns=0,
        end_ns=10 * MS,
    )
    assert value({"type": "time_cost", "max_ms": 100, "of": of}, calls) == expected


@pytest.mark.parametrize("of", ["run", "tools", "critical_path", "a"])
def test_no_time_at_all_is_the_whole_budget_left(of):
    """An end equal to the start is valid."""
    calls = trajectory(at("a", 5, 5), start_ns=5 * MS, end_ns=5 * MS)
    assert value({"type": "time_cost", "of": of}, calls) == 1.0


@pytest.mark.parametrize(
    ("spec", "calls"),
    [
        ({}, trajectory()),
        ({}, trajectory(start_ns=5)),
        ({}, trajectory(end_ns=5)),
        ({}, trajectory(start_ns=5, end_ns=3)),
        ({}, trajectory(start_ns=0, end_ns=0)),
        ({"of": "tools"}, trajectory(call("a", start_ns=5))),
        ({"of": "tools"}, run("a")),
        ({"of": "tools"}, trajectory()),
        ({"of": "tools"}, trajectory(at("a", 5, 3))),
        ({"of": "a"}, trajectory(at("a", 1, 3), at("a", 0, 0))),
    ],
)
def test_time_that_is_not_known_is_skipped(spec, calls):
    """An unknown time never gives a score of 1."""
    assert isinstance(create_scorer({"type": "time_cost", **spec})(calls), Skipped)


@pytest.mark.parametrize(("end_ms", "scored"), [(100, 1.0), (101, 0.0), (0, 1.0)])
def test_strict_time_asks_for_the_budget_and_no_more(end_ms, scored):
    """Using exactly the budget passes."""
    spec = {"type": "time_cost", "max_ms": 100, "strict": True}
    assert value(spec, trajectory(start_ns=MS, end_ns=(1 + end_ms) * MS)) == scored


def test_the_run_is_timed_without_tool_data():
    """Only measures of calls need recorded calls."""
    assert (
        value(
            {"type": "time_cost", "max_ms": 10},
            trajectory(start_ns=0, end_ns=MS, calls_unknown="no tool spans"),
        )
        == 0.9
    )


INTERVALS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5)).map(lambda pair: (pair[0], sum(pair))),
    max_size=7,
)


def chains(intervals, after=0):
    """The longest chain, found by trying all chains."""
    return max(
        [
            end - start + chains([i for i in intervals if i != (start, end)], end)
            for start, end in intervals
            if start >= after
        ]
        + [0]
    )


@given(INTERVALS)
def test_the_union_and_the_longest_chain_of_intervals_are_those_of_the_definition(intervals):
    """They are compared with a count of instants, and with every chain."""
    assert covered(intervals) == len(
        {instant for start, end in intervals for instant in range(start, end)}
    )
    distinct = sorted(set(intervals))
    assert longest_chain(distinct) == chains(distinct)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ([{"step": 1, "action": "a"}, {"id": 2, "action": None}], 1.0),
        ([{"step": 1, "action": "a"}, {"action": "b"}, {"id": 1}, "text"], 0.25),
        ({"trajectory": [{"step": 1, "action": "a"}]}, 1.0),
        ('[{"id": "x", "action": "a"}]', 1.0),
        ([], 0.0),
        ("done", 0.0),
        (None, 0.0),
        ({"other": []}, 0.0),
    ],
)
def test_recorded_steps_need_a_number_and_every_required_key(recorded, expected):
    """Entries that are not objects are invalid; a value that is not a list scores 0."""
    spec = {"type": "trajectory_structure", "steps": "my.steps"}
    assert (
        value(spec, trajectory(attributes={"my.steps": recorded}, calls_unknown="no tool spans"))
        == expected
    )
    assert value(spec, trajectory(output={"my": {"steps": recorded}})) == expected


def test_unrecorded_steps_are_skipped():
    """The scorer requires the attribute."""
    scorer = create_scorer({"type": "trajectory_structure", "steps": "my.steps"})
    assert scorer.attribute_keys == {"my.steps"}
    assert scorer(trajectory()) == Skipped("my.steps not recorded", reason="not_recorded")


def test_a_call_is_valid_if_it_recorded_every_required_field():
    """Null is a recorded value."""
    calls = trajectory(call("a", arguments=None, result=None), call("b", arguments={}), call("c"))
    outcome = create_scorer({"type": "trajectory_structure"})(calls)
    assert outcome.value == pytest.approx(1 / 3)
    assert outcome.details["errors"][0] == {"tool": "b", "actual": 1, "missing": ["result"]}


@pytest.mark.parametrize("kind", ["tool_errors", "trajectory_structure", "redundant_calls"])
def test_shares_of_no_calls_are_unknown(kind):
    """0 of 0 is neither good nor bad."""
    assert value({"type": kind}, trajectory()) == "no tool call"


def test_an_error_is_reported_by_its_type_and_never_by_its_message():
    """Messages are content."""
    outcome = create_scorer({"type": "tool_errors"})(
        trajectory(call("a"), call("b", error={"type": "Timeout", "message": "key 123"}))
    )
    assert outcome.details["errors"] == [{"tool": "b", "actual": 1, "type": "Timeout"}]
    assert "123" not in repr(outcome)


@pytest.mark.parametrize(
    ("within", "expected"),
    [(None, 0.5), (2, 0.5), (1, 0.0)],
)
def test_a_failure_is_recovered_by_a_success_of_the_same_tool(within, expected):
    """With `within`, the success must come within that number of calls."""
    calls = trajectory(call("a", error="x"), call("b", error="x"), call("a"))
    assert value({"type": "error_recovery", "within": within}, calls) == expected


def test_without_failures_there_is_nothing_to_recover():
    """The run is skipped and does not score 1."""
    assert value({"type": "error_recovery"}, run("a")) == "no call failed"


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ("aaa", {"max_repeats": 3}, 1.0),
        ("aaaa", {"max_repeats": 3}, 0.0),
        ("xababab", {"max_repeats": 2}, 0.0),
        ("xababa", {"max_repeats": 2}, 1.0),
        ("abcabc", {"max_repeats": 1, "max_cycle": 2}, 1.0),
        ("abcabc", {"max_repeats": 1, "max_cycle": 3}, 0.0),
        ("", {}, 1.0),
    ],
)
def test_a_loop_is_a_cycle_that_comes_more_often_in_a_row_than_allowed(names, options, expected):
    """Cycles have one call or several."""
    assert (
        value({"type": "loop_detection", "ignore_arguments": True, **options}, run(*names))
        == expected
    )


def test_a_loop_of_names_with_unknown_arguments_is_unknown():
    """Without a loop of names the arguments do not matter."""
    assert value({"type": "loop_detection"}, run(*"aaaa")) == "arguments not recorded"
    assert value({"type": "loop_detection"}, run(*"abab")) == 1.0


def test_a_tool_called_with_other_arguments_each_time_is_no_loop():
    """Calls are identical if name and arguments are equal."""
    assert (
        value(
            {"type": "loop_detection"},
            trajectory(*[call("a", arguments={"page": page}) for page in range(9)]),
        )
        == 1.0
    )


def test_identical_calls_are_equal_as_json_values_are():
    """The order of keys and 1 or 1.0 do not matter."""
    calls = trajectory(
        call("a", arguments={"x": 1, "y": [2]}), call("a", arguments={"y": [2.0], "x": True})
    )
    assert value({"type": "redundant_calls"}, calls) == 0.5


@pytest.mark.parametrize(
    ("rule", "names", "holds"),
    [
        ("a before b", "ab", True),
        ("a before b", "ba", False),
        ("a before b", "b", True),
        ("b only after a", "b", False),
        ("b only after a", "ab", True),
        ("b only after a", "bab", False),
        ("b only after a", "x", True),
        ("a then b", "ab", True),
        ("a then b", "aba", False),
        ("a then b", "b", True),
        ("never b after a", "ba", True),
        ("never b after a", "ab", False),
        ("never b after a", "b", True),
        ("d* only after a*", "x", True),
    ],
)
def test_a_rule_holds_unless_its_trigger_happened_and_it_was_broken(rule, names, holds):
    """All four forms are tested."""
    assert value({"type": "precedence", "rules": [rule]}, run(*names)) == float(holds)


TOGETHER = trajectory(at("a", 1, 5), at("b", 2, 4))


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("a before b", True),
        ("b before a", True),
        ("b only after a", False),
        ("a then b", False),
        ("never b after a", True),
    ],
)
def test_calls_made_together_are_neither_before_nor_after_each_other(rule, holds):
    """Neither call could depend on the other."""
    assert value({"type": "precedence", "rules": [rule]}, TOGETHER) == float(holds)


@pytest.mark.parametrize(("within", "expected"), [("5ms", 1.0), ("4ms", 0.0), ("0.005s", 1.0)])
def test_an_answer_may_have_to_come_in_time(within, expected):
    """The time is from the end of the first call to the start of the second."""
    calls = trajectory(at("a", 1, 2), at("b", 7, 8))
    assert value({"type": "precedence", "rules": [f"a then b within {within}"]}, calls) == expected


TIMED = st.lists(
    st.tuples(st.sampled_from("abx"), st.integers(1, 9), st.integers(0, 4)), max_size=6
)


def broken_by(rule, calls, place, within):
    """The positions of the calls that break a rule, by its definition, computed call by call."""
    first = [at for at, call in enumerate(calls) if call.name == "a"]
    second = [at for at, call in enumerate(calls) if call.name == "b"]

    def answered(one):
        return any(
            place[one] < place[two]
            and (within is None or calls[two].start_ns <= calls[one].end_ns + within)
            for two in second
        )

    return {
        "a before b": [
            two for two in second if first and all(place[two] < place[one] for one in first)
        ],
        "b only after a": [
            two for two in second if not any(place[one] < place[two] for one in first)
        ],
        "a then b": [one for one in first if not answered(one)],
        "never b after a": [two for two in second if any(place[one] < place[two] for one in first)],
    }[rule]


@given(TIMED, st.sampled_from(["respect", "ignore"]), st.none() | st.integers(0, 5))
def test_rules_are_broken_by_the_calls_that_break_their_definition(drawn, concurrency, within):
    """Calls that run at the same time are neither before nor after each other, unless concurrency
    is ignored.
    """
    calls = trajectory(*[at(name, start, start + length) for name, start, length in drawn])
    place = [number for number, batch in enumerate(parallel_groups(calls.calls)) for _ in batch]
    place = place if concurrency == "respect" else [*range(len(drawn))]
    for rule in ("a before b", "b only after a", "a then b", "never b after a"):
        limited = rule == "a then b" and within is not None
        written = f"{rule} within {within}ms" if limited else rule
        outcome = create_scorer(
            {"type": "precedence", "rules": [written], "concurrency": concurrency}
        )(calls)
        breaking = broken_by(rule, calls.calls, place, within * MS if limited else None)
        assert outcome.details["broken"] == (
            [{"rule": written, "calls": breaking}] if breaking else []
        )
        assert outcome.value == float(not breaking)


@pytest.mark.parametrize(
    ("calls", "known"),
    [
        ([call("a"), call("b")], False),
        ([at("a", 1, 2), call("b")], False),
        ([call("a"), at("b", 3, 4)], False),
        ([at("a", 1, 2), at("b", 3, 4), call("b")], False),
        ([call("b"), at("a", 1, 2), at("b", 3, 4), call("a")], True),
        ([call("a")], True),
        ([call("b"), call("a")], True),
    ],
)
def test_an_unrecorded_time_of_a_rule_is_unknown(calls, known):
    """The run is skipped. Times of calls that no later call follows, and of earlier second calls,
    are not needed.
    """
    outcome = create_scorer({"type": "precedence", "rules": ["a then b within 5s"]})(
        trajectory(*calls)
    )
    assert isinstance(outcome, Skipped) != known
    assert (
        known
        or outcome.explanation == "no time recorded for a call that 'a then b within 5s' asks about"
    )


@pytest.mark.parametrize(
    ("unit", "ms"),
    [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("0.5s", 500),
        (" s", 1000),
        ("1.25ms", 1.25),
    ],
)
def test_a_limit_has_a_unit(unit, ms):
    """Units are milliseconds, seconds, minutes and hours, with or without decimals; using exactly
    the limit is allowed.
    """
    written = f"a then b within {unit if unit[0].isdigit() else f'1{unit}'}"
    for late in (0, 1):
        calls = trajectory(
            at("a", 0, 7), call("b", start_ns=int((7 + ms) * MS) + late, end_ns=10**15)
        )
        assert value({"type": "precedence", "rules": [written]}, calls) == 1.0 - late


@pytest.mark.parametrize(("kind", "expected"), [("forbidden_tools", 0.5), ("required_tools", 0.5)])
def test_patterns_are_kept_or_broken_one_by_one(kind, expected):
    """`delete_*` matches a call, `pay` none."""
    assert (
        value({"type": kind, "patterns": ["delete_*", "pay"]}, run("delete_user", "search"))
        == expected
    )


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ({"max_calls": 1}, 0.5),
        ({"max_calls": 4, "max_model_calls": 1}, 1 / 3),
        ({"max_calls": 1, "max_model_calls": 1, "max_tokens": 50}, 1 / 12),
        ({"max_tokens": 1000}, 1.0),
    ],
)
def test_each_budget_that_is_exceeded_lowers_the_score(budgets, expected):
    """The value is multiplied by budget / used."""
    assert (
        value(
            {"type": "step_efficiency", **budgets},
            run("a", "b", model_calls=3, input_tokens=90, output_tokens=10),
        )
        == expected
    )


def test_uncounted_tokens_are_unknown():
    """The run is skipped and does not score 1."""
    assert value({"type": "step_efficiency", "max_tokens": 5}, run("a")) == "tokens not recorded"


def test_model_calls_that_were_not_recorded_are_unknown():
    """AutoGen, Claude's Agent SDK and others write no span for a model call, and no agent goes
    without one.
    """
    assert (
        value({"type": "step_efficiency", "max_model_calls": 5}, run("a"))
        == "model calls not recorded"
    )
    assert value({"type": "step_efficiency", "max_calls": 1}, run("a")) == 1.0


@pytest.mark.parametrize(
    "facts",
    [
        {"attributes": {"intent": "refund"}},
        {"output": {"intent": "refund"}},
        {"input": '{"intent": "refund"}', "output": "text"},
    ],
)
def test_a_label_is_recorded_from_attribute_output_or_input(facts):
    """The label is text in the details of a skip."""
    outcome = create_scorer({"type": "label_distribution", "label": "intent"})(
        trajectory(calls_unknown="no tool spans", **facts)
    )
    assert outcome == Skipped("recorded for the distribution", "recorded", {"label": "refund"})


def test_labels_are_counted_over_runs():
    """Runs without a label are not counted."""
    scorer = create_scorer({"type": "label_distribution", "label": "ok"})
    results = [
        scorer(trajectory(attributes=facts))
        for facts in ({"ok": True}, {"ok": "no"}, {}, {"ok": True})
    ]
    assert summarize(results) == {
        "labels": ["no", "true"],
        "counts": {"no": 1, "true": 2},
        "fractions": [pytest.approx(1 / 3), pytest.approx(2 / 3)],
        "skew": pytest.approx(1 / 3),
    }


def test_an_empty_window_has_an_empty_distribution():
    """All keys are present."""
    assert summarize([]) == {"labels": [], "counts": {}, "fractions": [], "skew": 0.0}


@pytest.mark.parametrize(
    ("spec", "calls"),
    [
        ({"type": "tool_errors"}, [call("a"), *[call("a", error=True)] * 9]),
        ({"type": "forbidden_tools", "patterns": list("abcdefghij")}, map(call, "abcdefghi")),
        ({"type": "time_cost", "of": "tools", "max_ms": 10}, [at("a", 1, 10)]),
        (
            {
                "type": "tool_correctness",
                "compare": ["arguments"],
                "expected": [{"name": "a", "arguments": ASKED}] * 10,
            },
            [TENTH] * 10,
        ),
    ],
)
def test_a_tenth_passes_where_a_tenth_is_asked_for(spec, calls):
    """A share is rounded once, so that an exactly reached threshold is not missed by a rounding
    error.
    """
    assert create_scorer({**spec, "threshold": 0.1})(trajectory(*calls)).passed
