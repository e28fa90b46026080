"""`otel-eval serve` with storage as a process that can be killed, and traces whose scores are
known.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.storage.record_types import RecordKind
from otel_eval.storage.segments import Damage, scan
from tests.support.fork_server import ForkedProcess, ForkServer
from tests.support.waiting import LIMIT_S, STAYS_OPEN, wait_until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def request(*spans: tuple[int, int, int, str]) -> bytes:
    """Spans as (trace, span, parent, tool), numbers for ids; without a tool it is an agent's own
    span.
    """
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    name = resource.resource.attributes.add()
    name.key, name.value.string_value = "service.name", "shop"
    scope = resource.scope_spans.add()
    for trace, number, parent, tool in spans:
        span = scope.spans.add(
            trace_id=trace.to_bytes(16), span_id=number.to_bytes(8), name=tool or "agent", kind=1
        )
        span.parent_span_id = parent.to_bytes(8) if parent else b""
        span.start_time_unix_nano, span.end_time_unix_nano = (
            1_700_000_000_000_000_000 + number,
            1_700_000_001_000_000_000,
        )
        names = {"gen_ai.operation.name": "execute_tool" if tool else "invoke_agent"}
        names |= {"gen_ai.tool.name": tool} if tool else {"gen_ai.agent.name": "seller"}
        for key, value in names.items():
            attribute = span.attributes.add()
            attribute.key, attribute.value.string_value = key, value
    return message.SerializeToString()


def whole(trace: int, tools: int = 3) -> bytes:
    """A whole run with so many calls of `search`; `tool_call_count` of it is known."""
    return request((trace, 1, 0, ""), *((trace, 2 + n, 1, "search") for n in range(tools)))


class Served:
    """One receiver over several lives."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.results = folder / "results.jsonl"
        self.storage = folder / "kept"
        self.config: dict[str, Any] = {
            "traces": {
                "decision_wait": "200ms",
                "decision_wait_partial": "15m",
                "idle_timeout": "15m",
                "grace_period": "1h",
            },
            "evaluations": [
                {
                    "name": "e",
                    "scorers": [{"type": "tool_call_count", "criteria": {"search": "<= 3"}}],
                }
            ],
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
            "exporters": {"jsonl": {"path": str(self.results)}},
            "storage": {"directory": str(self.storage)},
        } | config
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.fork_server: ForkServer | None = None  # which starts it in a fraction of the time
        self.environment: dict[str, str] = {}
        self.address = ""
        self.retry_after = 0.0

    def start(
        self, *words: str, limit: Callable[[], None] | None = None, awaited: bool = True
    ) -> None:
        """Begin a life; `awaited`: wait until it is ready."""
        path = self.folder / "eval.json"
        path.write_text(json.dumps(self.config))
        command, said = ["serve", "--config", str(path), *words], self.folder / "said"
        said.write_bytes(b"")
        if self.fork_server is not None and limit is None:
            self.process = self.fork_server.start(
                command, Path.cwd(), ENVIRONMENT | self.environment, stderr=said
            )
        else:
            self.process = self._new_process(command, said, limit)
        if awaited:
            self._await()

    def _new_process(
        self, command: list[str], said: Path, limit: Callable[[], None] | None
    ) -> subprocess.Popen[bytes]:
        with said.open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "otel_eval", *command],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                preexec_fn=limit,
                env=ENVIRONMENT | self.environment,
            )

    def _await(self) -> None:
        assert self.process is not None

        def is_ready() -> bool:
            found = re.search(r"^ready .*http=(\S+)[ \n]", self.said(), re.MULTILINE)
            assert found or process.poll() is None, self.said()
            self.address = found[1] if found else ""
            return found is not None

        process = self.process
        wait_until(is_ready)

    def said(self) -> str:
        """What this life wrote to stderr so far."""
        return (self.folder / "said").read_text()

    def post(self, body: bytes, what: str = "traces", kind: str = "application/x-protobuf") -> int:
        """The status; 0 if nothing listens."""
        asked = urllib.request.Request(
            f"http://{self.address}/v1/{what}",
            data=body,
            headers={"Content-Type": kind},
            method="POST",
        )
        try:
            with _OPENER.open(asked, timeout=300) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                self.retry_after = float(error.headers.get("Retry-After", 0))
                return error.code
        except OSError:
            return 0

    def insist(self, body: bytes) -> None:
        """Send until it is taken, as an exporter does."""
        wait_until(lambda: self.post(body) == 200)

    def leave_open(self, *bodies: bytes, then: str = "100ms") -> None:
        """Spend a life in which the requests are taken and no trace is closed; in later lives
        `decision_wait` is `then`.
        """
        traces = self.config["traces"]
        self.config["traces"] = traces | STAYS_OPEN
        self.start()
        for body in bodies:
            assert self.post(body) == 200
        assert self.end(signal.SIGTERM) == 0
        self.config["traces"] = traces | {"decision_wait": then}

    def recorded(self, kind: RecordKind) -> list[bytes]:
        """The payloads of the records of this kind in the journal."""
        return [
            record.payload
            for segment in self.storage.glob("*.journal")
            for record in scan(segment.read_bytes(), Damage())
            if record.kind == kind
        ]

    def end(self, number: int = signal.SIGKILL) -> int:
        """End the life; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def rows(self) -> list[dict[str, Any]]:
        """The results so far; a line that is being written is left out."""
        text = self.results.read_text() if self.results.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, count: int, limit_s: float = LIMIT_S) -> list[dict[str, Any]]:
        """The results once there are so many distinct ones."""
        wait_until(lambda: len({row["result_id"] for row in self.rows()}) >= count, limit_s)
        return self.rows()


def twice(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Result ids that occur more than once."""
    return {
        key: count for key, count in Counter(row["result_id"] for row in rows).items() if count > 1
    }
