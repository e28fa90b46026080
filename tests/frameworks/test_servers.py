"""A server that forks its workers after it loaded the program, and a loop that is not Python's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

pytest.importorskip("gunicorn", reason="gunicorn is not installed; run make examples")
pytest.importorskip("uvloop", reason="uvloop is not installed; run make examples")
ROOT = Path(__file__).parents[2]
REQUESTS = 20
WORKERS = 2


def asked(port: int, path: str) -> str:
    """The answer of the server on this machine; asked once, because each request is a run. The
    socket waits until it serves.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/{path}", timeout=300) as answer:
        return str(answer.read().decode())


def _wait_until_all_workers_handle_signals(log: Path) -> None:
    """A worker loses a SIGTERM that arrives while it starts; gunicorn would then wait 30 s before
    it kills that worker.
    """
    wait_until(lambda: log.read_text().count("worker handles signals") >= WORKERS)


@contextmanager
def gunicorn(results: Path, *options: str) -> Iterator[int]:
    """Serving `web.py` until told to stop by SIGTERM, as a supervisor does."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        port = listening.getsockname()[1]
        listening.set_inheritable(True)
        here = str(Path(__file__).parent)
        bind = [
            "--chdir",
            here,
            "--config",
            f"{here}/gunicorn_hooks.py",
            "--bind",
            f"fd://{listening.fileno()}",
        ]
        command = [sys.executable, "-m", "gunicorn", *bind, "--workers", str(WORKERS), *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RESULTS": str(results)}
        errors = results.with_suffix(".log").open("wb")
        server = subprocess.Popen(
            [*command, "web:application"],
            env=environment,
            pass_fds=[listening.fileno()],
            stdout=errors,
            stderr=errors,
        )
        try:
            yield port
            _wait_until_all_workers_handle_signals(results.with_suffix(".log"))
            server.send_signal(signal.SIGTERM)
            assert server.wait(300) == 0, results.with_suffix(".log").read_text()
        finally:
            server.kill()
            server.wait()
            errors.close()


@pytest.mark.parametrize(
    "preload", [True, False], ids=["loaded before the fork", "loaded by each worker"]
)
def test_every_request_to_gunicorn_is_scored_once(preload: bool, tmp_path: Path):
    """Whichever worker serves it, the last ones too."""
    results = tmp_path / "results.jsonl"
    with gunicorn(results, *(["--preload"] if preload else [])) as port:
        workers = {asked(port, f"agent-{number}") for number in range(REQUESTS)}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(row["agent"] for row in rows) == sorted(
        f"agent-{number}" for number in range(REQUESTS)
    )
    assert {(row["value"], row["completeness"]) for row in rows} == {(1.0, "complete")}
    assert workers


def test_a_loop_of_uvloop_and_threads_keep_their_runs_apart(tmp_path: Path):
    """As with Python's own loop."""
    results = tmp_path / "results.jsonl"
    program = ROOT / "tests/flow/inprocess/concurrent_program.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), "uvloop", str(results)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert sorted(row["agent"] for row in rows) == sorted(
        f"{where} {n}" for where in ("loop", "thread") for n in range(10)
    )
    assert {row["details"]["total"] for row in rows} == {5}
