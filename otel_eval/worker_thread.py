"""A thread that serves a queue, in order, one item at a time.

If no thread can be started any more (the interpreter is shutting down), or the caller cannot wait,
the caller serves the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

from otel_eval.counters import Warnings

_STOP: Final = object()
_POLL_S: Final = 0.1


class WorkerThread:
    """A thread that serves a queue of items.

    Args:
        name: of the thread.
        failed: the log message if `serve` or `tick` raises, logged at most once a minute.
        serve: called with each item; without it items are functions, which are called.
        tick: called about every `tick_s` seconds, between items.

    Attributes:
        failures: how often `serve` or `tick` raised.
    """

    def __init__(
        self,
        name: str,
        failed: str,
        serve: Callable[[Any], None] = lambda item: item(),
        tick: Callable[[], None] = lambda: None,
        tick_s: float = 3600.0,
    ) -> None:
        self._serve_one, self._tick, self._tick_s = serve, tick, tick_s
        self._name, self._failed = name, failed
        self.failures = 0
        self._warnings: Final = Warnings()
        self.reset()

    def reset(self) -> None:
        """Begin with an empty queue and no thread, also in a child process after a fork, where only
        the forking thread lives.
        """
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.put = self._queue.put  # implemented in C: neither blocks nor is interrupted
        self._serving = threading.RLock()  # held while an item is served
        # the thread that serves now: serving may end spans, which must not serve in turn
        self._serving_thread = 0
        self._starting = threading.Lock()  # guards _thread
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ensure(self) -> bool:
        """Start the thread if it does not run; False if it cannot be started."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            return True
        if self._stopped or not self._starting.acquire(blocking=False):
            return not self._stopped
        try:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, args=(self._queue,), name=self._name, daemon=True
                )
                self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._thread = None
            return False
        finally:
            self._starting.release()
        return True

    def _run(self, queue: SimpleQueue[Any]) -> None:
        next_tick = time.monotonic() + self._tick_s
        while True:
            try:
                item = queue.get(timeout=max(0.0, next_tick - time.monotonic()))
            except Empty:
                item = None
            if item is _STOP:
                return
            if item is not None:
                self._serve(item)
            if time.monotonic() >= next_tick:
                self._safely(self._tick)
                next_tick = time.monotonic() + self._tick_s

    def _serve(self, item: Any) -> None:
        with self._serving:
            if isinstance(item, threading.Event):
                item.set()
                return
            self._serving_thread = threading.get_ident()
            try:
                self._safely(self._serve_one, item)
            finally:
                self._serving_thread = 0

    def _safely(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - an error with one item must not end the thread
            self.failures += 1
            self._warnings.say(
                "failed", "%s: %s (%d so far)", self._failed, type(error).__name__, self.failures
            )

    def serve_here(self, wait_s: float = 0.2) -> None:
        """Serve the queued items on the calling thread, if the worker finishes its current item
        within `wait_s` seconds.
        """
        if (
            self._queue.empty()
            or self._serving_thread == threading.get_ident()
            or not self._serving.acquire(timeout=wait_s)
        ):
            return
        try:
            while True:
                item = self._queue.get_nowait()
                if item is not _STOP:
                    self._serve(item)
        except Empty:
            return
        finally:
            self._serving.release()

    def drain(self, timeout_s: float, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all items put before are served; False after `timeout_s` seconds or once
        `cancelled` returns true.
        """
        if threading.current_thread() is self._thread:
            return True
        done = threading.Event()
        self.put(done)
        if not self.ensure():
            self.serve_here(timeout_s)
        deadline = time.monotonic() + timeout_s
        while not done.wait(max(0.0, min(_POLL_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline or cancelled():
                return False
        return True

    def stop(self, timeout_s: float, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Drain the queue and end the thread; False if the queue was not drained in time.
        `cancelled` as for `drain`.
        """
        if self._stopped:
            return True
        drained = self.drain(timeout_s, cancelled)
        self._stopped = True
        self.put(_STOP)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(0.1 if drained else 0)
        return drained

    def end(self) -> None:
        """End the thread after the items that were put before, without waiting for it."""
        self._stopped = True
        self.put(_STOP)
