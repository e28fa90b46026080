"""An exporter of another package, built and installed as a user would: configured by name, with the
queue of the others.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import FORKS, ForkServer
from tests.support.receiver_process import Served, whole
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation"]

if any(importlib.util.find_spec(name) is None for name in ("pip", "setuptools")):
    pytest.skip("pip and setuptools are needed to build a package", allow_module_level=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with the installed package."""
    folder = tmp_path_factory.mktemp("exporters")
    shutil.copytree(HERE / "exporter_package", folder / "source")
    subprocess.run(
        [*PIP, "install", *OFFLINE, "--target", folder / "site", folder / "source"],
        check=True,
        timeout=300,
    )
    return os.pathsep.join([str(folder / "site"), str(ROOT)])


class Service:
    """An HTTP service that answers with scripted statuses, then with 200."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, dict[str, str], Any]] = []
        self.bodies: list[list[list[dict[str, Any]]]] = []
        self.accepted: list[dict[str, Any]] = []
        self.tenants: set[str | None] = set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.bodies.append(body)
                service.tenants.add(self.headers["X-Tenant"])
                status, headers, answer = (
                    service.responses.pop(0) if service.responses else (200, {}, {})
                )
                if status < 300:
                    refused = answer.get("refused", ())
                    service.accepted += [
                        row
                        for place, rows in enumerate(body)
                        if place not in refused
                        for row in rows
                    ]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait_for(self, count: int) -> list[dict[str, Any]]:
        """The accepted results once there are so many."""
        wait_until(lambda: len(self.accepted) >= count)
        return self.accepted

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("exporters", "problem"),
    [
        ({"polite_http": {"url": "http://127.0.0.1:1/", "timeout": 2}}, ""),
        (
            {"polite_http": {"ulr": "http://127.0.0.1:1/"}},
            "exporters.polite_http.ulr: unknown key; did you mean 'url'?",
        ),
        ({"polite_http": None}, "exporters.polite_http.url: is missing; add it"),
        (
            {"polite_http": {"url": "x", "timeout": "soon"}},
            "exporters.polite_http.timeout: 'soon' is not float",
        ),
        ({"polite_http": ["url"]}, "exporters.polite_http: ['url'] is not a mapping"),
        (
            {"polite_htpp": {"url": "x"}},
            "exporters.polite_htpp: unknown key; did you mean 'polite_http'?",
        ),
        (
            {"broken_http": {}},
            (
                "exporters.broken_http: cannot be loaded (ModuleNotFoundError: no module named"
                " 'polite_exporters.missing'"
            ),
        ),
        (
            {"no_exporter": {}},
            (
                "exporters.no_exporter: is no exporter: polite_exporters:NoExporter is not a"
                " subclass of otel_eval.exporters."
            ),
        ),
    ],
)
def test_check_names_what_is_wrong_in_one_line(
    installed: str, tmp_path: Path, fork_server: ForkServer, exporters: dict[str, Any], problem: str
) -> None:
    """As for exporters of our own."""
    (tmp_path / "eval.json").write_text(json.dumps({"exporters": exporters}))
    ran = fork_server.run(["check", "eval.json"], tmp_path, {**os.environ, "PYTHONPATH": installed})
    assert ran.returncode == (2 if problem else 0), ran.stderr
    assert problem in ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.splitlines()) == (1 if problem else 0)


def test_a_receiver_exports_with_retries_and_dead_letters(
    installed: str, tmp_path: Path, service: Service
) -> None:
    """503 is retried, 400 goes to the dead-letter file, and the results after it are exported."""
    dead = tmp_path / "dead.jsonl"
    options = {"url": service.url, "tenant": "shop"}
    served = Served(tmp_path, exporters={"polite_http": options, "dead_letter": str(dead)})
    served.fork_server, served.environment = FORKS, {"PYTHONPATH": installed}
    service.responses = [(503, {"Retry-After": "0"}, {}), (200, {}, {}), (400, {}, {})]
    served.start()
    try:
        served.insist(whole(1))
        (first,) = service.wait_for(1)
        served.insist(whole(2))
        wait_until(lambda: dead.exists() and dead.read_text().endswith("\n"))
        served.insist(whole(3))
        service.wait_for(2)
    finally:
        assert served.end(15) == 0
    assert (first["trace_id"], first["value"]) == (f"{1:032x}", 1.0)
    (refused,) = [json.loads(line) for line in dead.read_text().splitlines()]
    assert (refused["trace_id"], refused["exporter"], refused["why"]) == (
        f"{2:032x}",
        "polite_http",
        "400",
    )
    assert service.accepted[-1]["trace_id"] == f"{3:032x}"
    assert len(service.bodies) == 4
    assert service.tenants == {"shop"}
    assert "export to polite_http failed (503), 1 queued, retrying" in served.said()


def test_a_receiver_exports_after_a_restart_what_was_not_exported(
    installed: str, tmp_path: Path, service: Service
) -> None:
    """Results are journaled before they are exported, also for exporters of packages."""
    service.responses = [(503, {}, {})] * 1000
    served = Served(tmp_path, exporters={"polite_http": {"url": service.url}})
    served.fork_server, served.environment = FORKS, {"PYTHONPATH": installed}
    served.start()
    served.insist(whole(1))
    wait_until(lambda: service.bodies)
    served.end()  # killed
    service.responses = []
    served.start()
    try:
        assert {row["trace_id"] for row in service.wait_for(1)} == {f"{1:032x}"}
    finally:
        assert served.end(15) == 0


def test_a_process_exports_and_counts_what_was_refused(
    installed: str, tmp_path: Path, service: Service
) -> None:
    """Of a partial success exactly the refused report is in the dead-letter file."""
    dead = tmp_path / "dead.jsonl"
    service.responses = [(207, {}, {"refused": [1]})]
    evaluation = {"name": "e", "scorers": [{"type": "tool_errors"}]}
    config = {
        "evaluations": [evaluation],
        "exporters": {"polite_http": {"url": service.url}, "dead_letter": str(dead)},
    }
    ran = subprocess.run(
        [sys.executable, str(HERE / "exported_program.py"), json.dumps(config)],
        env={**os.environ, "PYTHONPATH": installed},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    counts = json.loads(ran.stdout.splitlines()[-1])
    assert [row["agent"] for row in service.accepted] == ["first"]
    (refused,) = [json.loads(line) for line in dead.read_text().splitlines()]
    assert (refused["agent"], refused["exporter"], refused["why"]) == (
        "second",
        "polite_http",
        "the service refused them",
    )
    assert (
        counts["results.exported{exporter=polite_http}"]
        == counts["results.dead_letters{exporter=polite_http}"]
        == 1
    )
    assert counts["results.queued{exporter=polite_http}"] == 0
