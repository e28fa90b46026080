"""Alignment against every assignment and every order that batches allow."""

from __future__ import annotations

from itertools import permutations, product
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.model import UNRECORDED
from otel_eval.scorers.alignment import Alignment
from otel_eval.scorers.alignment.assignment import (
    WeightedAssignment,
    assign_masks,
    bits_of,
    positions,
)
from otel_eval.scorers.alignment.expected import Comparison, Criterion, Expectation, Expected
from otel_eval.scorers.alignment.ordered import (
    align_in_order,
    align_masks_in_order,
    common,
    prepare,
    transpose_bits,
)
from otel_eval.scorers.partial_order import parallel_groups, walk
from otel_eval.scorers.values import agreement, decode_json, hashable
from otel_eval.testing import call

NAMES = st.sampled_from("abc")
ARGUMENTS = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 1), max_size=3)
SIZES = st.lists(st.integers(1, 3), max_size=4)


def cut(sizes, total):
    """Ranges of these sizes, the rest one by one."""
    found, at = [], 0
    for size in [*sizes, *[1] * total]:
        if at < total:
            found.append(range(at, min(total, at + size)))
            at = found[-1].stop
    return found


def orders(groups):
    """Every order that keeps the groups in order."""
    return [
        [each for part in order for each in part] for order in product(*map(permutations, groups))
    ]


def in_one_order(weights, rows, columns):
    """The heaviest common subsequence of two fixed orders."""
    line = [0.0] * (len(columns) + 1)
    for row in rows:
        after = [0.0]
        for at, column in enumerate(columns):
            after.append(max(after[at], line[at + 1], line[at] + weights[row].get(column, 0.0)))
        line = after
    return line[-1]


def in_any_order(weights, row=0, used=frozenset()):
    """The heaviest assignment, by trying all."""
    if row == len(weights):
        return 0.0
    rest = in_any_order(weights, row + 1, used)
    tried = [
        gain + in_any_order(weights, row + 1, used | {at})
        for at, gain in weights[row].items()
        if at not in used
    ]
    return max([rest, *tried])


def timed(names, groups, arguments=None):
    """Calls, those of a group at the same time."""
    place = [index for index, group in enumerate(groups) for _ in group]
    given = arguments or [{}] * len(names)
    return [
        call(name, start_ns=10 * at + 1, end_ns=10 * at + 9, arguments=own)
        for name, at, own in zip(names, place, given, strict=True)
    ]


def expectation(names, groups, arguments=None):
    """Expected calls in groups."""
    given = arguments or [UNRECORDED] * len(names)
    return Expectation(
        tuple(Expected(name, own) for name, own in zip(names, given, strict=True)), tuple(groups)
    )


def align(wanted, calls, match, compared):
    """The heaviest alignment, concurrency respected."""
    return Alignment(
        Criterion(wanted, compared), calls, any_order=match == "any_order", concurrency=True
    )


def is_alignment(pairs, groups, actual):
    """Nothing is used twice and no two pairs cross."""
    of_row = {row: index for index, group in enumerate(groups) for row in group}
    of_column = {column: index for index, batch in enumerate(actual) for column in batch}
    crossing = [
        (one, two)
        for one in pairs
        for two in pairs
        if of_row[one[0]] < of_row[two[0]] and of_column[one[1]] > of_column[two[1]]
    ]
    return not crossing and len({row for row, _ in pairs}) == len(
        {column for _, column in pairs}
    ) == len(pairs)


@given(st.lists(NAMES, max_size=5), SIZES, st.lists(NAMES, max_size=5), SIZES)
def test_names_in_order_weigh_what_the_best_order_weighs(
    expected, expected_sizes, actual, actual_sizes
):
    """Every order that the groups of both sides allow is tried."""
    groups, ran = cut(expected_sizes, len(expected)), cut(actual_sizes, len(actual))
    weights = [{at: 1.0 for at, name in enumerate(actual) if name == wanted} for wanted in expected]
    best = max(
        in_one_order(weights, rows, columns) for rows in orders(groups) for columns in orders(ran)
    )
    found = align(expectation(expected, groups), timed(actual, ran), "in_order", Comparison())
    assert found.weight == best
    assert is_alignment(found.pairs, groups, ran)


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.sampled_from([0.2, 0.5, 0.7, 1.0])), max_size=5),
    SIZES,
    SIZES,
)
def test_weights_in_order_sum_to_the_most_that_any_order_gives(weights, row_sizes, column_sizes):
    """Fractional weights, groups on both sides."""
    groups, ran = cut(row_sizes, len(weights)), cut(column_sizes, 5)
    best = max(
        in_one_order(weights, rows, columns) for rows in orders(groups) for columns in orders(ran)
    )
    pairs = align_in_order(weights, groups, ran)
    assert sum(weights[row][column] for row, column in pairs) == pytest.approx(best)
    assert is_alignment(pairs, groups, ran)


