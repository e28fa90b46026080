"""Asynchronous results survive a crash: those on disk are not computed again, those that are
missing are.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.server import Server
from otel_eval.config import EvalConfig, Evaluation
from otel_eval.model import Outcome, Scored, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.storage.durable import Durable
from tests.support.receiver_process import request, whole
from tests.support.waiting import LIMIT_S, wait_until


class Judge:
    """A judge that answers with the given value, of which 0.5 passes; without one it never
    answers.
    """

    type, version, needs, asynchronous = "judge", "1", frozenset({"arguments"}), True

    def __init__(self, name: str, value: float | None) -> None:
        self.name, self.value = name, value
        self.asked: list[str] = []

    def __call__(self, trajectory: Trajectory) -> Outcome:
        raise NotImplementedError

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        self.asked.append(trajectory.trace_id)
        if self.value is None:
            await asyncio.sleep(3600)
        value = self.value or 0.0
        return Scored(value, passed=value >= 0.5, explanation=f"{len(trajectory.calls)} calls")


def server_of(folder: Path, *judges: Judge) -> Server:
    config: dict[str, Any] = {
        "traces": {"decision_wait": "100ms"},
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"jsonl": {"path": str(folder / "results.jsonl")}},
        "storage": {"directory": str(folder / "kept")},
    }
    scorers = (create_scorer({"type": "tool_errors"}), *judges)
    return Server(EvalConfig(evaluations=[Evaluation(name="e", scorers=scorers)], **config))


@contextmanager
def serving(folder: Path, *judges: Judge) -> Iterator[Any]:
    server = server_of(folder, *judges)
    try:
        yield server.start()
    finally:
        server.stop(60.0)


def post(bound: Any, body: bytes) -> None:
    asked = urllib.request.Request(
        f"http://{bound.http}/v1/traces",
        data=body,
        headers={"Content-Type": "application/x-protobuf"},
    )
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=300).close()


def values(folder: Path, count: int) -> dict[str, float]:
    """Return the value of each scorer once there is the given number of lines."""
    path = folder / "results.jsonl"
    wait_until(lambda: len(path.read_text().splitlines()) >= count)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == count
    return {row["scorer"]: row["value"] for row in rows}


def test_a_judge_that_had_not_answered_is_asked_again(tmp_path: Path) -> None:
    """Only that judge is asked again, with the whole run."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    quick, slow = Judge("quick", 0.25), Judge("slow", None)
    with serving(first, quick, slow) as bound:
        post(bound, whole(1))
        assert values(first, 2) == {"tool_errors": 1.0, "quick": 0.25}
        shutil.copytree(first, second)  # the files after a crash at this moment
    assert values(first, 2) == {"tool_errors": 1.0, "quick": 0.25}  # an orderly stop adds no result
    for folder in (first, second):
        quick_again, slow_again = Judge("quick", 0.5), Judge("slow", 0.75)
        with serving(folder, quick_again, slow_again):
            assert values(folder, 3) == {"tool_errors": 1.0, "quick": 0.25, "slow": 0.75}
        rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
        verdicts = {row["scorer"]: row["verdict"] for row in rows}
        # what was scored before the crash counts for the verdict after it
        assert verdicts == {"tool_errors": None, "quick": "not_passed", "slow": "not_passed"}
        assert (quick_again.asked, slow_again.asked) == ([], [f"{1:032x}"])
        assert (
            json.loads((folder / "results.jsonl").read_text().splitlines()[-1])["explanation"]
            == "3 calls"
        )
        with serving(folder, quick_again, slow_again) as bound:
            post(bound, whole(2))
            wait_until(lambda slow=slow_again: len(slow.asked) >= 2)
        assert slow_again.asked == [f"{1:032x}", f"{2:032x}"]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_drain_that_is_stopped_leaves_the_rest_for_the_next_one(
    tmp_path: Path, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for a judge that does not answer, nor for a disk that stays full, and fails
    no result.
    """
    with serving(tmp_path, Judge("slow", None)) as bound:
        post(bound, whole(1))
        assert values(tmp_path, 1) == {"tool_errors": 1.0}
        if is_full:
            post(bound, request((2, 2, 1, "search")))
    slow, stopping = Judge("slow", None), threading.Event()
    server = server_of(tmp_path, slow)
    if is_full:
        monkeypatch.setattr(Durable, "_append_evaluated", lambda *_: stopping.set())
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(server.drain, stopping)
        wait_until(lambda: bool(slow.asked) or stopping.is_set())
        stopping.set()
        assert drained.result(LIMIT_S) is False
    monkeypatch.undo()
    quick = Judge("slow", 0.75)
    assert server_of(tmp_path, quick).drain(threading.Event())
    assert f"{1:032x}" in quick.asked
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert "failed" not in {row["outcome"] for row in rows}
