"""`otel-eval serve` as a process of its own that never outlives its caller's block.

Knows how a process is started, is ready and ends; knows nothing of spans.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from otel_eval.errors import OtelEvalError

__all__ = ["serving"]

READY_S: Final = 30.0  # a cold machine loads grpc for a while
STOP_S: Final = 15.0


@contextmanager
def serving(config: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve a configuration while the block runs; gives the addresses, e.g. `{"grpc": "127.0.0.1:40001", "http": ...}`.

    Raises:
        OtelEvalError: the receiver was not ready in time, or did not end well.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(config)],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _addresses(process)
        process.terminate()
        code = process.wait(STOP_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code:
        raise OtelEvalError(f"the receiver ended with exit code {code}")


def _addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_forward, args=(process, lines), daemon=True).start()
    try:
        first = lines.get(timeout=READY_S)
    except queue.Empty:
        first = ""
    if not first.startswith("ready "):
        raise OtelEvalError(f"the receiver was not ready: {first.strip() or 'it said nothing'}")
    return dict(part.split("=", 1) for part in first.split()[1:])


def _forward(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """The first line to whoever waits for it, later ones to our own stderr."""
    assert process.stderr is not None
    with process.stderr:
        lines.put(process.stderr.readline())
        for line in process.stderr:
            sys.stderr.write(line)
