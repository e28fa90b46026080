"""A server that runs as a child process of a test, and does not outlive it."""

from __future__ import annotations

import signal
import subprocess
from types import TracebackType
from typing import Final, Self

from tests.support.waiting import LIMIT_S

__all__ = ["ChildProcess"]

STOP_S: Final = LIMIT_S


class ChildProcess:
    """What servers of tests share; a subclass starts the process."""

    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, and wait until it accepts requests."""
        raise NotImplementedError

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process; AssertionError if there is none."""
        assert self.process is not None
        return self.process

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.running.kill()
        self.running.wait(STOP_S)

    def __enter__(self) -> Self:
        try:
            return self if self.process else self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.alive:
            self.kill()