def drawn(random):
    """Two to six positions in groups of one to three."""
    return cut(random.choices((1, 2, 2, 3), k=3), random.randint(2, 6))


@pytest.mark.parametrize("choice", [(1.0,), (0.25, 0.5, 1.0)], ids=["whole", "fractions"])
@pytest.mark.parametrize("density", [0.15, 0.4, 0.8])
def test_weights_in_groups_sum_to_the_most_that_any_order_gives(density, choice):
    """Also where most groups have nothing in common, and where all weigh the same; by both ways
    there are.
    """
    random = Random(density)
    for _ in range(300):
        groups, ran = drawn(random), drawn(random)
        weights = [
            {at: random.choice(choice) for at in range(ran[-1].stop) if random.random() < density}
            for _ in range(groups[-1].stop)
        ]
        best = max(
            in_one_order(weights, rows, columns)
            for rows in orders(groups)
            for columns in orders(ran)
        )
        for align_ in (align_in_order, walk):
            pairs = align_(weights, groups, ran)
            assert sum(weights[row][column] for row, column in pairs) == pytest.approx(best)
            assert is_alignment(pairs, groups, ran)


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_parts_of_the_grid_are_left_out_because_better_is_known(names):
    """What a longest common subsequence weighs, or the best."""
    random = Random(names)
    for _ in range(300):
        groups, ran = drawn(random), drawn(random)
        wanted, made = (
            random.choices(names, k=groups[-1].stop),
            random.choices(names, k=ran[-1].stop),
        )
        weights = [{at: 1.0 for at, name in enumerate(made) if name == each} for each in wanted]
        best = max(
            in_one_order(weights, rows, columns)
            for rows in orders(groups)
            for columns in orders(ran)
        )
        for least in (0, len(common(prepare(wanted), made)), int(best)):
            pairs = walk(weights, groups, ran, least=least)
            assert len(pairs) == best
            assert is_alignment(pairs, groups, ran)


@pytest.mark.parametrize("density", [0.1, 0.3, 0.6, 0.9])
def test_pairs_that_weigh_the_same_are_as_many_as_any_order_gives(density):
    """Rows and columns that agree in any way, each side in groups or one by one."""
    random = Random(density)
    for _ in range(300):
        groups, ran = drawn(random), drawn(random)
        if random.random() < 0.7:
            alone = random.choice([groups, ran])
            alone[:] = cut([], alone[-1].stop)
        rows = [
            {at: 1.0 for at in range(ran[-1].stop) if random.random() < density}
            for _ in range(groups[-1].stop)
        ]
        pairs = align_masks_in_order([bits_of(row) for row in rows], ran[-1].stop, groups, ran)
        assert len(pairs) == max(
            in_one_order(rows, one, other) for one in orders(groups) for other in orders(ran)
        )
        assert is_alignment(pairs, groups, ran)
        assert all(column in rows[row] for row, column in pairs)


@given(st.lists(st.integers(0, 2**6 - 1), max_size=8))
def test_an_assignment_of_bits_is_the_largest_after_every_row(rows):
    """A row that has a column keeps one, and no column is given twice."""
    had = set()
    for at in range(len(rows)):
        pairs = assign_masks(rows[: at + 1], 6)
        weights = [
            {column: 1.0 for column in range(6) if each >> column & 1} for each in rows[: at + 1]
        ]
        assert len(pairs) == in_any_order(weights)
        assert had <= {each for each, _ in pairs}
        assert all(rows[each] >> column & 1 for each, column in pairs)
        assert len({column for _, column in pairs}) == len(pairs)
        had = {each for each, _ in pairs}


@given(st.lists(st.integers(0, 2**9 - 1), max_size=9))
def test_bits_are_turned(rows):
    """Rows to columns and back."""
    assert transpose_bits(transpose_bits(rows, 9), len(rows)) == rows
    assert [positions(row) for row in rows] == [
        [at for at in range(9) if row >> at & 1] for row in rows
    ]
    assert [bits_of(positions(row)) for row in rows] == rows


