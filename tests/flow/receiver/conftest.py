"""A receiver on free loopback ports in front of a list."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.errors import Overloaded
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.sources.receiver.credentials import Certificates
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.sources.receiver.server import Bound, OtlpServer

Start = Callable[..., tuple[OtlpServer, Bound]]


class ListIntake:
    """Keeps what it is given; refuses, breaks or waits when told to."""

    forwards = False

    def __init__(self) -> None:
        self.taken: list[SpanBatch] = []
        self.full = False
        self.broken = False
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def spans(self, framed: SpanBatch) -> None:
        self.entered.release()
        assert self.gate.wait(300)
        if self.full:
            raise Overloaded("full")
        if self.broken:
            raise ZeroDivisionError("a fault of ours")
        self.taken.append(framed)

    def logs(self, framed: SpanBatch) -> None:
        self.spans(framed)

    def metrics(self, body: bytes) -> bool:
        return False

    def names(self) -> list[str]:
        """Of the spans that were taken, in order."""
        return [
            resource_scope.reader(payload).name
            for framed in self.taken
            for _, _, (_, payload, resource_scope), _ in framed.spans
        ]


@pytest.fixture
def intake() -> ListIntake:
    return ListIntake()


@pytest.fixture
def start(intake: ListIntake) -> Iterator[Start]:
    """Starts a receiver with options; each is stopped when the test ends."""
    running: list[OtlpServer] = []

    def begin(**options: Any) -> tuple[OtlpServer, Bound]:
        limits = {
            each.name: options.pop(each.name)
            for each in fields(ReceiverLimits)
            if each.name in options
        }
        files = {
            each: options.pop(f"{each}_tls")
            for each in ("grpc", "http")
            if f"{each}_tls" in options
        }
        opening = {
            each: partial(Certificates, f"receivers.otlp.protocols.{each}.tls", **found)
            for each, found in files.items()
        }
        receiver = OtlpServer(
            DecodingHandler(intake, ReceiverLimits(**limits), options.pop("tokens", None)),
            certificates=opening,
            **{"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"} | options,
        )
        running.append(receiver)
        return receiver, receiver.start()

    yield begin
    intake.gate.set()
    for receiver in running:
        receiver.stop(1.0)


@pytest.fixture
def channel() -> Iterator[Callable[..., grpc.Channel]]:
    """Opens gRPC channels and closes them."""
    opened: list[grpc.Channel] = []

    def dial(address: str, *options: tuple[str, int]) -> grpc.Channel:
        opened.append(grpc.insecure_channel(address, options=options))
        return opened[-1]

    yield dial
    for each in opened:
        each.close()


@pytest.fixture
def request_of() -> Callable[..., ExportTraceServiceRequest]:
    """Builds a request of spans with the names given; a name of "" is a span without a trace id."""

    def build(*names: str) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        scope = request.resource_spans.add().scope_spans.add()
        for number, name in enumerate(names, 1):
            scope.spans.add(
                trace_id=b"t" * 16 if name else b"", span_id=number.to_bytes(8, "big"), name=name
            )
        return request

    return build


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The most bytes that Python held since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
