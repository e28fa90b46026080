"""Clients that mean harm, beside one that does not: its runs are scored as if it were alone."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Self

import grpc

from otel_eval.wire import sized
from tests.faults.fault_rig.outcome import Outcome, settled
from tests.faults.fault_rig.sender import METHOD, Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of
from tests.fuzz.fuzzing.hostile import SHAPES
from tests.fuzz.fuzzing.mutation import spoilt
from tests.fuzz.fuzzing.seeds import seeds

__all__ = ["bombs", "flood", "hollow", "malformed", "slow_loris"]

MIB: Final = 2**20
LOGS: Final = METHOD.replace("trace.v1.TraceService", "logs.v1.LogsService")
ANSWERS: Final = {200, 400, 413, 415, 503}
CODES: Final = {
    "OK",
    "INVALID_ARGUMENT",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "INTERNAL",
    "UNIMPLEMENTED",
}
JSON, PROTOBUF = "application/json", "application/x-protobuf"
WAYS: Final = {
    "traces-protobuf": ("/v1/traces", PROTOBUF, ""),
    "logs-protobuf": ("/v1/logs", PROTOBUF, ""),
    "traces-json": ("/v1/traces", JSON, ""),
    "logs-json": ("/v1/logs", JSON, ""),
    "metrics-json": ("/v1/metrics", JSON, ""),
    "gzip": ("/v1/traces", JSON, "gzip"),
}


class _Attacker:
    """Posts over HTTP and calls over gRPC; books the answers."""

    def __init__(self, service: Service) -> None:
        self.answers: Counter[str] = Counter()
        self._service = service
        self._channel = grpc.insecure_channel(
            service.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        if self._connection is not None:
            self._connection.close()

    def post(self, path: str, content_type: str, coding: str, data: bytes) -> None:
        headers = {"Content-Type": content_type} | ({"Content-Encoding": coding} if coding else {})
        host, port = self._service.http.rsplit(":", 1)
        connection = self._connection or http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("POST", path, data, headers)
        answer = connection.getresponse()
        answer.read()
        self._connection = connection
        if answer.will_close:
            connection.close()
        assert answer.status in ANSWERS, answer.status
        self.answers[str(answer.status)] += 1

    def call(
        self,
        method: str,
        data: bytes,
        compression: grpc.Compression = grpc.Compression.NoCompression,
    ) -> None:
        try:
            self._channel.unary_unary(method)(data, timeout=60, compression=compression)
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        assert code in CODES, code
        self.answers[code] += 1

    def __str__(self) -> str:
        return ", ".join(f"{count} × {answer}" for answer, count in sorted(self.answers.items()))


@contextmanager
def _beside(
    folder: Path, runs: int, protocol: str = "grpc"
) -> Iterator[tuple[Service, Sender, Callable[..., Outcome]]]:
    """A receiver under an honest load; what is given makes the row when the attack is over, with a
    warning that is expected.
    """
    sent = [run_of(number) for number in range(runs)]
    with Service(configuration(folder)) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http), protocol=protocol)
        load = threading.Thread(
            target=sender.send,
            args=(requests_of(sent, at_once=2),),
            kwargs={"within_s": 120, "threads": 2},
        )
        load.start()

        def finished(done: str, times: int, other: str, warned: tuple[str, ...] = ()) -> Outcome:
            load.join()
            assert len(sender.acknowledged) == runs, (
                f"{len(sender.acknowledged)} of {runs}: {sender.answers}"
            )
            assert service.metric("receiver_internal_errors_total") == 0
            books = settled(service, sent, sender, within_s=60)
            said = [line for line in service.said() if not any(words in line for words in warned)]
            assert said == [], said[:3]
            return Outcome(done, times, books, other)

        try:
            yield service, sender, finished
        finally:
            sender.stopped.set()
            load.join()


def malformed(folder: Path, *, bodies: int, runs: int) -> Outcome:
    """Spoilt bodies of each encoding, on both protocols."""
    given = seeds()
    with _beside(folder, runs) as (service, _, finished), _Attacker(service) as attacker:
        for target, (path, content_type, coding) in WAYS.items():
            for data in islice(spoilt(given[target], bodies), bodies):
                attacker.post(path, content_type, coding, data)
        for target, method in (("traces-protobuf", METHOD), ("logs-protobuf", LOGS)):
            for data in islice(spoilt(given[target], bodies + 1), bodies):
                attacker.call(method, data)
        times = (len(WAYS) + 2) * bodies
        return finished(
            "corrupted bodies of six encodings over HTTP, of two over gRPC",
            times,
            f"answers: {attacker}",
        )


def _bombs(size: int) -> Iterator[tuple[str, str, bytes]]:
    """(coding, content type, body): each unpacks, or would, to far more than it weighs."""
    yield "gzip", PROTOBUF, gzip.compress(bytes(size))
    yield "gzip", JSON, gzip.compress(gzip.compress(bytes(size)))
    yield "gzip", JSON, gzip.compress(b"[" * size)
    yield "gzip", JSON, gzip.compress(b"") * (size // 200)
    yield "deflate", PROTOBUF, zlib.compress(bytes(size))
    for target, content_type in (("traces-protobuf", PROTOBUF), ("traces-json", JSON)):
        for shape in SHAPES[target]:
            yield "", content_type, shape(size // 200)


def bombs(folder: Path, *, mib: int, runs: int) -> Outcome:
    """What unpacks or parses to far more than it weighs, over HTTP and gRPC."""
    with _beside(folder, runs) as (service, _, finished), _Attacker(service) as attacker:
        before = service.rss()
        for coding, content_type, data in _bombs(mib * MIB):
            attacker.post("/v1/traces", content_type, coding, data)
        for data in (bytes(mib * MIB), b"\x0a\x00" * (mib * MIB // 200)):
            attacker.call(METHOD, data, grpc.Compression.Gzip)
        grown = (service.peak() - before) // MIB
        times = sum(attacker.answers.values())
        assert grown < 256 + 64 + 128, f"grew by {grown} MiB"
        figures = f"memory grew by {grown} MiB at most; answers: {attacker}"
        # One of the bombs is a trace of very many spans.
        return finished(
            f"bombs of {mib} MiB unpacked",
            times,
            figures,
            warned=("traces.max_spans_per_trace", "of no agent run"),
        )


def _nothing(size: int) -> Iterator[tuple[str, bytes]]:
    """(content type, body) of so many bytes that hold hardly anything, and become as many objects
    as can be.
    """
    scopes = (sized(2, sized(1, sized(1, b"%07d" % number))) for number in range(size // 13))
    yield PROTOBUF, sized(1, sized(2, b"\x12\x00" * (size // 2)))
    yield PROTOBUF, b"\x0a\x00" * (size // 2)
    yield PROTOBUF, sized(1, b"".join(scopes))
    for each in (b"{}", b"[]", b'{"":0}'):
        yield (
            JSON,
            b'{"resourceSpans":[{"scopeSpans":[{"spans":['
            + b",".join([each] * (size // (len(each) + 1)))
            + b"]}]}]}",
        )


def hollow(folder: Path, *, sizes: tuple[int, ...], threads: int, runs: int) -> Outcome:
    """Requests of nearly nothing, of each size in KiB, some at once: taken, rejected or refused,
    whatever they would become.
    """
    bodies = [each for size in sizes for each in _nothing(size * 1024)]
    with _beside(folder, runs) as (service, _, finished):
        before, answers = service.rss(), Counter[str]()

        def attack() -> None:
            with _Attacker(service) as attacker:
                for content_type, data in bodies:
                    attacker.post("/v1/traces", content_type, "", data)
                answers.update(attacker.answers)

        attackers = [threading.Thread(target=attack) for _ in range(threads)]
        for each in attackers:
            each.start()
        for each in attackers:
            each.join()
        grown = (service.peak() - before) // MIB
        told = ", ".join(f"{count} × {answer}" for answer, count in sorted(answers.items()))
        assert sum(answers.values()) == threads * len(bodies)
        assert grown < 256 + 64 + 128, f"grew by {grown} MiB"
        figures = f"max_inflight_size 256 MiB: memory grew by {grown} MiB at most; answers: {told}"
        many = f"{threads} at once, of up to {max(sizes) / 1024:g} MiB"
        return finished(
            f"spans, scopes and objects of nothing, {many}", threads * len(bodies), figures
        )


def slow_loris(folder: Path, *, connections: int, seconds: float, runs: int) -> Outcome:
    """Connections that send a header or a body a byte at a time and never end."""
    with _beside(folder, runs, "http") as (service, _, finished), ExitStack() as stack:
        host, port = service.http.rsplit(":", 1)
        slow = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            for _ in range(connections)
        ]
        text = (
            b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/x-protobuf\r\nContent-Length:"
            b" 100000\r\n\r\n" + bytes(99_999)
        )
        before, end, at, left = service.rss(), time.monotonic() + seconds, 0, set(slow)
        while time.monotonic() < end:
            for number, each in enumerate(list(left)):
                try:
                    each.sendall(text[at : at + 1] if number % 2 else text[: at + 1][-1:])
                except OSError:
                    left.discard(each)
            at += 1
            time.sleep(0.05)
        grown = (service.rss() - before) // MIB
        assert grown < 64, f"grew by {grown} MiB"
        figures = (
            f"{connections - len(left)} of them were refused or closed; memory grew by {grown} MiB"
        )
        return finished(
            f"HTTP connections that send a byte each 50 ms for {seconds:g} s", connections, figures
        )


def flood(folder: Path, *, connections: int, runs: int) -> Outcome:
    """Connections opened, and left or reset, as fast as can be, on both ports."""
    with _beside(folder, runs) as (service, _, finished):
        before, opened = service.rss(), 0
        for place in (service.http, service.grpc):
            host, port = place.rsplit(":", 1)
            held: list[socket.socket] = []
            for number in range(connections):
                try:
                    each = socket.create_connection((host, int(port)), timeout=2)
                except OSError:
                    continue
                opened += 1
                if number % 2:
                    # close is a reset
                    each.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    )
                    each.close()
                else:
                    held.append(each)
            for each in held:
                each.close()
        cancelled = _cancelled(service, 10 * connections)
        grown = (service.rss() - before) // MIB
        assert grown < 128, f"grew by {grown} MiB"
        assert _answers(service), "no HTTP client is served after the flood"
        figures = (
            f"{opened} connections and {cancelled} calls; memory grew by {grown} MiB; served at"
            " once afterwards"
        )
        return finished(
            "connections, every second one reset, and gRPC calls reset at once",
            opened + cancelled,
            figures,
        )


def _cancelled(service: Service, calls: int) -> int:
    """Begin calls and reset each at once."""
    with grpc.insecure_channel(
        service.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        call = channel.unary_unary(METHOD)
        return sum(call.future(bytes(1000), timeout=30).cancel() for _ in range(calls))


def _answers(service: Service) -> bool:
    with _Attacker(service) as attacker:
        for _ in range(50):
            attacker.post("/v1/traces", PROTOBUF, "", b"")
            if attacker.answers["200"]:
                return True
            time.sleep(0.1)
    return False
