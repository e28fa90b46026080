"""The connections of a worker process to the front, in one process."""

from __future__ import annotations

import socket
import threading
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from otel_eval.app.workers import worker
from otel_eval.config import load
from tests.support.waiting import LIMIT_S


class StubServer:
    """Answers one method."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def start(self) -> None: ...

    def state(self) -> str:
        return "state"

    def stop(self, timeout_s: float) -> None: ...


def test_a_connection_for_which_no_thread_starts_is_closed_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the process, its open traces would be lost."""
    monkeypatch.setattr(worker, "Server", StubServer)
    refused, start = iter([True]), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name == "otel-eval-part" and next(refused, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    timer = SimpleNamespace(daemon=True, start=lambda: None)  # it would end this process
    monkeypatch.setattr(
        worker,
        "threading",
        SimpleNamespace(Thread=threading.Thread, Event=threading.Event, Timer=lambda *_: timer),
    )
    monkeypatch.setattr(threading.Thread, "start", limited)
    (ours, theirs), (control, front) = socket.socketpair(), Pipe()
    running = threading.Thread(target=worker._run, args=(load({}), front, theirs))
    running.start()
    assert control.recv() == (True, None)
    with pytest.raises(EOFError):
        control.recv()
    second, passed = socket.socketpair()
    with ours, theirs, control, passed:
        socket.send_fds(ours, [b"c"], [passed.fileno()])
        with worker.Connection(second.detach()) as connection:
            connection.send(("state", ()))
            assert connection.poll(LIMIT_S)
            assert connection.recv() == (True, "state")
        ours.shutdown(socket.SHUT_RDWR)
        running.join(LIMIT_S)
    assert not running.is_alive()
