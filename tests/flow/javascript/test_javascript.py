"""The JavaScript SDK with its official exporters, and an agent framework in JavaScript, against the
receiver.

Needs Node and npm; the packages are installed once, into the user's cache. Without either the tests
are skipped and say so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
NODE, NPM = shutil.which("node"), shutil.which("npm")
ANYWHERE = {
    "otlp": {
        "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    }
}
TRAJECTORY = [
    {"type": "tool_call_order", "expected": ["search", "book"]},
    {"type": "tool_call_args", "expected": [{"name": "search", "arguments": {"query": "é"}}]},
    {"type": "tool_errors"},
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs and what they need."""
    if NODE is None or NPM is None:
        pytest.skip("not run: Node or npm is not installed")
    wanted = (HERE / "package.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    installed = cache / "otel-eval" / f"javascript-{hashlib.sha256(wanted).hexdigest()[:12]}"
    installed.mkdir(parents=True, exist_ok=True)
    with (installed / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests may be installing
        if not (installed / "installed").exists():
            install(installed, wanted)
    folder = tmp_path_factory.mktemp("programs")
    (folder / "node_modules").symlink_to(installed / "node_modules")
    for program in (*HERE.glob("*.mjs"), HERE / "package.json"):
        shutil.copy(program, folder)
    return folder


def install(folder: Path, wanted: bytes) -> None:
    """Have npm install the packages into the folder; skip the tests if it cannot."""
    (folder / "package.json").write_bytes(wanted)
    command = [str(NPM), "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("not run: npm did not install the packages in time")
    if done.returncode:
        pytest.skip(f"not run: npm could not install the packages (exit {done.returncode})")
    (folder / "installed").touch()


@contextmanager
def receiver(results: Path, scorers: list[dict[str, Any]]) -> Iterator[tuple[Server, Any]]:
    """Scores into a file."""
    config = {
        "traces": {"decision_wait": "200ms", "decision_wait_partial": "300ms"},
        "evaluations": [{"name": "policy", "scorers": scorers}],
        "receivers": ANYWHERE,
        "exporters": {"jsonl": {"path": str(results)}},
    }
    server = Server(load(config))
    try:
        yield server, server.start()
    finally:
        server.stop(60.0)


def node(folder: Path, *arguments: str) -> str:
    """What the program prints."""
    assert NODE is not None
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    command = [NODE, *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scored(server: Server, results: Path) -> list[dict[str, Any]]:
    """The rows, when nothing is open any more."""
    wait_until(lambda: not server.counts()["open_traces"])
    server.stop(60.0)
    return [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["json", "protobuf", "grpc"])
def test_an_official_exporter_delivers_a_run(packages: Path, tmp_path: Path, kind: str) -> None:
    """Ids, arguments and order arrive as the program had them, whatever the encoding."""
    results = tmp_path / "results.jsonl"
    with receiver(results, TRAJECTORY) as (server, bound):
        url = f"http://{bound.grpc}" if kind == "grpc" else f"http://{bound.http}/v1/traces"
        told = json.loads(node(packages, "agent.mjs", kind, url))
        rows = scored(server, results)
        counts = server.counts()
    assert {(row["trace_id"], row["span_id"]) for row in rows} == {
        (told["trace_id"], told["span_id"])
    }
    assert {row["scorer"]: row["value"] for row in rows} == {
        "tool_call_order": 1.0,
        "tool_call_args": 1.0,
        "tool_errors": 1.0,
    }
    assert {row["agent"] for row in rows} == {"clerk"}
    assert counts["accepted_spans"] == {"grpc" if kind == "grpc" else "http": 3}
    assert counts["bad_requests"] == {}


def test_the_vercel_ai_sdk_is_understood(packages: Path, tmp_path: Path) -> None:
    """Its own mock model asks for a tool; the call, its arguments and the run around it are
    found.
    """
    results = tmp_path / "results.jsonl"
    arguments = [{"name": "weather", "arguments": {"city": "Paris"}}]
    scorers = [
        {"type": "tool_call_count", "criteria": {"weather": ["==", 1]}},
        {"type": "tool_call_args", "expected": arguments},
    ]
    with receiver(results, scorers) as (server, bound):
        node(packages, "vercel.mjs", f"http://{bound.http}/v1/traces")
        rows = scored(server, results)
    assert {row["scorer"]: row["value"] for row in rows} == {
        "tool_call_count": 1.0,
        "tool_call_args": 1.0,
    }
    assert {row["completeness"] for row in rows} == {"complete"}
