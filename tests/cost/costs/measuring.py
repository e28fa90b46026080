"""What taking requests in and evaluating them costs: CPU time, and memory at its peak."""

from __future__ import annotations

import gc
import gzip
import math
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits
from otel_eval.config import load
from otel_eval.engine import Engine
from otel_eval.exporters.jsonl import JsonLinesExporter
from otel_eval.otlp import Encoding, Signal
from otel_eval.otlp.decoded_size import content_size, json_decoded_size, protobuf_decoded_size
from otel_eval.pipeline import Pipeline
from otel_eval.sources.receiver.decompression import decompress
from otel_eval.sources.receiver.export_handler import (
    DecodingHandler,
    ExportResponse,
    ExportStatus,
    ReceiverLimits,
)
from otel_eval.sources.receiver.memory import Reservation
from tests.cost.costs.otlp import body
from tests.cost.costs.shapes import Request, Shape
from tests.support.listening import Listener

__all__ = ["FORMS", "TIMES", "Cpu", "Sent", "cpu_of", "engine", "memory_of", "sent"]

# bytes of memory that a request may take beyond its estimate: runs of the same code differ by one
# MiB
FREE: Final = 3 * 2**20
FORMS: Final = ("protobuf", "json", "gzip")
"""Protobuf, JSON, and protobuf in gzip."""
TIMES: Final = 8
ROUNDS: Final = 5
FLOOR_S: Final = 1e-3  # below it other processes on the machine decide
_MOST: Final = 256 * 2**20  # the defaults of `receivers.otlp`
_MESSAGE: Final = 64 * 2**20
_ATTRIBUTES: Final = 4096
_ARGUMENT_SCORER: Final = {
    "type": "tool_call_args",
    "expected": [{"name": "search", "arguments": {"q": 1}}],
}
_DEFAULT: Final = [each.model_dump() for each in load({}).evaluations]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it is sent, and how it is encoded."""

    signal: Signal
    encoding: Encoding
    is_packed: bool
    data: bytes


def sent(requests: list[Request], form: str) -> list[Sent]:
    """The requests as they are sent in one of `FORMS`."""
    encoding = Encoding.JSON if form == "json" else Encoding.PROTOBUF
    plain = [
        Sent(Signal(signal), encoding, False, body(signal, groups, encoding.value))
        for signal, groups in requests
    ]
    return packed(plain) if form == "gzip" else plain


def packed(requests: list[Sent]) -> list[Sent]:
    """The requests in gzip."""
    return [
        Sent(each.signal, each.encoding, True, gzip.compress(each.data, 1)) for each in requests
    ]


def estimate(request: Sent) -> int:
    """What the request holds of `max_inflight_size` while it is read."""
    unpacked = gzip.decompress(request.data) if request.is_packed else request.data
    if request.encoding is Encoding.JSON:
        weight = json_decoded_size(unpacked)
    else:
        weight = protobuf_decoded_size(request.signal, unpacked, _MOST) + content_size(unpacked)
    return len(request.data) + (len(unpacked) if request.is_packed else 0) + weight


class Receiver:
    """What `otel-eval serve` does with requests, without sockets and threads; results go to a JSON
    Lines file.
    """

    def __init__(self, engine: Engine, results: Path) -> None:
        self._exporter = exporter = JsonLinesExporter(results)
        listener = Listener(lambda report: exporter.export([report]))
        self.pipeline = Pipeline(engine, listener, Limits())
        limits = ReceiverLimits(max_inflight_bytes=_MOST, max_attributes=_ATTRIBUTES)
        self._exchange = DecodingHandler(_Intake(self.pipeline), limits)

    def take(self, request: Sent) -> ExportResponse:
        """Take one request in."""

        def read(ticket: Reservation) -> bytes:
            return (
                decompress("gzip", request.data, _MESSAGE, ticket)
                if request.is_packed
                else request.data
            )

        answer = self._exchange.answer(
            "http", request.signal, request.encoding, len(request.data), read
        )
        assert answer.status is ExportStatus.ACCEPTED, answer.message
        return answer

    def evaluate(self) -> None:
        """Evaluate what was taken, and write the results."""
        self.pipeline.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exporter.close(0)


class _Intake:
    forwards = False

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def spans(self, framed: Any) -> None:
        self._pipeline.spans(framed.spans)

    def logs(self, framed: Any) -> None:
        self._pipeline.logs(framed.logs)

    def metrics(self, body: bytes) -> bool:
        return False


def engine() -> Engine:
    """The default scorers, and one that compares arguments."""
    return build_engine(
        load({"evaluations": [*_DEFAULT, {"name": "arguments", "scorers": [_ARGUMENT_SCORER]}]}),
        lines=True,
    )


@dataclass(slots=True)
class Cpu:
    """CPU seconds of intake and of evaluation, each the best of several rounds."""

    intake: float = math.inf
    evaluation: float = math.inf

    def grew(self, small: Cpu) -> float:
        """By how much, whichever grew more; what takes less than a millisecond counts as that."""
        pairs = ((self.intake, small.intake), (self.evaluation, small.evaluation))
        return max(max(great, FLOOR_S) / max(less, FLOOR_S) for great, less in pairs)


def cpu_of(
    made: Engine, shape: Shape, form: str, limit: float, scale: float = 1
) -> tuple[Cpu, Cpu]:
    """Of `n` and of eight times as many: the best of five rounds, or of fewer where it grew by less
    than `limit`.
    """
    n = max(1, int(shape.small * scale))
    requests = [sent(shape.make(each), form) for each in (n, TIMES * n)]
    small, great = Cpu(), Cpu()
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for best, each in zip((small, great), requests, strict=True):
                _measure(made, each, best)
            if great.grew(small) < limit:
                break
    finally:
        gc.enable()
    return small, great


def _measure(made: Engine, requests: list[Sent], best: Cpu) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Receiver(made, Path(folder) / "results.jsonl") as receiver,
    ):
        best.intake = min(best.intake, _cpu(lambda: [receiver.take(each) for each in requests]))
        best.evaluation = min(best.evaluation, _cpu(receiver.evaluate))


def _cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def memory_of(made: Engine, shape: Shape, scale: float = 1) -> dict[str, tuple[int, int]]:
    """For each form what it is estimated to take, and what it takes, in bytes."""
    requests = shape.make(TIMES * max(1, int(shape.small * scale)))
    protobuf = sent(requests, "protobuf")
    forms = zip(FORMS, (protobuf, sent(requests, "json"), packed(protobuf)), strict=True)
    return {form: (sum(map(estimate, each)), growth(made, each)) for form, each in forms}


def growth(made: Engine, requests: list[Sent]) -> int:
    """By how many bytes a process grows at most that takes these requests in and evaluates them;
    measured in a child.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(_grown(made, requests)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return int(said)


def _grown(made: Engine, requests: list[Sent]) -> int:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    held = _status("VmRSS")
    with (
        tempfile.TemporaryDirectory() as folder,
        Receiver(made, Path(folder) / "results.jsonl") as receiver,
    ):
        for each in requests:
            # as if just received
            receiver.take(
                Sent(each.signal, each.encoding, each.is_packed, bytes(bytearray(each.data)))
            )
        receiver.evaluate()
    return _status("VmHWM") - held


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
