"""The real receiver as a process: configure, start, look at, stop, kill.

Knows its command line and what /proc tells of it. Every process started here is ended here.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.faults.fault_rig.reference import CONVENTIONS, EVALUATION
from tests.support.child_process import ChildProcess
from tests.support.failing_endpoint import free_port
from tests.support.waiting import LIMIT_S

__all__ = ["Service", "configuration", "free_port"]

ROOT: Final = Path(__file__).parents[3]
QUICK: Final = {
    "decision_wait": "300ms",
    "decision_wait_partial": "500ms",
    "grace_period": "10s",
    "idle_timeout": "60s",
    "max_age": "120s",
}


def configuration(
    folder: Path,
    *,
    traces: Mapping[str, Any] | None = None,
    scorers: tuple[Any, ...] = (),
    protocol: Mapping[str, Any] | None = None,
    receiver: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Write a configuration with results as JSON Lines in `results.jsonl`.

    Args:
        folder: where to.
        traces, protocol, receiver: keys beside the rig's own, of `traces`, of both protocols, of
            the OTLP receiver.
        scorers: of a second evaluation.
        more: further top-level keys.
    """
    protocols = {
        name: {"endpoint": f"127.0.0.1:{free_port()}", **(protocol or {})}
        for name in ("grpc", "http")
    }
    whole = {
        "traces": {**QUICK, **(traces or {})},
        "conventions": CONVENTIONS,
        "evaluations": [
            EVALUATION,
            *([{"name": "broken", "scorers": list(scorers)}] if scorers else []),
        ],
        "receivers": {"otlp": {"protocols": protocols, **(receiver or {})}},
        "telemetry": {"endpoint": "127.0.0.1:0"},
        "exporters": {"jsonl": {"path": str(folder / "results.jsonl")}},
        **more,
    }
    path = folder / "eval.json"
    path.write_text(json.dumps(whole))
    return path


class Service(ChildProcess):
    """`otel-eval serve` in a process of its own.

    Args:
        config: its file; the folder of it is where the process runs and where `stderr` is written
            to.
        limits: of resources, by their name in `resource`, such as {"RLIMIT_FSIZE": bytes}.
        env: variables beside those of this process.
        before: a line of Python that the process runs first, to prepare a fault.
    """

    def __init__(
        self,
        config: Path,
        *,
        limits: Mapping[str, int] | None = None,
        env: Mapping[str, str] | None = None,
        before: str = "",
    ) -> None:
        self.config, self.folder = config, config.parent
        self.errors = self.folder / "stderr"
        self.results = self.folder / "results.jsonl"
        self._limits, self._env, self.before = dict(limits or {}), dict(env or {}), before
        self.grpc = self.http = self.telemetry = ""
        self.starts = 0
        self.highest_rss = 0

    def start(self, *, may_die: bool = False) -> Self:
        """Start, and wait until it says that it is ready.

        Raises:
            AssertionError: it ended, which it may do only if it `may_die`, or is not ready in time.
        """
        program = f"{self.before}\nimport sys; from otel_eval.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "serve", "--config", str(self.config)]
        with self.errors.open("ab") as errors, (self.folder / "stdout").open("ab") as out:
            said = self.errors.stat().st_size
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                cwd=self.folder,
                env=self._environment(),
                preexec_fn=self._confine(),
            )
        self.starts += 1
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            text = self.errors.read_bytes()[said:].decode(errors="replace")
            if found := re.search(r"^ready (\S+=.*)$", text, re.MULTILINE):
                at = dict(each.split("=", 1) for each in found[1].split())
                self.grpc, self.http, self.telemetry = (
                    at.get(name, "") for name in ("grpc", "http", "telemetry")
                )
                return self
            if may_die and not self.alive:
                return self
            assert self.alive, f"ended with {self.process.returncode}: {text}"
            time.sleep(0.01)
        raise AssertionError("not ready in time")

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests" / "faults"))),
            **self._env,
        }

    def _confine(self) -> Callable[[], None] | None:
        if not self._limits:
            return None
        limits = [(getattr(resource, name), value) for name, value in self._limits.items()]

        def confine() -> None:
            for which, value in limits:
                resource.setrlimit(which, (value, value))

        return confine

    def workers(self) -> list[int]:
        """The process ids of its workers."""
        tasks = Path(f"/proc/{self.running.pid}/task").glob("*/children")
        children = [int(pid) for file in tasks for pid in file.read_text().split()]
        return [
            pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def rss(self) -> int:
        """Bytes of memory that it holds; the highest ever seen is kept."""
        pages = int(Path(f"/proc/{self.running.pid}/statm").read_text().split()[1])
        size = pages * os.sysconf("SC_PAGE_SIZE")
        self.highest_rss = max(self.highest_rss, size)
        return size

    def peak(self) -> int:
        """The most memory that the process ever held, as the kernel kept it, in bytes."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def metric(self, name: str, *, absent: int | None = None) -> int:
        """The sum of one of the receiver's own metrics, without what Prometheus adds to its name,
        over its labels.

        Raises:
            AssertionError: there is none, and no value for when it is `absent`.
        """
        host, port = self.telemetry.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        found = re.findall(
            rf"^otel_eval_{name}(?:_total|_bytes|_seconds)?(?:{{.*}})? (\S+)$", text, re.MULTILINE
        )
        assert found or absent is not None, f"no metric {name}"
        return int(sum(map(float, found))) if found else absent or 0

    def said(self) -> list[str]:
        """Lines on stderr but for those of the start."""
        lines = self.errors.read_text(errors="replace").splitlines() if self.errors.exists() else []
        return [line for line in lines if not line.startswith(("ready ", "otel-eval: serving "))]
