"""One event loop on a thread of its own, or on its caller's where there can be no thread any more.

Knows threads and asyncio; knows nothing of what runs.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

__all__ = ["LoopThread"]

_LAST_S: Final = 0.5  # for what is told to end when the loop ends
_BEAT_S: Final = 1.0


class _Loop(asyncio.SelectorEventLoop):
    """Resolves names even when the interpreter is ending and its pool of threads takes no work."""

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(*args, **options)
        except RuntimeError:
            return socket.getaddrinfo(*args, **options)


class LoopThread:
    """A loop that outlives the coroutines on it.

    Attributes:
        slots: for those of them that want to be few at a time.
    """

    def __init__(self, name: str, slots: int) -> None:
        self._loop: Final = _Loop()
        self.slots: Final = asyncio.Semaphore(slots)
        self._tasks: Final[set[asyncio.Task[None]]] = set()  # of the loop's thread
        self._beat = time.monotonic()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._thread = None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._tick)
        self._loop.run_forever()
        self._wind_up()

    def _tick(self) -> None:
        self._beat = time.monotonic()
        self._loop.call_later(_BEAT_S, self._tick)

    def _wind_up(self) -> None:
        """End what is left and what it holds open."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(_so(lambda: len(asyncio.all_tasks()) <= 1, _LAST_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def is_alone(self) -> bool:
        """Whether it runs by itself; else it runs only in `run`."""
        return self._thread is not None

    def is_blocked(self, for_s: float) -> bool:
        """Whether something has not let go of the loop for so long."""
        return self._thread is not None and time.monotonic() - self._beat > for_s + _BEAT_S

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Have the loop run the coroutine. From any thread; never blocks."""
        self._loop.call_soon_threadsafe(self._begin, coroutine)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Tell every coroutine to end."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def run(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Run the loop here until it is so, or the time is over."""
        self._loop.run_until_complete(_so(until, timeout_s))

    def close(self, timeout_s: float) -> None:
        """End the loop and what is open on it; where something blocks it, it ends when that lets go."""
        if self._thread is None:
            return self._wind_up()
        self._loop.call_soon_threadsafe(self._loop.stop)
        return self._thread.join(timeout_s)


async def _so(until: Callable[[], bool], timeout_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not until() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)
