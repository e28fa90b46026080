"""One event loop on a thread of its own, or on its caller's where there can be no thread any more.

Knows threads and asyncio; knows nothing of what runs.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LoopThread"]


_LAST_S: Final = 0.5  # for what is told to end when the loop ends


class _Loop(asyncio.SelectorEventLoop):
    """Resolves names even when the interpreter is ending and its pool of threads takes no work."""

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(*args, **options)
        except RuntimeError:
            return socket.getaddrinfo(*args, **options)


class LoopThread:
    """A loop that outlives the coroutines on it."""

    def __init__(self, name: str) -> None:
        self.loop: Final = _Loop()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._thread = None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self._wind_up()

    def _wind_up(self) -> None:
        """End what is left and what it holds open."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(_so(lambda: len(asyncio.all_tasks()) <= 1, _LAST_S))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Have the loop call the function soon. From any thread; never blocks."""
        self.loop.call_soon_threadsafe(function, *args)

    @property
    def is_alone(self) -> bool:
        """Whether it runs by itself; else it runs only in `run`."""
        return self._thread is not None

    def run(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Run the loop here until it is so, or the time is over."""
        self.loop.run_until_complete(_so(until, timeout_s))

    def close(self, timeout_s: float) -> bool:
        """End the loop and what is open on it; False if something holds it up, then it ends when that lets go."""
        if self._thread is None:
            self._wind_up()
            return True
        self.call(self.loop.stop)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


async def _so(until: Callable[[], bool], timeout_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not until() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)
