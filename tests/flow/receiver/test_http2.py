"""HTTP/2 that no library would write: what gRPC accepts is bounded, and other clients are not
affected.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_eval.sources.receiver import grpc_server
from otel_eval.sources.receiver.credentials import BearerTokens
from otel_eval.sources.receiver.memory import RssMonitor
from tests.support.http2_client import (
    DATA,
    HEADERS,
    MORE,
    PING,
    RESET,
    SETTINGS,
    WINDOW,
    Frames,
    frame,
    headers,
    message,
)
from tests.support.waiting import wait_until

MIB = 2**20


@pytest.fixture
def dial() -> Iterator[Callable[[str], Frames]]:
    """Opens connections and closes them."""
    opened: list[Frames] = []

    def connect(address: str) -> Frames:
        opened.append(Frames(address))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.mark.parametrize(
    ("more", "data", "response"),
    [
        ((b"grpc-encoding", b"nonsense"), message(b"", 1), b"grpc-status"),
        # compressed without grpc-encoding: INTERNAL, as gRPC asks
        ((b"x", b"y"), message(b"xx", 1), b"\x0213"),
        ((b"x", b"y"), message(b"", size=2**32 - 1), b"\x018"),
        ((b"x", b"y"), message(b"ab", size=9), b"\x013"),
        ((b"x-bin", b"!no base64!"), message(b""), b"grpc-status"),
        ((b"X-Upper", b"y"), message(b""), b"\x0213"),
        ((b"x", b"a\r\nb\0\x1b[31m"), message(b""), b"\x010"),
    ],
    ids=["encoding", "flag", "4 GiB", "cut", "base64", "upper case", "control characters"],
)
def test_a_request_that_is_no_call_gets_an_error(
    start: Any, dial: Any, more: Any, data: bytes, response: bytes
) -> None:
    """The next one on the same connection is served."""
    _, bound = start(http=None)
    client = dial(bound.grpc)
    assert response in client.answer(client.call(more, data=data))
    assert b"\x010" in client.answer(client.call(data=message(b"")))


def test_bytes_that_are_no_text_are_not_shown(
    start: Any, dial: Any, tmp_path: Path, capfd: Any, caplog: Any
) -> None:
    """A mistyped token would stand in the log, with a traceback of grpcio's."""
    (tmp_path / "tokens").write_text("right", encoding="ascii")
    receiver, bound = start(http=None, tokens=BearerTokens([str(tmp_path / "tokens")]))
    client = dial(bound.grpc)
    assert b"\x0216" in client.answer(
        client.call((b"authorization", b"Bearer righ\xff"), data=message(b""))
    )
    assert receiver.counters.get("unauthenticated_requests") == 1
    assert (caplog.messages, capfd.readouterr().err) == ([], "")


RIGHT = (b"authorization", b"Bearer right")


@pytest.mark.parametrize(
    "said",
    [
        [RIGHT, RIGHT],
        [RIGHT, (b"authorization", b"Bearer wrong")],
        [(b"authorization-bin", base64.b64encode(RIGHT[1]).rstrip(b"="))],
    ],
)
def test_a_token_is_said_once_and_as_text(
    start: Any, dial: Any, tmp_path: Path, said: list[tuple[bytes, bytes]]
) -> None:
    """Two of them could be read in two ways."""
    (tmp_path / "tokens").write_text("right", encoding="ascii")
    _, bound = start(http=None, tokens=BearerTokens([str(tmp_path / "tokens")]))
    client = dial(bound.grpc)
    assert b"\x0216" in client.answer(client.call(*said, data=message(b"")))
    assert b"\x010" in client.answer(client.call(RIGHT, data=message(b"")))


def many(made: Callable[[int], bytes]) -> bytes:
    """Five hundred streams of something."""
    return b"".join(made(stream) for stream in range(1, 1001, 2))


