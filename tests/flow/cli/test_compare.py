"""`compare` as a script runs it: pairs of runs, formats, invalid inputs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compared_runs import POLICY, write_both_sides

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "a secret of many characters"


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A folder with the traces of both sides and the policy."""
    write_both_sides(tmp_path)
    return tmp_path


def cases(otel_eval: Run, folder: Path, side: str, case: str, **environment: str) -> list[str]:
    """The case in each row of a side, with this configuration of `results.case`."""
    text = POLICY.replace("results: {", f"results: {{case: {case}, ")
    (folder / "cases.yaml").write_text(text, encoding="utf-8")
    words = [
        "replay",
        side,
        "--config",
        "cases.yaml",
        "--format",
        "json",
        "--output",
        f"{side}.jsonl",
    ]
    assert otel_eval(*words, **environment).returncode in (0, 1)
    rows = (folder / f"{side}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["case"] for row in rows]


def test_runs_of_one_input_have_one_case_that_depends_on_a_secret(
    otel_eval: Run, both: Path
) -> None:
    """So they are paired although nothing declares a case; the input is not in the rows."""
    digest = "{digest_key_env: CASE_KEY}"
    before = cases(otel_eval, both, "last-week", digest, CASE_KEY=SECRET)
    after = cases(otel_eval, both, "today", digest, CASE_KEY=SECRET)
    assert before == after
    assert len(set(before)) == 12
    assert set(before).isdisjoint(cases(otel_eval, both, "today", digest, CASE_KEY=SECRET + "2"))
    cases(otel_eval, both, "today", digest, CASE_KEY=SECRET)
    done = otel_eval("compare", "last-week.jsonl", "today.jsonl", "--format", "json")
    assert [scorer["way"] for scorer in json.loads(done.stdout)["scorers"]] == ["pairs", "pairs"]
    assert "refund order" not in (both / "today.jsonl").read_text(encoding="utf-8")


def test_the_case_may_be_an_attribute(otel_eval: Run, both: Path) -> None:
    assert cases(otel_eval, both, "today", "{attribute: test.case.id}")[::2] == [
        f"order-{number}" for number in range(1, 13)
    ]
    assert set(cases(otel_eval, both, "today", "{attribute: no.such}")) == {None}


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("{digest_key_env: CASE_KEY}", "the environment variable 'CASE_KEY' has fewer than 16"),
        ("{}", "name an attribute or a digest_key_env"),
        ("{attribute: a, digest_key_env: B}", "name an attribute or a digest_key_env"),
    ],
)
def test_a_case_that_cannot_be_told_is_an_error(
    otel_eval: Run, tmp_path: Path, case: str, said: str
) -> None:
    (tmp_path / "c.yaml").write_text(f"results: {{case: {case}}}\n", encoding="utf-8")
    done = otel_eval("check", "c.yaml", CASE_KEY="short")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("otel-eval: c.yaml line 1: results.case")
    assert said in done.stderr


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_an_output_is_there_whole_or_not_at_all(otel_eval: Run, both: Path, form: str) -> None:
    words = ["compare", "last-week", "today", "--config", "eval.yaml", "--format", form]
    done = otel_eval(*words, "--output", "missing/report")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    printed = otel_eval(*words).stdout
    assert otel_eval(*words, "--output", "report").stdout == ""
    assert (both / "report").read_text(encoding="utf-8") == printed


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"document": 1}', '{"outcome": "scored"}', '{"outcome": 1}\nno\n']
)
def test_an_invalid_input_is_one_line(otel_eval: Run, both: Path, text: str) -> None:
    """Empty, truncated, foreign, mixed."""
    (both / "odd.jsonl").write_text(text, encoding="utf-8")
    for sides in (("odd.jsonl", "today"), ("today", "odd.jsonl")):
        done = otel_eval("compare", *sides, "--config", "eval.yaml")
        assert done.returncode in ((2, 3) if not text else (2,))
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("otel-eval: ")


def test_a_scorer_that_nearly_always_passes_is_not_shown_as_one_that_always_does(
    otel_eval: Run, tmp_path: Path
) -> None:
    """One of 3,000 runs does not pass: that is no 100 %."""
    row = {
        "span_id": "1",
        "agent": "shop",
        "evaluation": "policy",
        "scorer": "order",
        "policy": "p",
        "severity": "error",
        "outcome": "scored",
        "explanation": "",
        "revision": 0,
    }
    with (tmp_path / "runs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(3000):
            score = {"passed": number > 0, "value": float(number > 0)}
            print(json.dumps({**row, "trace_id": f"{number:032x}", **score}), file=file)
    done = otel_eval("compare", "runs.jsonl", "runs.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert "99.9 % of 3000" in done.stdout
    assert "100.0 %" not in done.stdout
    written = (tmp_path / "runs.jsonl").read_text(encoding="utf-8")
    assert otel_eval("compare", "runs.jsonl", "-", stdin=written).stdout == done.stdout
