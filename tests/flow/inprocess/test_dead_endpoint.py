"""An endpoint that is gone delays the exit of a program by at most 5 s, and what was lost is
logged.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_eval.delivery.exports import Exports
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.model import Report, Trajectory
from tests.support.waiting import LIMIT_S

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("kind", "warning"),
    [
        ("grpc", "otlp.logs did not deliver 6 results before the end"),
        # old SDKs give up
        (
            "http/protobuf",
            "otlp.spans did not deliver 6 results before the end|cannot be sent as spans",
        ),
        (
            "batch",
            (
                "opentelemetry did not deliver its last results before the end|Timeout was exceeded"
                " in force_flush"
            ),
        ),  # old SDKs
        ("simple", "some runs were not scored before shutdown: an exporter does not return"),
    ],
)
@pytest.mark.slow
def test_a_dead_endpoint_delays_exit_by_at_most_5_s(kind: str, warning: str):
    """Exporters of the SDK try for longer than that, and one that exports each record at once
    blocks scoring.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "dead_endpoint_program.py"), kind],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[2])},
        check=True,
    )
    took_s = float(done.stdout.rpartition("exit took ")[2].split()[0])
    assert took_s < 30.0  # the SDK goes on for more than a minute
    assert re.search(warning, done.stderr)


def test_exporters_are_flushed_on_spare_threads_where_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
):
    """As at the end of an interpreter of Python 3.12 or later; there the deadline holds too."""
    released = threading.Event()

    class Hanging(Exporter):
        name = "hanging"

        def export(self, batch: Sequence[Report]) -> ExportResult:
            return ExportResult.ok()

        def flush(self, timeout_s: float) -> bool:
            return released.wait(300)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    exports = Exports([Hanging()])
    exports.export([Report(Trajectory(), "e", 0, ())])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert exports.flush(0.1) is False
    released.set()
    assert exports.flush(LIMIT_S) is True