def test_more_bits_are_turned_than_fit_in_a_block():
    """Rows of several blocks to a few columns and back."""
    random = Random(0)
    rows = [random.getrandbits(20) for _ in range(1300)]
    turned = transpose_bits(rows, 20)
    assert turned == [
        bits_of([at for at, row in enumerate(rows) if row >> column & 1]) for column in range(20)
    ]
    assert transpose_bits(turned, 1300) == rows


@pytest.mark.parametrize("mode", [None, "overlap"], ids=["names", "arguments"])
def test_calls_in_groups_on_both_sides_weigh_the_most_that_any_order_gives(mode):
    """Expected batches against calls that ran together, by name alone and with arguments that agree
    in part.
    """
    random, agree = Random(mode), agreement(mode) if mode else lambda one, other: 1.0
    for _ in range(200):
        groups, ran = drawn(random), drawn(random)
        wanted, made = (
            [random.choice("ab") for _ in range(part[-1].stop)] for part in (groups, ran)
        )
        own, theirs = (
            [{key: random.randint(0, 1) for key in "xy"} for _ in part] for part in (wanted, made)
        )
        weights = [
            {at: agree(one, theirs[at]) for at, other in enumerate(made) if other == name}
            for name, one in zip(wanted, own, strict=True)
        ]
        best = max(
            in_one_order(weights, rows, columns)
            for rows in orders(groups)
            for columns in orders(ran)
        )
        compared = Comparison(mode)
        found = align(
            expectation(wanted, groups, own), timed(made, ran, theirs), "in_order", compared
        )
        assert found.weight == pytest.approx(best)
        assert is_alignment(found.pairs, groups, ran)


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.sampled_from([0.1, 0.25, 0.3, 0.7, 1.0])), max_size=6
    )
)
def test_an_assignment_is_the_heaviest_after_every_row(weights):
    """And no column is given twice."""
    assignment = WeightedAssignment()
    for at, row in enumerate(weights):
        assignment.add(row)
        pairs = assignment.pairs()
        assert assignment.total == pytest.approx(in_any_order(weights[: at + 1]))
        assert sum(weights[each][column] for each, column in pairs) == pytest.approx(
            assignment.total
        )
        assert len({column for _, column in pairs}) == len(pairs)


@given(
    st.lists(st.tuples(NAMES, ARGUMENTS), max_size=5),
    st.lists(st.tuples(NAMES, ARGUMENTS), max_size=5),
)
def test_arguments_in_any_order_are_assigned_to_the_best(expected, actual):
    """Overlap of arguments, every one-to-one assignment tried."""
    overlap = agreement("overlap")
    weights = [
        {at: overlap(own, theirs) for at, (name, theirs) in enumerate(actual) if name == wanted}
        for wanted, own in expected
    ]
    wanted = expectation(
        [name for name, _ in expected], cut([], len(expected)), [own for _, own in expected]
    )
    calls = [call(name, arguments=own) for name, own in actual]
    assert align(wanted, calls, "any_order", Comparison("overlap")).weight == pytest.approx(
        in_any_order(weights)
    )


@given(
    st.lists(NAMES, max_size=4),
    SIZES,
    st.permutations(range(4)),
    st.sampled_from([0, 0, 0, 1]),
    SIZES | st.just([]),
)
def test_an_exact_match_needs_some_order_that_is_equal(expected, sizes, order, drop, actual_sizes):
    """Position by position, over every order that both sides allow."""
    actual = [expected[at] for at in order if at < len(expected)][drop:]
    groups, ran = cut(sizes, len(expected)), cut(actual_sizes, len(actual))
    equal = any(
        [expected[at] for at in rows] == [actual[at] for at in columns]
        for rows in orders(groups)
        for columns in orders(ran)
    )
    assert (
        align(expectation(expected, groups), timed(actual, ran), "exact", Comparison()).is_exact
        == equal
    )


@given(st.lists(NAMES, max_size=8), st.lists(NAMES, max_size=8))
def test_an_order_never_weighs_more_than_no_order(expected, actual):
    """In any order there is at least as much to match."""
    wanted, calls = (
        expectation(expected, cut([], len(expected))),
        timed(actual, cut([], len(actual))),
    )
    ordered = align(wanted, calls, "in_order", Comparison())
    assert ordered.weight <= align(wanted, calls, "any_order", Comparison()).weight