OPEN = headers()
FLOODS: dict[str, bytes] = {
    "pings": frame(PING, 0, 0, b"12345678") * 5000,
    "settings": frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0\0\4\x7f\xff\xff\xff") * 5000,
    "streams that are reset": many(
        lambda n: frame(HEADERS, 4, n, OPEN) + frame(RESET, 0, n, b"\0\0\0\x08")
    ),
    "calls that are reset": many(
        lambda n: (
            frame(HEADERS, 4, n, OPEN)
            + frame(DATA, 1, n, message(b""))
            + frame(RESET, 0, n, bytes(4))
        )
    ),
    "answers without a window": frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")
    + many(lambda n: frame(HEADERS, 4, n, OPEN) + frame(DATA, 1, n, message(b""))),
    "other methods": many(lambda n: frame(HEADERS, 5, n, headers(path=b"/%d/x" % n))),
    "empty data": frame(HEADERS, 4, 1, OPEN) + frame(DATA, 0, 1) * 20_000,
    "windows of a byte": frame(WINDOW, 0, 0, b"\0\0\0\1") * 20_000,
    "frames of no kind": frame(99, 0, 0, bytes(16384)) * 300,
    "headers without end": frame(HEADERS, 0, 1, OPEN) + frame(MORE, 0, 1, b"\0\1x\1y" * 3000) * 200,
    "headers of nothing": frame(HEADERS, 0, 1, OPEN) + frame(MORE, 0, 1) * 20_000,
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1000,
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_of_frames_delays_no_other_client(
    start: Any, dial: Any, capfd: Any, what: str
) -> None:
    """Sent at once by a client that reads nothing; others are served meanwhile and afterwards, and
    nothing is written.
    """
    _, bound = start(http=None)
    hostile = dial(bound.grpc)
    hostile.socket.settimeout(1)
    sender = threading.Thread(target=_poured, args=(hostile, FLOODS[what]))
    sender.start()
    for _ in range(2):
        client = dial(bound.grpc)
        assert b"\x010" in client.answer(client.call(data=message(b"")))
        sender.join()
    assert capfd.readouterr().err == ""


def _poured(client: Frames, data: bytes) -> None:
    try:
        client.socket.sendall(data)
    except OSError:
        return  # it was response enough


def test_halves_of_messages_are_not_waited_for_while_memory_grows(
    start: Any, dial: Any, intake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them may wait, as many as there is room for; more are cancelled, and honest clients
    retry.
    """
    monkeypatch.setattr(
        grpc_server,
        "RssMonitor",
        lambda limit: RssMonitor(limit, iter(range(0, 10**12, 10**9)).__next__),
    )
    _, bound = start(http=None, max_body_bytes=MIB, max_inflight_bytes=2 * MIB)
    patient = dial(bound.grpc)
    first = [patient.call(data=message(b"ab", size=MIB), end=False) for _ in range(2)]
    assert not any(patient.answer(each, 1.5) for each in first)
    patient.call(data=message(b"ab", size=MIB), end=False)
    assert patient.answer(first[0])


def resident_mib(pid: int) -> float:
    """What a process has in memory."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / MIB
    )


@contextmanager
def served(folder: Path, **otlp: Any) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A receiver as a process, and where it takes gRPC."""
    config = {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0", **otlp.pop("grpc")}}, **otlp}
        }
    }
    (folder / "eval.json").write_text(json.dumps(config), encoding="utf-8")
    words = [sys.executable, "-m", "otel_eval", "serve", "--config", str(folder / "eval.json")]
    kept = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    environment = {**kept, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            (place,) = re.findall(r"grpc=(\S+)", process.stderr.readline().decode())
            yield process, place
        finally:
            process.terminate()


def test_what_strangers_send_is_not_written_to_stderr(tmp_path: Path, dial: Any) -> None:
    """A line of gRPC's core for each would be past every limit on lines."""
    with served(tmp_path, grpc={}) as (process, place):
        for _ in range(20):
            client = dial(place)
            client.answer(
                client.call((b"grpc-encoding", b"nonsense"), (b"x", b"\xff"), data=message(b""))
            )
        process.terminate()
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    # Two of ours: what is served, and that nothing was evaluated.
    assert [line.split()[:2] for line in lines] == [
        [b"otel-eval:", b"serving"],
        [b"otel-eval:", b"nothing"],
    ]


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(),
    reason="memory is asked of /proc, which this system has not",
)
@pytest.mark.parametrize(
    ("connections", "calls"), [(24, 1), (1, 128)], ids=["connections", "calls"]
)
def test_halves_of_great_messages_take_bounded_memory(
    tmp_path: Path, dial: Any, connections: int, calls: int
) -> None:
    """As much as they would take whole is 0.7 and 4 GiB; only the kernel knows how much of them has
    arrived.
    """
    size = 32 * MIB
    with served(tmp_path, grpc={"max_message_size": size}, max_inflight_size=2 * size) as (
        process,
        place,
    ):
        before = top = resident_mib(process.pid)
        clients = [dial(place) for _ in range(connections)]
        senders = [
            threading.Thread(target=_halves, args=(client, calls, size)) for client in clients
        ]
        for sender in senders:
            sender.start()

        def is_over() -> bool:
            nonlocal top
            top = max(top, resident_mib(process.pid))
            return not any(sender.is_alive() for sender in senders)

        wait_until(is_over, interval_s=0.05)
        last = dial(place)
        assert b"\x010" in last.answer(last.call(data=message(b"")))
        for sender in senders:
            sender.join()
    assert top - before < 450


def _halves(client: Frames, calls: int, size: int) -> None:
    try:
        streams = [client.call(data=message(b"", size=size), end=False) for _ in range(calls)]
        for stream in streams:
            client.pour(stream, size - MIB, 4.0 / calls)
    except OSError:
        return
