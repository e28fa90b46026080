"""`otel-eval serve` with a page: who may read it, and what arrives there."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from otel_eval.config import load
from otel_eval.errors import ConfigError
from otel_eval.ui.server import VIEWERS
from tests.flow.ui.conftest import ServedWithPage
from tests.support.receiver_process import whole
from tests.support.waiting import wait_until

Make = Callable[..., ServedWithPage]


def runs_of(events: Iterator[tuple[str, str]], count: int) -> list[dict[str, Any]]:
    """The next documents of so many runs."""
    found: dict[str, dict[str, Any]] = {}
    for name, data in events:
        if name == "run":
            document = json.loads(data)
            found[document["trace_id"]] = document
        if len(found) >= count:
            break
    return list(found.values())


def test_runs_arrive_at_a_page_that_is_open_and_at_one_that_is_opened_later(served: Make) -> None:
    receiver = served()
    receiver.start()
    with receiver.events() as events:
        assert next(events)[0] == "start"
        receiver.insist(whole(1))
        receiver.insist(whole(2, tools=4))
        live = {run["trace_id"][-1]: run for run in runs_of(events, 2)}
    assert live["1"]["verdict"] == "pass"
    assert live["2"]["verdict"] == "not_passed"
    assert [call["name"] for call in live["1"]["calls"]] == ["search"] * 3
    with receiver.events() as events:
        assert {run["trace_id"][-1] for run in runs_of(events, 2)} == {"1", "2"}
    assert receiver.end(signal.SIGTERM) == 0


def test_the_status_tells_why_no_run_is_there(served: Make) -> None:
    receiver = served(
        evaluations=[
            {"name": "e", "match": {"agent": "other"}, "scorers": [{"type": "tool_errors"}]}
        ]
    )
    receiver.start()
    with receiver.events() as events:
        receiver.insist(whole(1))
        statuses = (json.loads(data) for name, data in events if name == "status")
        why = next(status["why"] for status in statuses if status["why"])
    assert why[0] == "no evaluation matched any of 1 run"
    assert "evaluation 'e' does not match: match.agent requires 'other', and the run has " in why[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_that_match_nothing_are_counted_beside_those_that_are_scored(
    served: Make, workers: int
) -> None:
    """In the status of the page, and in the log at the end."""
    receiver = served(
        workers=workers,
        evaluations=[
            {"name": "e", "match": {"agent": "seller"}, "scorers": [{"type": "tool_errors"}]}
        ],
    )
    receiver.start()
    with receiver.events() as events:
        for trace in range(1, 9):  # each worker gets some of both
            receiver.insist(whole(trace))
            receiver.insist(whole(trace + 8).replace(b"seller", b"sailor"))
        statuses = (json.loads(data) for name, data in events if name == "status")
        said = next(
            status["unmatched"] for status in statuses if "8 of 16 runs" in status["unmatched"]
        )
    assert said.startswith("8 of 16 runs matched no evaluation, without a score; most often ")
    assert said.endswith(
        "evaluation 'e' does not match: match.agent requires 'seller', and the run has 'sailor'"
    )
    assert receiver.end(signal.SIGTERM) == 0
    assert receiver.said().count("matched no evaluation, without a score") == workers


def test_other_pages_and_other_names_are_refused(served: Make) -> None:
    receiver = served(ui={"endpoint": "127.0.0.1:0", "public_url": "https://eval.example"})
    receiver.start()
    host, port = receiver.place
    assert receiver.ask("/", Origin="https://eval.example")[0] == 200
    assert receiver.ask("/", Host="eval.example")[0] == 200
    for path in ("/", "/events"):
        assert receiver.ask(path, Host=f"evil.example:{port}")[0] == 421
        assert receiver.ask(path, Origin="http://evil.example")[0] == 403
        assert receiver.ask(path, Origin="null")[0] == 403
        assert receiver.ask(path, Origin="http://[")[0] == 403
        assert receiver.ask(path, Origin=f"http://{host}:{port + 1}")[0] == 403
    code, headers, body = receiver.ask("/", Origin=f"http://{host}:{port}")
    assert (code, headers["Cache-Control"]) == (200, "no-store")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "http://127.0.0.1" not in body.partition('id="data"')[0]
    assert receiver.ask("/other")[0] == 404
    assert receiver.ask("/", "DELETE")[0] == 501


def test_a_token_is_exchanged_for_a_cookie(served: Make) -> None:
    receiver = served(ui={"endpoint": "127.0.0.1:0", "auth": {"token_env": ["PAGE_TOKEN"]}})
    receiver.environment["PAGE_TOKEN"] = "s3cret"
    receiver.start()
    assert receiver.ask("/events")[0] == 401
    code, _, form = receiver.ask("/")
    assert (code, "password" in form) == (401, True)
    assert receiver.ask("/login", "POST", "token=wrong")[0] == 403
    assert receiver.ask("/login", "POST", "token=s3cret", Origin="http://evil.example")[0] == 403
    assert receiver.ask("/login", "POST", "x" * 20_000)[0] == 400
    code, headers, _ = receiver.ask("/login", "POST", "token=s3cret")
    cookie = headers["Set-Cookie"]
    assert code == 303
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "s3cret" not in cookie
    session = cookie.split(";")[0]
    assert receiver.ask("/", Cookie=session)[0] == 200
    with receiver.events(Cookie=session) as events:
        assert next(events)[0] == "start"
    name = session.partition("=")[0]
    assert receiver.ask("/", Cookie=f"{name}=guessed")[0] == 401
    assert receiver.ask("/", Authorization="Bearer s3cret")[0] == 200


def test_only_so_many_pages_are_connected_and_one_that_closes_makes_room(served: Make) -> None:
    receiver = served()
    receiver.start()
    with ExitStack() as pages:
        for _ in range(VIEWERS):
            next(pages.enter_context(receiver.events()))
        assert receiver.ask("/events")[0] == 503
        assert receiver.ask("/")[0] == 200
        pages.close()

        def connects() -> bool:
            receiver.insist(whole(1))  # so that a write shows that a page is gone
            try:
                with receiver.events():
                    return True
            except AssertionError:
                return False

        wait_until(connects)


def test_an_open_page_does_not_delay_the_end(served: Make) -> None:
    receiver = served()
    receiver.start()
    with receiver.events() as events:
        next(events)
        assert receiver.end(signal.SIGTERM) == 0
        assert all(name != "run" for name, _ in events)  # it ends


@pytest.mark.slow
def test_the_runs_of_all_workers_are_on_one_page(served: Make) -> None:
    receiver = served(workers=2)
    receiver.start()
    for trace in range(1, 9):
        receiver.insist(whole(trace))
    with receiver.events() as events:
        assert len(runs_of(events, 8)) == 8
    with receiver.events() as events:
        assert len(runs_of(events, 8)) == 8
    assert receiver.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("endpoint", ["0.0.0.0:0", "[::]:0", "eval.example:80"])
def test_a_page_for_other_machines_needs_a_token(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"ui\.endpoint.* add auth"):
        load({"ui": {"endpoint": endpoint}})
    assert load({"ui": {"endpoint": endpoint, "auth": {"token_env": ["TOKEN"]}}}).ui.endpoint


def test_addresses_of_other_programs_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ui\.trace_url"):
        load({"ui": {"trace_url": "javascript:alert('{trace_id}')"}})
    with pytest.raises(ConfigError, match=r"ui\.public_url"):
        load({"ui": {"public_url": "https://user:word@eval.example"}})
    loaded = load({"ui": {"public_url": "https://eval.example/"}})
    assert (loaded.ui.public_url, loaded.ui.names) == ("https://eval.example", ("eval.example",))
