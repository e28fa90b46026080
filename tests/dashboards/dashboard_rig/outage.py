"""A product and the receiver die under a steady load of runs and come back on what they had
stored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from tests.support.receiver_process import Served
from tests.support.waiting import wait_until

from .rest import get
from .revised_run import SCORERS, TOOL
from .servers import Server, free_port

RUNS = 300
APART_S = 0.1
Row = dict[str, Any]
Stored = Callable[[list[Row]], bool]
AWAY_S = 20.0
LONGEST_POST_S = 5.0  # on a busy machine; a receiver that waits for the product would take `AWAY_S`
TIMEOUT_S = 240.0
RUN = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}


def run(number: int, project: str) -> bytes:
    """A request with a run of two calls; of every third the second one fails."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "shop", "openinference.project.name": project})
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("shop")
    with tracer.start_as_current_span(f"invoke_agent {number}", attributes=RUN):
        for call in range(2):
            span = tracer.start_span(
                "execute_tool search",
                attributes=TOOL | {"gen_ai.tool.call.arguments": f'{{"n": {call}}}'},
            )
            span.set_status(
                Status(StatusCode.ERROR if call and number % 3 == 0 else StatusCode.UNSET)
            )
            span.end()
    return encode_spans(memory.get_finished_spans()).SerializeToString()


@dataclass
class Load:
    """Sends runs one after the other, each again until the receiver takes it."""

    receiver: Served
    project: str
    taken: int = 0
    longest_s: float = 0.0
    refusals: set[int] = field(default_factory=set)
    problem: BaseException | None = None
    sending: threading.Lock = field(default_factory=threading.Lock)
    """Held while a run is sent; who holds it makes the load wait."""

    def __enter__(self) -> Load:
        """Begin."""
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(TIMEOUT_S)
        assert self.taken == RUNS, self.problem

    def _send_all(self) -> None:
        try:
            for number in range(RUNS):
                with self.sending:
                    self._send(run(number, self.project))
                time.sleep(APART_S)
        except (AssertionError, OSError) as error:
            self.problem = error

    def _send(self, body: bytes) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while (status := self._timed(body)) != 200:
            self.refusals.add(status)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.taken += 1

    def _timed(self, body: bytes) -> int:
        began = time.monotonic()
        status = self.receiver.post(body)
        if status == 200:
            self.longest_s = max(self.longest_s, time.monotonic() - began)
        return status

    def wait_for(self, count: int) -> None:
        """Until the receiver took so many runs."""
        wait_until(lambda: self.taken >= count or self.problem is not None, TIMEOUT_S)


@contextmanager
def receiver(folder: Path, **exporters: Any) -> Iterator[Served]:
    """With storage, so that what it took outlives it; it ends with the block."""
    served = Served(
        folder,
        evaluations=[{"name": "policy", "scorers": SCORERS}],
        exporters={**exporters, "jsonl": {"path": str(folder / "results.jsonl")}},
        telemetry={"endpoint": f"127.0.0.1:{free_port()}"},
    )
    served.start()
    try:
        yield served
    finally:
        served.end()


def survive(
    product: Server, served: Served, project: str, stored: Stored | None = None
) -> list[Row]:
    """Kill the product under load and, while it is away, the receiver; the distinct results once
    all are made.

    While the product is away the receiver takes every request at once, and counts that it retries.

    Args:
        stored: whether the product has the scores of these results; the load waits for that before
            the kill, for a product that acknowledges what it has not stored. None: the product is
                killed in the midst of requests.
    """
    with Load(served, project) as load:
        load.wait_for(RUNS // 6)
        if stored is None:
            product.kill()
        else:
            with load.sending:
                served.wait_for(load.taken * len(SCORERS), TIMEOUT_S)
                wait_until(lambda: stored(served.rows()), TIMEOUT_S, 0.5)
                product.kill()
        died = time.monotonic()
        load.wait_for(RUNS // 3)
        served.end()
        served.start()
        load.wait_for(RUNS // 2)
        wait_until(lambda: retries(served) > 0, TIMEOUT_S, 0.2)
        wait_until(lambda: time.monotonic() - died >= AWAY_S, TIMEOUT_S)
        product.start()
    print(
        f"longest post {load.longest_s:.2f} s, away {time.monotonic() - died:.0f} s, refusals"
        f" {load.refusals}"
    )
    assert load.refusals <= {0}  # nothing listened while the receiver itself was down
    assert load.longest_s < LONGEST_POST_S
    rows = served.wait_for(RUNS * len(SCORERS), TIMEOUT_S)
    return list({row["result_id"]: row for row in rows}.values())


def retries(served: Served) -> int:
    """Attempts to export that failed, as the receiver counts them."""
    counts = get(f"http://{served.config['telemetry']['endpoint']}/status")["counts"]
    return sum(value for name, value in counts.items() if name.startswith("results.retries"))
