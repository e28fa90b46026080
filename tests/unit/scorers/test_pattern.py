"""Edits of `trajectory_pattern`, compared with a search over all words that a pattern describes."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_eval.model import Skipped
from otel_eval.scorers import create_scorer
from otel_eval.scorers.nfa import fewest_edits
from otel_eval.testing import call, trajectory
from tests.support.configurations import pattern_of

LONGEST = 7
MOST = 300  # words; a repetition of a repetition of three names has too many to list


def words(pattern):
    """Every word of a pattern up to a length, by the meaning of each kind."""
    if isinstance(pattern, str):
        return {(pattern,)}
    if isinstance(pattern, list):
        found = {()}
        for member in map(words, pattern):
            found = joined(found, member)
        return found
    if "repeat" in pattern:
        return repeated(words(pattern["repeat"]), pattern.get("min", 0), pattern.get("max"))
    ((kind, members),) = pattern.items()
    if kind == "optional":
        return {()} | words(members)
    if kind == "choice":
        return set().union(*map(words, members))
    return (
        set().union(*[words(list(order)) for order in permutations(members)])
        if kind == "any_order"
        else words(members)
    )


def repeated(base, least, most):
    """All concatenations of `least` to `most` words; without `most` up to the length limit."""
    found, now = set(), {()}
    for times in range((LONGEST if most is None else most) + 1):
        if times >= least:
            found |= now
        now = joined(now, base)
    return found


def joined(ones, twos):
    """Each word of the first set followed by each word of the second."""
    found = {one + two for one in ones for two in twos if len(one + two) <= LONGEST}
    assume(len(found) <= MOST)
    return found


def edits_between(one, two):
    """The least number of insertions and deletions that turn one word into another."""
    line = [0] * (len(two) + 1)
    for name in one:
        after = [0]
        for at, other in enumerate(two):
            after.append(line[at] + 1 if name == other else max(after[at], line[at + 1]))
        line = after
    return len(one) + len(two) - 2 * line[-1]


MEMBERS = st.deferred(lambda: st.sampled_from("abc") | PATTERNS)
LISTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)
PATTERNS = st.one_of(
    st.lists(MEMBERS, max_size=3),
    LISTS.map(lambda members: {"any_order": members}),
    LISTS.map(lambda members: {"choice": members}),
    MEMBERS.map(lambda member: {"optional": member}),
    st.tuples(MEMBERS, st.integers(0, 2), st.none() | st.integers(0, 2)).map(
        lambda parts: {
            "repeat": parts[0],
            "min": parts[1],
            "max": None if parts[2] is None else parts[1] + parts[2],
        }
    ),
)


@given(PATTERNS, st.lists(st.sampled_from("abcx"), max_size=4), st.integers(1, 3))
def test_the_edits_are_the_fewest_over_every_word_and_every_order(pattern, names, together):
    """Among the nearest words the longest is chosen."""
    described = words(pattern)
    assume(described)
    assume(len(described) <= MOST)
    batches = [range(at, min(len(names), at + together)) for at in range(0, len(names), together)]
    runs = [()]
    for batch in batches:
        runs = [run + order for run in runs for order in permutations([names[at] for at in batch])]
    best = min((edits_between(run, word), -len(word)) for word in described for run in {*runs})
    assume(best[0] + len(names) <= LONGEST)  # longer words were not listed
    fit = fewest_edits(pattern_of(pattern), names, batches)
    assert (len(fit.edits), -fit.length) == best


@pytest.mark.parametrize(
    ("pattern", "names", "edits", "length"),
    [
        ({"choice": [{"repeat": "a"}, "b"]}, "ab", 1, 1),
        ({"any_order": [{"repeat": "a"}, "b"]}, "aba", 1, 2),
        ({"any_order": ["b", {"repeat": "a"}, "c"]}, "baca", 1, 3),
        ({"repeat": [{"repeat": "a"}, "b"]}, "a", 1, 2),
        ({"repeat": [{"repeat": "a"}, "b"], "max": 1}, "a", 1, 2),
        ({"optional": [{"repeat": "a"}, "b"]}, "a", 1, 2),
        ({"sequence": []}, "a", 1, 0),
        ({"any_order": []}, "a", 1, 0),
    ],
)
def test_a_repetition_leads_to_itself_and_to_what_follows_it(pattern, names, edits, length):
    """Not to what may come in its place, nor past what must follow it; what is empty asks for
    nothing.
    """
    fit = fewest_edits(pattern_of(pattern), names, [range(at, at + 1) for at in range(len(names))])
    assert (len(fit.edits), fit.length) == (edits, length)


@pytest.mark.parametrize(
    ("pattern", "names", "value"),
    [
        (["a", "b"], "ab", 1.0),
        (["a", "b"], "a", 1 - 1 / 3),
        (["a", "b"], "xy", 0.0),
        ([], "", 1.0),
        ([], "a", 0.0),
        ({"any_order": ["a", ["b", "c"]]}, "bca", 1.0),
        ({"any_order": ["a", ["b", "c"]]}, "bac", 1 - 2 / 6),
        ({"repeat": "a", "min": 2}, "aaaa", 1.0),
        ({"repeat": "a", "max": 2}, "aaa", 1 - 1 / 5),
        (["a", {"choice": ["b", ["c", "d"]]}, {"optional": "e"}], "acd", 1.0),
    ],
)
def test_a_pattern_scores_what_it_takes_to_fit_it(pattern, names, value):
    """The value is 1 - edits / (calls + length of the word)."""
    outcome = create_scorer({"type": "trajectory_pattern", "pattern": pattern})(
        trajectory(*map(call, names))
    )
    assert outcome.value == pytest.approx(value)


def test_the_edits_are_reported():
    """Deletions have the position, insertions the call that they precede."""
    outcome = create_scorer({"type": "trajectory_pattern", "pattern": ["a", "b", "c"]})(
        trajectory(*map(call, "axc"))
    )
    assert outcome.explanation == "2 edits: delete call 2 (x), insert b before call 3"
    assert outcome.details["length"] == 3


@pytest.mark.parametrize(
    ("pattern", "names", "edits"),
    [
        (["a"], "aa", ["delete a 1"]),
        (["a", "b"], "aab", ["delete a 1"]),
        ({"repeat": "a", "max": 2}, "aaa", ["delete a 2"]),
        (["a", "b", "a"], "bb", ["insert a 0", "delete b 1", "insert a 2"]),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_the_last_of_repeated_calls_counts_as_the_extra_one(pattern, names, edits, size):
    """It holds for sequential and for parallel calls."""
    batches = [range(at, min(len(names), at + size)) for at in range(0, len(names), size)]
    fit = fewest_edits(pattern_of(pattern), names, batches)
    assert [" ".join(map(str, edit)) for edit in fit.edits] == edits


def together(names):
    """Calls that start and end at the same time."""
    return trajectory(*[call(name, start_ns=1, end_ns=9) for name in names])


def test_calls_made_together_fit_in_any_order():
    """With `concurrency: ignore` they do not."""
    spec = {"type": "trajectory_pattern", "pattern": ["a", "b"]}
    assert create_scorer(spec)(together("ba")).value == 1.0
    assert create_scorer({**spec, "concurrency": "ignore"})(together("ba")).value == 0.5


def test_calls_made_together_fit_where_one_name_is_called_more_often():
    """Each name may be used as often as it was called, whichever was called first."""
    for pattern in ("bab", "bbba"):
        spec = {"type": "trajectory_pattern", "pattern": list(pattern)}
        assert create_scorer(spec)(together(sorted(pattern))).value == 1.0


def test_too_many_calls_together_are_not_guessed_at():
    """The run is skipped and does not score 0."""
    names = [f"t{at}" for at in range(20)]
    spec = {"type": "trajectory_pattern", "pattern": names[::-1]}
    assert isinstance(create_scorer(spec)(together(names)), Skipped)


def test_many_calls_together_that_fit_as_they_are_need_no_order_to_be_tried():
    """Also where the pattern goes on with what may be left out."""
    names = [f"t{at}" for at in range(20)]
    spec = {"type": "trajectory_pattern", "pattern": [{"repeat": "z"}, *names, {"optional": "z"}]}
    assert create_scorer(spec)(together(names)).value == 1
