"""Reports as JUnit XML and Markdown, whatever the names in them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from otel_eval.cli.formats import FORMATS, ReportFormat, TableFormat, Write
from otel_eval.cli.markdown import LIMIT
from otel_eval.cli.summary import Summary
from otel_eval.exporters.text_table import Layout
from otel_eval.model import Failed, Outcome, Report, Result, Scored, Skipped, verdict_of
from otel_eval.testing import call, trajectory

NASTY = "a/b::c\0\x1b[31m]]><script>&\"'`|*_@me#1\u202e\ud800\ufffe\n- [x](http://y)"
OUTCOMES: dict[str, Outcome] = {
    "passes": Scored(1.0, True, "fine"),
    "below": Scored(0.25, False, "one of four"),
    "skipped": Skipped("no tool data", "calls_unknown"),
    "broken": Failed("KeyError", "may quote content"),
}


def report(
    outcomes: dict[str, Outcome] = OUTCOMES,
    *,
    agent: str = "shop",
    severity: Any = "error",
    number: int = 0,
    **run: Any,
) -> Report:
    """A report on a run of an agent, with these outcomes by scorer."""
    results = tuple(
        Result(
            evaluation="policy",
            scorer=scorer,
            type="t",
            version="1",
            outcome=outcome,
            revision=0,
            result_id="0" * 32,
            severity=severity,
        )
        for scorer, outcome in outcomes.items()
    )
    run = {"trace_id": f"{number:032x}", "span_id": "cd" * 8, "agent": agent} | run
    return Report(
        trajectory(call("pay"), **run), "policy", 0, results, standing=verdict_of(results)
    )


def format_of(form: str, write: Write, *, not_passed: bool) -> ReportFormat:
    """The format with this name, in its usual layout."""
    if form == "table":
        return TableFormat(write, not_passed=not_passed, layout=Layout(), full_ids=False)
    return FORMATS[form](write, not_passed=not_passed)


def written(form: str, *reports: Report, not_passed: bool = False) -> str:
    """The reports in this format."""
    parts: list[str] = []
    summary = Summary()
    format_ = format_of(form, parts.append, not_passed=not_passed)
    for each in reports:
        summary.add(each)
        format_.add(each)
    format_.finish(summary, ["the counts"])
    return "".join(parts)


def test_junit_tells_failure_error_and_skip_apart() -> None:
    """One case a run and scorer; the message of an error, which may quote content, is left out."""
    suite = ElementTree.fromstring(written("junit", report()))[0]
    assert suite.attrib == {
        "name": "otel-eval",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    cases = suite.findall("testcase")
    assert [[part.tag for part in case] for case in cases] == [
        [],
        ["failure"],
        ["skipped"],
        ["error"],
    ]
    assert {case.get("classname") for case in cases} == {"policy.shop"}
    assert cases[1].get("name") == f"below [{'0' * 32}/{'cd' * 8}]"
    assert cases[1][0].attrib == {"type": "not passed", "message": "0.250: one of four"}
    assert cases[2][0].get("message") == "calls_unknown: no tool data"
    assert cases[3][0].get("type") == "KeyError"
    assert "may quote content" not in written("junit", report())


def test_what_only_warns_fails_no_junit_case() -> None:
    """It is skipped, and says so: it counts for nothing, and is no pass."""
    suite = ElementTree.fromstring(written("junit", report(severity="warn")))[0]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "3")
    assert "does not count" in str(suite[1][0].get("message"))


@pytest.mark.parametrize("not_passed", [False, True])
def test_junit_is_valid_whatever_the_names(not_passed: bool) -> None:
    """Control characters, ends of CDATA, markup, directions of text, lone surrogates."""
    nasty = report(
        {NASTY: Scored(0.0, False, NASTY), f"{NASTY}2": Skipped(NASTY), "e": Failed(NASTY)},
        agent=NASTY,
        trace_id=NASTY,
        span_id=NASTY,
    )
    text = written("junit", nasty, not_passed=not_passed)
    suite = ElementTree.fromstring(text.encode())[0]
    assert [case[0].tag for case in suite.findall("testcase")] == ["failure", "skipped", "error"]
    assert "<script>&\"'" in str(suite[0].get("classname"))


def test_markdown_has_the_summary_and_then_what_did_not_pass() -> None:
    """After a first line by which CI finds the comment again."""
    lines = written("markdown", report(), report(number=1)).splitlines()
    assert lines[:2] == ["<!-- otel-eval replay -->", "### otel-eval: the counts"]
    assert "| policy/below | 0.0 % of 2 | 0.250 | - | - |" in lines
    assert "| policy/skipped | - | - | - | 2 calls\\_unknown |" in lines
    listed = [line for line in lines if line.startswith("* ")]
    assert len(listed) == 6
    assert listed[0].startswith("* **not passed 0.250** policy/below, shop, 000")
    assert listed[0].endswith(": one of four")


def test_markdown_of_any_names_has_no_markup_links_or_mentions() -> None:
    """Every name is on one line, and every sign with a meaning is escaped."""
    nasty = report({NASTY: Scored(0.0, False, NASTY)}, agent=NASTY)
    text = written("markdown", nasty)
    body = text.partition("\n")[2]
    assert "<" not in body
    assert "http://" not in body
    assert not re.search(r"@\w|#\d(?![\d;])|[^\\]\[x|\u202e|\0", body)
    assert (
        len({line.count(" | ") for line in body.splitlines() if line.startswith("| policy")}) == 1
    )


def test_markdown_fits_into_a_comment_and_counts_what_does_not() -> None:
    reports = [
        report({"s": Scored(0.0, False, f"{NASTY} {'long ' * 50}")}, number=number)
        for number in range(1000)
    ]
    text = written("markdown", *reports)
    assert len(text) <= LIMIT
    shown = sum(line.startswith("* ") for line in text.splitlines())
    assert text.endswith(f"\n{1000 - shown:,} more lines are not shown.\n")
    assert "| shop | 1,000 |" in text


def test_only_what_did_not_pass_is_shown_where_that_is_asked() -> None:
    """A run of which all passed is not there at all."""
    passes = report({"passes": Scored(1.0, True)}, number=1, agent="good")
    table = written("table", report(), passes, not_passed=True)
    runs = table.partition("\nscorer ")[0]
    assert "run shop" in runs
    assert "run good" not in runs
    assert not re.search(r"^  passes ", runs, re.MULTILINE)
    assert written("json", passes, not_passed=True) == ""
    assert written("json", report(), not_passed=True).count("\n") == 3


def test_colours_mark_outcomes_only() -> None:
    """A name that is spelt like an outcome has none."""
    parts: list[str] = []
    format_ = TableFormat(parts.append, not_passed=False, layout=Layout(100, True), full_ids=False)
    format_.add(report({"pass": Scored(0.0, False, "pass")}))
    assert re.findall(r"\x1b\[3\dm[\w ]+\x1b\[0m", "".join(parts)) == [
        "\x1b[31mnot passed\x1b[0m",
        "\x1b[31mnot passed\x1b[0m",
    ]


def test_a_summary_has_a_row_for_each_scorer_and_agent() -> None:
    """Pass rate, mean, and the commonest reason of skips; durations and tokens where recorded."""
    summary = Summary()
    for number in range(1, 21):
        ends = {"start_ns": 10**9, "end_ns": 10**9 + number * 10**6}
        tokens = {"input_tokens": 10, "output_tokens": 5} if number > 10 else {}
        reason: Any = "waiting" if number == 1 else "calls_unknown"
        outcomes = {"rate": Scored(number / 20, number > 1), "skip": Skipped("", reason)}
        summary.add(report(outcomes, number=number, **ends, **tokens))
        summary.add(report({"other": Failed("E")}, number=number, **ends, **tokens))
    scorers, agents = summary.tables()
    assert scorers.rows == [
        ("policy/rate", "95.0 % of 20", "0.525", "-", "-"),
        ("policy/skip", "-", "-", "-", "20, mostly calls_unknown (19)"),
        ("policy/other", "-", "-", "20", "-"),
    ]
    assert agents.rows == [("shop", "20", "20", "10.0 ms", "19.0 ms", "150 of 10 runs")]
