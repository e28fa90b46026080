"""References of a run: which are found, skipped or rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.scorers.base_scorer import references_of
from otel_eval.testing import call, trajectory

CASES = {
    "a": {"expected": ["search", "open"], "other": "[]"},
    "b": {"expected": 3},
    "c": {},
    "7": {"expected": '["search"]'},
}
CASES["d"] = {"expected": None}
NO = "no reference for key case.id: "


def order(dataset, **further):
    """A `tool_call_order` scorer with this dataset."""
    return create_scorer(
        {"type": "tool_call_order", "reference": {"dataset": dataset, "key": "case.id", **further}}
    )


def run(case=None):
    """A run of a case, with one call of search."""
    return trajectory(call("search"), attributes={} if case is None else {"case.id": case})


@pytest.fixture(params=["mapping", "jsonl", "csv"])
def dataset(request, tmp_path):
    """The same records in each form of dataset."""
    if request.param == "mapping":
        return order(CASES)
    lines = [json.dumps({"id": key, **record}) for key, record in CASES.items()]
    if request.param == "csv":
        cells = [
            [key, *(_cell(record, name) for name in ("expected", "other"))]
            for key, record in CASES.items()
        ]
        lines = [",".join(row) for row in [["id", "expected", "other"], *cells]]
    path = tmp_path / f"cases.{request.param}"
    path.write_text("\n".join(lines), encoding="utf-8")
    return order(str(path), column="id")


def _cell(record, name):
    value = record.get(name, "")
    text = value if isinstance(value, str) else json.dumps(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"'


@pytest.mark.parametrize(("case", "value"), [("a", 0.5), (7, 1.0)])
def test_the_record_of_a_run_is_its_reference(dataset, case, value):
    """In every form of dataset; keys are compared as text."""
    assert dataset(run(case)).value == value
    assert dataset.attribute_keys == {"case.id"}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (None, "not recorded"),
        ("SECRET", "the dataset has no such record"),
        ("c", "its record has no expected"),
        ("d", "its record has no expected"),
    ],
)
def test_a_run_without_a_reference_is_skipped(dataset, case, why):
    """The text does not contain the value of the key."""
    assert dataset(run(case)) == Skipped(NO + why, reason="no_reference")


def test_a_record_that_is_no_use_fails(dataset):
    """The outcome is `Failed`, since the agent did not cause it."""
    outcome = dataset(run("b"))
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "InvalidReference"
    assert "expected: 3 is not a list" in outcome.message


def test_another_field_can_be_the_reference():
    """Text is read as JSON."""
    assert order(CASES, field="other")(run("a")).value == 0


def test_the_inline_expectation_is_for_runs_without_a_reference():
    """References in attributes behave the same way."""
    spec = {
        "type": "tool_call_order",
        "expected": ["search"],
        "reference": {"dataset": CASES, "key": "case.id"},
    }
    assert create_scorer(spec)(run("SECRET")).value == 1
    assert create_scorer(spec)(run("a")).value == 0.5


def test_a_mapping_is_seen_as_it_is():
    """Changes after the scorer was built are visible."""
    cases = {}
    scorer = order(cases)
    assert isinstance(scorer(run("a")), Skipped)
    cases["a"] = {"expected": ["search"]}
    assert scorer(run("a")).value == 1


def test_numbers_are_keys_as_yaml_has_them():
    """An inline mapping in YAML may have numbers as keys."""
    assert order({7: {"expected": ["search"]}, True: {"expected": []}})(run("7")).value == 1


@pytest.mark.parametrize(
    ("key", "case"),
    [("Case-7", "Case-7"), (True, "true"), ("true", True), (True, True), (7.5, "7.5")],
)
def test_keys_are_what_json_would_write(key, case):
    """Bools are in lower case; texts are unchanged."""
    assert order({key: {"expected": ["search"]}})(run(case)).value == 1
    assert isinstance(order({"other": {"expected": ["search"]}})(run(case)), Skipped)


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "expression", "expression": "calls.size() == reference"},
        {
            "type": "dag",
            "root": "n",
            "nodes": {"n": {"type": "binary", "cel": "calls.size() == reference", "children": []}},
        },
    ],
)
def test_expressions_and_trees_read_datasets(spec):
    """They read them as `reference`."""
    if spec["type"] == "dag":
        spec["nodes"]["n"]["children"] = [
            {"verdict": True, "score": 10},
            {"verdict": False, "score": 0},
        ]
    made = create_scorer(
        {**spec, "reference": {"dataset": {"a": {"calls": 1}}, "key": "case.id", "field": "calls"}}
    )
    assert made(run("a")).value == 1
    skipped = made(run("b"))
    assert isinstance(skipped, Skipped)
    assert skipped.explanation.endswith(f"{NO}the dataset has no such record")
    assert made.attribute_keys == {"case.id"}
    broken = create_scorer({**spec, "reference": {"dataset": {"a": ["search"]}, "key": "case.id"}})
    assert broken(run("a")).error_type == "InvalidReference"


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("a", 0.25),
        (
            "b",
            Skipped(
                "no reference for key case.id: the dataset has no such record",
                reason="no_reference",
            ),
        ),
    ],
)
def test_an_answer_can_be_in_a_dataset(case, outcome):
    """The judge is shown it."""

    async def judge(prompt):
        assert "Rome" in prompt
        return '{"score": 0.25, "explanation": "hardly"}'

    dataset = {"dataset": {"a": {"answer": "Rome"}}, "key": "case.id", "field": "answer"}
    made = create_scorer({"type": "answer_accuracy", "judge": judge, "answer": dataset})
    given = made(
        trajectory(input={"question": "Where?"}, output="Paris", attributes={"case.id": case})
    )
    assert getattr(given, "value", given) == outcome
    assert made.attribute_keys == {"question", "case.id"}


REFUSED = [
    (3, "reference: 3 is not an attribute's name or a mapping; write e.g. my.expected or"),
    ("", "reference: '' is not a non-empty text"),
    ({"dataset": CASES}, "reference.key: is missing"),
    ({"key": "k"}, "reference.dataset: is missing"),
    ({"dataset": CASES, "key": 3}, "reference.key: 3 is not a non-empty text"),
    (
        {"dataset": CASES, "key": "k", "feild": "x"},
        "reference.feild: unknown key; did you mean 'field'?",
    ),
    ({"dataset": CASES, "key": "k", "column": "x"}, "reference.column: only a file has columns"),
    ({"dataset": 3, "key": "k"}, "reference.dataset: 3 is not a dataset; name a file"),
    ({"dataset": "", "key": "k"}, "reference.dataset: '' is not a dataset"),
    (
        {"dataset": "cases.xlsx", "key": "k"},
        "reference.dataset: 'cases.xlsx' is no file of records; name one that ends in .jsonl",
    ),
    (
        {"dataset": "no_such:thing", "key": "k"},
        "reference.dataset: 'no_such:thing' is no file of records; name one that ends in",
    ),
    (
        {"dataset": len, "key": "k"},
        "reference.dataset: <built-in function len> is not a dataset; name a file",
    ),
    (
        {"dataset": "/no/such.csv", "key": "k"},
        "reference.dataset: '/no/such.csv' cannot be read (No such file or directory)",
    ),
]


@pytest.mark.parametrize(("reference", "says"), REFUSED)
def test_an_invalid_reference_is_refused(reference, says):
    """The error is one line with the key, the value and the remedy."""
    with pytest.raises(ConfigError) as caught:
        create_scorer({"type": "tool_call_order", "reference": reference})
    assert says in str(caught.value)


def test_all_problems_are_reported_at_once():
    """As everywhere."""
    with pytest.raises(ConfigError) as caught:
        create_scorer({"type": "tool_call_order", "reference": {"feild": "x", "key": 3}})
    assert len(caught.value.problems) == 3


def test_a_field_that_no_record_has_is_refused(tmp_path):
    """The error suggests a similar field."""
    (tmp_path / "cases.jsonl").write_text('{"id": "a", "expected": []}', encoding="utf-8")
    with pytest.raises(
        ConfigError,
        match=r"reference\.field: 'expectd' is in no record .* did you mean 'expected'\?",
    ):
        order(str(tmp_path / "cases.jsonl"), column="id", field="expectd")


def test_a_file_that_is_broken_since_it_was_opened_is_refused_anew(tmp_path):
    """A scorer is built only if the file is valid at that time."""
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "a", "expected": []}', encoding="utf-8")
    order(str(path), column="id")
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1 is not JSON"):
        order(str(path), column="id")


def test_an_unusable_record_of_a_file_is_named_by_file_line_key_and_remedy(tmp_path):
    """The details do not contain the value."""
    path = tmp_path / "cases.jsonl"
    path.write_text(
        '{"id": "a", "expected": ["x"]}\n\n{"id": "b", "expected": [{"name": "x", "argumnts":'
        " 1}]}\n"
    )
    reference = {"dataset": str(path), "key": "case", "column": "id"}
    scorer = create_scorer({"type": "tool_call_args", "reference": reference})
    outcome = scorer(trajectory(attributes={"case": "b"}))
    assert outcome == Failed(
        "InvalidReference",
        "cases.jsonl line 3: expected[0].argumnts: unknown key; did you mean 'arguments'?",
        {
            "dataset": "cases.jsonl",
            "line": 3,
            "problems": [{"key": "expected[0].argumnts", "remedy": "did you mean 'arguments'?"}],
        },
    )


def test_references_of_scorers_that_are_not_built_in_are_not_looked_for() -> None:
    """Their attributes may have other meanings, and may raise."""

    class Mine:
        reference = "text"
        scorers = None

        @property
        def answer(self) -> Any:
            raise ValueError

    assert list(references_of(Mine())) == []
    built_in = create_scorer({"type": "expression", "expression": "true", "reference": "a.b"})
    assert [each.key for each in references_of(built_in)] == ["a.b"]
