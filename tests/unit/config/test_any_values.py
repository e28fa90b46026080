"""Whatever is written: a configuration, or a `ConfigError` of one line."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.config import load
from otel_eval.config.yaml_text import parse
from otel_eval.scorers import create_scorer
from tests.support.configurations import (
    KEYS,
    MINIMAL,
    PARAMETERS,
    configuration_with,
    problems_of,
    scored_by,
)

# words that mean something somewhere below a key, so that what is drawn gets further than the first
# look
WORDS = (
    "name arguments result include exclude dataset key field column sequence choice repeat"
    " any_order optional min max of type task binary verdict cel children score then root criteria"
    " instructions reads output_label output base_url model scorer nodes a b"
)
TEXTS = st.sampled_from(
    [
        *WORDS.split(),
        "",
        " ",
        "<= 3",
        "a before b",
        "run.output",
        "calls.size()",
        "1s",
        "a.b:c",
        "x\n\x1b[31m",
    ]
) | st.text(max_size=5)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.integers(0, 2), inner, max_size=4)
    ),
    max_leaves=12,
)
HUGE = st.just(5000).map(lambda digits: 10**digits)  # more digits than Python prints


@given(st.sampled_from(PARAMETERS), VALUES | HUGE)
def test_an_invalid_parameter_gives_one_line_that_names_its_key(
    parameter: tuple[str, str], value: Any
) -> None:
    """From Python and, with the path of the scorer before it, from a file; no other exception is
    raised.
    """
    kind, key = parameter
    spec = {**MINIMAL[kind], key: value}
    problems = problems_of(partial(create_scorer, spec))
    for problem in problems:
        assert problem.startswith(key)
        assert problem.isprintable()
        assert "; " in problem
    if key == "judge" and isinstance(value, str):
        return  # the name of a judge means something only in a configuration
    assert problems_of(partial(load, scored_by(spec))) == tuple(
        f"evaluations[0].scorers[0].{problem}" for problem in problems
    )


@given(st.sampled_from(KEYS) | TEXTS.filter(bool), VALUES | HUGE)
def test_an_invalid_value_in_a_file_gives_one_line_that_names_its_section(
    path: str, value: Any
) -> None:
    """Or the value may stand there; no other exception is raised."""
    for problem in problems_of(partial(load, configuration_with(path, value))):
        assert problem.isprintable()
        assert "Input should" not in problem  # the words of the library that validates
        if path in KEYS:
            assert problem.startswith(path.partition(".")[0].partition("[")[0])


WHOLE = """
traces: {decision_wait: 250ms, max_bytes: 512MiB}
judges: {main: {base_url: "http://models.example/v1", model: m}}
evaluations:
  - name: policy
    match: {service: "support-*", attributes: {tier: gold}}
    scorers:
      - {type: tool_call_count, criteria: {search: "<= 3", refund: ["==", 1]}}
      - {type: trajectory_pattern, pattern: [a, {repeat: b, max: 2}]}
      - {type: llm_judge, judge: main, criteria: "It is polite."}
      - type: dag
        root: a
        nodes:
            a:
              type: binary
              cel: "true"
              children: [{verdict: true, score: 1}, {verdict: false, score: 0}]
conventions: [{name: mine, rules: [{kind: tool, key: k}], fields: {tool_name: k}}]
exporters: {otlp: {endpoint: "http://127.0.0.1:4317", headers: {x-key: "3"}}}
"""


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(WHOLE)),
            st.integers(0, 3),
            st.text("ab:-[]{},'\"\n &*!>|#%0é\t", max_size=3),
        ),
        max_size=4,
    )
)
def test_a_file_with_slips_is_a_configuration_or_a_configuration_error(
    slips: list[tuple[int, int, str]],
) -> None:
    """Letters lost, swapped and added anywhere in a good one."""
    text = WHOLE
    for at, lost, added in slips:
        text = text[:at] + added + text[at + lost :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "eval.yaml")
        path.write_text(text, encoding="utf-8")
        problems_of(lambda: load(path))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


GOOD = parse(WHOLE, where="")
PLACES = _places(GOOD)[1:]


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = _replaced(value[path[0]], path[1:], new)
    return changed


def _written(path: tuple[Any, ...]) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in path
    ).removeprefix(".")


def test_the_file_that_is_changed_is_a_good_one() -> None:
    """Or nothing would be shown by changing it."""
    assert problems_of(lambda: load(GOOD)) == ()


@given(st.sampled_from(PLACES), VALUES)
def test_one_wrong_value_is_reported_at_its_place_or_as_what_it_leads_to(
    path: tuple[Any, ...], value: Any
) -> None:
    """Nothing beside it, above it or below it is blamed but by name."""
    problems = problems_of(lambda: load(_replaced(GOOD, path, value)))
    blamed = [_written(path[:end]) for end in range(1, len(path) + 1)]
    scorers = "evaluations[0].scorers"  # names of judges and scorers are known elsewhere
    assert not [
        problem
        for problem in problems
        if not problem.startswith((*blamed, scorers)) and problem.split(":")[0] not in blamed
    ]


@pytest.mark.parametrize("digits", [5000, 50_000])
@pytest.mark.parametrize("written", ["0x{}", "{}", "-{}", "{}.5", "1e{}"])
def test_a_number_of_thousands_of_digits_is_refused(
    tmp_path: Path, written: str, digits: int, monkeypatch: Any
) -> None:
    """In the file and by a variable; Python would not even print it."""
    number = written.format("9" * digits)
    path = tmp_path / "eval.yaml"
    path.write_text(f"traces: {{max_traces: {number}}}", encoding="utf-8")
    assert problems_of(lambda: load(path))
    monkeypatch.setenv("MANY", number)
    assert problems_of(lambda: load({"traces": {"max_traces": "${env:MANY}"}}))
    path.write_text(yaml.safe_dump({"traces": {number: 1}}), encoding="utf-8")
    assert problems_of(lambda: load(path))
