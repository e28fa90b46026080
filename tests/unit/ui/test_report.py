"""The page with runs in it."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.ui import ReportPage, documents_of_rows, policy

ROW: dict[str, Any] = {
    "trace_id": "t",
    "span_id": "s",
    "agent": "a",
    "evaluation": "e",
    "scorer": "tools",
    "type": "tool_errors",
    "version": "1",
    "policy": "p",
    "severity": "error",
    "outcome": "scored",
    "value": 1.0,
    "passed": True,
    "explanation": "fine",
    "reason": None,
    "error_type": None,
    "details": {},
    "threshold": None,
    "verdict": "pass",
    "revision": 0,
    "result_id": "r",
}


def document(**fields: Any) -> dict[str, Any]:
    (made,) = documents_of_rows([ROW])
    return made | {"calls": [{"name": "search"}]} | fields


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(text)
    return found


@given(st.text())
def test_no_text_of_a_run_becomes_a_part_of_the_page(text: str) -> None:
    report = ReportPage(title=text, settings={})
    hostile = document(agent=f"</script><script>{text}", explanation="\u2028\u202e<!--")
    page = report.begin() + report.run(hostile) + report.end([text])
    assert page.count("<script") == 3
    assert "\u2028" not in page
    assert data_of(page)["notices"] == [text]


def test_the_policy_of_the_page_allows_its_own_scripts_only() -> None:
    page = ReportPage(title="", settings={}).begin()
    assert policy(live=False) in page
    assert "unsafe" not in policy(live=True)
    assert "connect-src" not in policy(live=False)


def test_calls_of_runs_that_pass_are_left_out_beyond_a_number_and_counted() -> None:
    report = ReportPage(title="", settings={}, max_runs=1)
    verdicts = ("pass", "pass", "not_passed")
    page = report.begin() + "".join(report.run(document(verdict=each)) for each in verdicts)
    runs = data_of(page + report.end())
    assert [json.dumps(run).count("search") for run in runs["runs"]] == [1, 0, 0]
    assert "calls_left_out" in json.dumps(runs["runs"][1])
    assert "calls_left_out" not in json.dumps(runs["runs"][0])
    assert "calls of 1 runs that pass were left out" in runs["notices"][0]


def test_rows_of_a_run_become_one_document_of_the_highest_revision() -> None:
    rows = [
        ROW | {"revision": 1, "verdict": None},
        ROW | {"scorer": "old"},
        ROW | {"revision": 1, "scorer": "judge", "verdict": "not_passed"},
        ROW | {"outcome": "no_run"},
    ]
    (made,) = documents_of_rows(rows)
    assert [each["scorer"] for each in made["results"]] == ["tools", "judge"]
    assert (made["revision"], made["verdict"], made["calls"]) == (1, "not_passed", None)