def test_five_hundred_calls_in_large_batches_are_aligned_in_bounded_time():
    """Groups of both sides, all of one name: the number of states is limited."""
    groups = cut([50] * 10, 500)
    alignment = align(
        expectation(["a"] * 500, groups),
        timed(["a"] * 500, cut([40] * 12 + [20], 500)),
        "in_order",
        Comparison(),
    )
    assert alignment.weight == 500
    assert len(parallel_groups(timed(["a"] * 500, groups))) == 10


@pytest.mark.parametrize(
    ("mode", "expected", "actual", "agrees"),
    [
        ("exact", {"a": 1}, {"a": 1.0}, 1),
        ("exact", {"a": 1}, {"a": 1, "b": 2}, 0),
        ("subset", {"a": 1}, {"a": 1, "b": 2}, 1),
        ("subset", {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, 0),
        ("subset", {}, {"a": 1}, 1),
        ("superset", {"a": 1, "b": 2}, {"a": 1}, 1),
        ("superset", {"a": 1}, {"a": 1, "b": 2}, 0),
        ("overlap", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 0, "d": 3}, 1 / 4),
        ("overlap", {"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 1}, "b": 1}, 3 / 4),
        ("overlap", {}, {"a": 1}, 0),
        ("overlap", {"a": {"x": 1}, "b": 1}, {"a": 1, "b": 1}, 1 / 2),
        ("overlap", {"a": 1, "b": 1}, {"a": {"x": 1}, "b": 1}, 1 / 2),
        ("overlap", "text", "text", 1),
        (
            ("user.id", "n"),
            {"user": {"id": 1, "x": 2}, "n": 3},
            {"user": {"id": 1}, "n": 3, "m": 4},
            1,
        ),
        (("user.id",), {"user": {"id": 1}}, {"user": 1}, 0),
        (("user.id", "n"), {"user": {"id": 1}, "n": 3}, {"user": {"id": 1}, "n": 4}, 0),
        (("user.id",), {"user.id": 1}, {"user.id": 2}, 0),
        (("user.id",), {"n": 1}, {"n": 2}, 1),
        (("user.id",), {"n": 1}, {"user": {"id": 1}}, 0),
        ("subset", {"a": 1}, MappingProxyType({"a": 1, "b": 2}), 1),
        ("overlap", {"a": {"x": 1, "y": 2}}, {"a": MappingProxyType({"x": 1})}, 1 / 2),
        (("user.id",), {"user.id": 1, "user": {"id": 2}}, {"user.id": 1, "user": {"id": 3}}, 1),
        (("n", "m"), {"n": 1}, {"n": 1}, 1),
        (("n", "m"), {"n": 1}, {"n": 1, "m": None}, 0),
        ("subset", "text", "text", 1),
        ("subset", "text", {"__value__": "text", "more": 1}, 1),
        ("superset", {"__value__": 1}, 1, 1),
        ("overlap", [1, 2], [1, 3], 0),
        ("overlap", {}, {}, 1),
    ],
)
def test_arguments_agree_as_their_mode_says(mode, expected, actual, agrees):
    """Equality is Python's."""
    assert agreement(mode)(expected, actual) == pytest.approx(agrees)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2)
    | st.sampled_from([0.0, 1.0, 0.5, "", "a", "object", "array"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(JSON, JSON)
def test_stand_ins_are_equal_if_and_only_if_the_values_are(one, other):
    """By Python's equality, whatever they are nested in."""
    assert (hashable(one) == hashable(other)) == (one == other)
    assert one != other or hash(hashable(one)) == hash(hashable(other))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('"\\"3\\""', 3),
        ("NaN", "NaN"),
        ("[Infinity]", "[Infinity]"),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
        (["3"], ["3"]),
        (None, None),
    ],
    ids=range(8),
)
def test_json_text_is_what_it_spells(written, value):
    """However often it was encoded; what is no JSON is a text."""
    assert decode_json(written) == value


@given(st.permutations([f"k{number}" for number in range(10)]))
def test_a_tenth_is_a_tenth_in_whatever_order_arguments_are_looked_at(keys):
    """Shares of shares are added without a rounding that depends on the order of keys."""
    expected = {key: {"x": 1, "y": 1, **dict.fromkeys("abcdefgh", 1)} for key in keys}
    actual = {key: {"x": 1, **dict.fromkeys("yabcdefgh", 2)} for key in sorted(keys)}
    assert agreement("overlap")(expected, actual) == 0.1
