"""A server under test: a process group of its own on loopback, which ends with the test, or by
itself after half an hour.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

LIFETIME_S = 1800
LISTENS = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, also as an IPv6 address
START_S = 240  # of a product on a busy machine; 50 s were measured on a quiet one


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """Runs while the `with` block does; entering waits until `ready`. What it prints is in
    `output`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._command, self._folder, self._ready = command, cwd or folder, ready
        self._environment = {**os.environ, **(environment or {})}
        self.output = folder / f"{Path(command[0]).name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        """Start and wait."""
        self.start()
        return self

    def start(self) -> None:
        """Begin, also once more after `kill`, and wait."""
        bounded = ["timeout", "--kill-after=10", str(LIFETIME_S)]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*bounded, *map(str, self._command)],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _await(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._ready():
            assert self._process is not None
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-4000:]

    def listening(self) -> set[str]:
        """Addresses at which its processes listen, in the notation of the kernel; Linux only."""
        assert self._process is not None
        sockets = {link for pid in _session(self._process.pid) for link in _descriptors(pid)}
        rows = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path("/proc/net", table).read_text().splitlines()[1:]
        ]
        return {
            row[1].split(":")[0]
            for row in rows
            if row[3] == LISTENS and f"socket:[{row[9]}]" in sockets
        }

    def kill(self) -> None:
        """End the whole group without a warning."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(15)

    def stop(self) -> int:
        """End the whole group, since helper processes outlive the signal to their parent; the exit
        code.
        """
        assert self._process is not None
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        return self._process.wait(15)


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def _descriptors(pid: int) -> list[str]:
    with suppress(OSError):
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    return []
