"""The page in a real browser."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from otel_eval.ui import ReportPage
from tests.flow.ui.conftest import ServedWithPage
from tests.support.receiver_process import whole
from tests.ui.conftest import OpenPage

Make = Callable[..., ServedWithPage]

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202eabc\u2066"
LIMIT_MS = 120_000
# types a text, and returns the milliseconds until the list is laid out again
FILTER = """text => {
    const input = document.querySelector('input[type=search]');
    const began = performance.now();
    input.value = text;
    input.dispatchEvent(new Event('input', {bubbles: true}));
    document.body.offsetHeight;
    return performance.now() - began;
}"""
expect.set_options(timeout=LIMIT_MS)


def call(name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "start_ms": start,
        "duration_ms": duration,
        "error": None,
        "agent": "clerk",
        "span_id": f"{name}{start}",
        "enclosing": [],
    } | more


def document(number: int, **more: Any) -> dict[str, Any]:
    """A run with four scorers; every tenth does not pass."""
    passed = number % 10 != 0
    results = [
        {
            "scorer": f"scorer-{place}",
            "type": "tool_errors",
            "version": "1",
            "policy": "0" * 16,
            "severity": "error",
            "outcome": "scored",
            "value": float(passed or place > 0),
            "passed": passed or place > 0,
            "threshold": 1.0,
            "explanation": "no call failed" if passed or place else "call 1 (search) failed",
            "reason": None,
            "error_type": None,
            "details": {"seen": ["book", "search"]},
            "result_id": f"{number:030x}{place:02x}",
        }
        for place in range(4)
    ]
    return {
        "document": 1,
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "agent": f"agent-{number % 3}",
        "name": "run",
        "service": "shop",
        "service_version": f"1.{number % 2}",
        "environment": "prod",
        "conversation_id": "",
        "evaluation": "policy",
        "verdict": "pass" if passed else "not_passed",
        "awaited": 0,
        "completeness": "complete",
        "revision": 0,
        "start_time": f"2026-11-{1 + number % 28:02d}T10:{number % 60:02d}:00.000000000Z",
        "duration_ms": 100.0,
        "evaluated_at": "2026-11-28T10:00:00.000000000Z",
        "input_tokens": 10,
        "output_tokens": None,
        "model_calls": 2,
        "calls_unknown": "",
        "calls": [call("search", 0, 40), call("search", 10, 60), call("book", 70, 20)],
        "results": results,
    } | more


def write(path: Path, documents: Iterator[dict[str, Any]]) -> str:
    """A report in one file; its address."""
    report = ReportPage(title="report", settings={"trace_url": "http://localhost/{trace_id}"})
    with path.open("w", encoding="utf-8") as file:
        file.write(report.begin())
        for each in documents:
            file.write(report.run(each))
        file.write(report.end())
    return path.as_uri()


def violations(page: Page) -> list[str]:
    """The rules of axe-core that the page breaks."""
    found: list[str] = page.evaluate(
        "async () => (await axe.run()).violations.map("
        "rule => rule.id + ': ' + rule.nodes.map(node => node.html).join(' '))"
    )
    return found


def test_the_reason_why_a_run_did_not_pass_is_one_click_away(
    served: Make, opened: OpenPage
) -> None:
    receiver = served()
    receiver.start()
    page = opened("http://{}:{}/".format(*receiver.place))
    expect(page.get_by_text("No span has arrived yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(receiver.address)
    receiver.insist(whole(1))
    receiver.insist(whole(2, tools=4))
    expect(page.locator(".rows .row")).to_have_count(2)
    expect(page.locator(".rows .row").first).to_contain_text("not passed")
    page.locator(".rows .row a").first.click()
    expect(page.locator(".score.not_passed p")).to_contain_text("search")
    expect(page.locator(".calls > li")).to_have_count(4)
    assert page.url.endswith(f"#/runs/{2:032x}/{1:016x}")


def test_until_data_has_come_the_page_says_nothing_about_runs(
    served: Make, opened: OpenPage
) -> None:
    receiver = served()
    receiver.start()
    receiver.insist(whole(1))
    address = "http://{}:{}/".format(*receiver.place)
    page = opened(address)
    expect(page.locator(".rows .row")).to_have_count(1)
    page.route("**/events", lambda route: None)  # no answer
    for view in ("", "#/scorers", f"#/runs/{1:032x}/{1:016x}"):
        page.goto("about:blank")
        page.goto(address + view)
        expect(page.locator("main")).to_contain_text("Loading…")
        expect(page.locator("main")).not_to_contain_text("No span has arrived yet")
        expect(page.locator("main")).not_to_contain_text("not here")


def test_runs_that_match_nothing_are_counted_above_the_list(served: Make, opened: OpenPage) -> None:
    receiver = served(
        evaluations=[
            {"name": "e", "match": {"agent": "seller"}, "scorers": [{"type": "tool_errors"}]}
        ]
    )
    receiver.start()
    page = opened("http://{}:{}/".format(*receiver.place))
    receiver.insist(whole(1))
    expect(page.locator(".rows .row")).to_have_count(1)
    expect(page.locator(".notice")).to_have_count(0)
    receiver.insist(whole(2).replace(b"seller", b"sailor"))
    expect(page.locator(".notice")).to_contain_text("1 of 2 runs matched no evaluation")
    expect(page.locator(".notice")).to_contain_text("match.agent requires 'seller'")


@pytest.mark.parametrize(("passed", "mark"), [(True, ""), (False, "✕ ")])
def test_a_difference_is_an_error_only_where_the_score_does_not_pass(
    tmp_path: Path, opened: OpenPage, passed: bool, mark: str
) -> None:
    run = document(1)
    run["results"] = run["results"][:1]
    details = {"matched": [[0, 0]], "missing": [], "extra": [{"tool": "search", "actual": 1}]}
    run["results"][0] |= {"passed": passed, "details": details}
    page = opened(write(tmp_path / "report.html", iter([run])) + f"#/runs/{1:032x}/{1:016x}")
    line = page.locator("tr.differs")
    expect(line.locator("td").last).to_have_text(f"{mark}extra (first difference)")
    assert (page.locator("tr.first").count() == 0) is passed


def test_a_lost_connection_shows_and_comes_back(served: Make, opened: OpenPage) -> None:
    receiver = served()
    receiver.start()
    host, port = receiver.place
    page = opened(f"http://{host}:{port}/")
    receiver.insist(whole(1))
    expect(page.locator(".rows .row")).to_have_count(1)
    receiver.end(signal.SIGTERM)
    expect(page.get_by_role("status").first).to_contain_text("Connection lost")
    receiver.config["ui"] = {"endpoint": f"{host}:{port}"}
    receiver.start()
    expect(page.get_by_role("status").first).to_have_text("live")
    receiver.insist(whole(2))
    expect(page.locator(".rows .row")).to_have_count(2)


def test_a_token_is_asked_for_once(served: Make, opened: OpenPage) -> None:
    receiver = served(ui={"endpoint": "127.0.0.1:0", "auth": {"token_env": ["PAGE_TOKEN"]}})
    receiver.environment["PAGE_TOKEN"] = "s3cret"
    receiver.start()
    page = opened("http://{}:{}/".format(*receiver.place))
    assert violations(page) == []
    page.get_by_label("Token").fill("s3cret")
    page.get_by_role("button").click()
    expect(page.get_by_text("No span has arrived yet")).to_be_visible()
    expect(page.get_by_role("status").first).to_have_text("live")
    page.reload()
    expect(page.get_by_text("No span has arrived yet")).to_be_visible()


def test_filters_are_kept_in_the_address(tmp_path: Path, opened: OpenPage) -> None:
    page = opened(write(tmp_path / "report.html", map(document, range(60))))
    count = page.locator("main p[role=status]")
    expect(count).to_have_text("60 runs")
    page.get_by_role("combobox", name="Agent").select_option("agent-0")
    expect(count).to_contain_text("20 of 60 runs")
    page.get_by_role("combobox", name="Verdict").select_option("not_passed")
    expect(count).to_contain_text("2 of 60 runs")
    page.reload()
    expect(count).to_contain_text("2 of 60 runs")
    page.locator(".rows .row a").first.click()
    expect(page.locator(".score")).to_have_count(4)
    page.go_back()
    expect(count).to_contain_text("2 of 60 runs")
    page.get_by_label("Text").fill("no such text")
    expect(count).to_contain_text("no run fits the filter")
    page.get_by_role("link", name="Scorers").click()
    worst = page.locator("tbody tr").first
    expect(worst).to_contain_text("scorer-0")
    expect(worst).to_contain_text("1.0")
    page.get_by_role("combobox", name="Agent").select_option("agent-1")
    page.get_by_role("combobox", name="Version").select_option("1.0")
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("tbody tr", has_text="agent-0")).to_have_count(0)
    for name in ("Agent", "Version"):
        page.get_by_role("combobox", name=name).select_option("all")
    expect(page.locator("tbody tr")).to_have_count(24)
    worst.locator("td a").first.click()
    expect(page.locator(".rows .row").first).to_contain_text("not passed")


def test_the_list_is_used_with_the_keyboard(tmp_path: Path, opened: OpenPage) -> None:
    page = opened(write(tmp_path / "report.html", map(document, range(500))))
    page.locator(".rows .row a").first.focus()
    for key in ("End", "Home", "ArrowDown", "PageDown", "PageUp", "ArrowDown"):
        page.keyboard.press(key)
    focused = "document.activeElement.closest('.row').getAttribute('aria-rowindex')"
    assert page.evaluate(focused) == "4"
    page.keyboard.press("End")
    assert page.evaluate(focused) == "501"
    page.keyboard.press("Enter")
    expect(page.locator(".score")).to_have_count(4)


def test_hostile_texts_and_ten_thousand_calls_do_nothing(tmp_path: Path, opened: OpenPage) -> None:
    calls = [call(HOSTILE, at, 5000, agent=HOSTILE, error=HOSTILE) for at in range(10_000)]
    names = dict.fromkeys(("agent", "name", "service", "service_version", "environment"), HOSTILE)
    texts = document(0, **names, calls=calls)
    for result in texts["results"]:
        result |= {"scorer": HOSTILE + result["scorer"], "explanation": HOSTILE, "details": {}}
    page = opened(write(tmp_path / "report.html", iter([texts])))
    page.locator(".rows .row a").first.click()
    expect(page.locator(".calls > li")).to_have_count(200)
    expect(page.locator("h1")).to_contain_text("</script><script>alert(1)")
    assert page.locator("main script, main img").count() == 0
    assert "\u202e" not in page.inner_text("body")
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".calls > li")).to_have_count(1200)
    page.get_by_role("link", name="Scorers").click()
    expect(page.locator("tbody tr")).to_have_count(4)


def test_ten_thousand_runs_are_drawn_and_filtered_quickly(
    tmp_path: Path, opened: OpenPage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints the times; how fast a machine is decides nothing."""
    path = tmp_path / "report.html"
    address = write(path, map(document, range(10_000)))
    size = path.stat().st_size
    assert size <= 20 * 2**20
    first = []
    for _ in range(5):
        page = opened(address)
        expect(page.locator(".rows .row").first).to_be_visible()
        assert page.locator(".rows .row").count() < 60
        first.append(
            page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
        )
    expect(page.locator("main p[role=status]")).to_have_text("10,000 runs")
    filtering = [
        page.evaluate(FILTER, text)
        for text in ("search", "agent-1", "call 1", "nothing at all", "0000270f")
    ]
    expect(page.locator(".rows .row")).to_have_count(1)
    with capsys.disabled():
        print(
            f"\n10,000 runs, {size / 2**20:.1f} MiB: first rows after"
            f" {statistics.median(first):.0f} ms, a filter takes"
            f" {statistics.median(filtering):.0f} ms (medians of 5)"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_keeps_the_rules_of_accessibility(
    tmp_path: Path, opened: OpenPage, scheme: str, width: int
) -> None:
    extra = {"matched": [[0, 0]], "missing": [{"tool": "pay", "expected": 1}], "extra": []}
    run = document(0, calls=[call("search", 0, 1, error="Timeout")])
    run["results"][0]["details"] = extra
    skipped = document(1, verdict="not_evaluated", calls=None)
    skipped["results"][0] |= {"outcome": "skipped", "value": None, "passed": None}
    failed = document(2, verdict=None, awaited=1)
    failed["results"][0] |= {"outcome": "failed", "value": None, "passed": None}
    address = write(tmp_path / "report.html", iter([run, skipped, failed]))
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    page = opened(address, **options)
    for view, text in (
        ("#/runs", "3 runs"),
        ("#/scorers", "lowest pass rate"),
        (f"#/runs/{0:032x}/{0:016x}", "first difference"),
        (f"#/runs/{1:032x}/{1:016x}", "Result files have no calls"),
        (f"#/runs/{7:032x}/{7:016x}", "This run is not here"),
    ):
        page.goto(address + view)
        expect(page.locator("main")).to_contain_text(text)
        assert violations(page) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
    empty = opened(write(tmp_path / "empty.html", iter([])), **options)
    expect(empty.locator("main")).to_contain_text("No run was evaluated")
    assert violations(empty) == []
