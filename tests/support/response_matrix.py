"""What happens to one item for each response of an endpoint, tried over a real socket; and the
table of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from otel_eval.app.build import build_engine
from otel_eval.config import Storage, load
from otel_eval.counters import Counters, count_name, without_labels
from otel_eval.delivery.export_queue import ExportQueue
from otel_eval.delivery.exports import Exports
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.exporters.otlp import OtlpSignalExporter
from otel_eval.forwarding.stage import Forwarder
from otel_eval.model import Report, Result, Scored
from otel_eval.otlp.endpoint import Endpoint as To
from otel_eval.otlp.protobuf import RawRequest
from otel_eval.otlp.tls import ClientTls
from otel_eval.retry import RetryPolicy
from otel_eval.storage.durable import AcknowledgedRequest, Durable
from otel_eval.testing import trajectory
from tests.support.failing_endpoint import (
    MISREAD,
    PAGE,
    PARTIAL,
    REFUSED,
    RESET,
    THROTTLED,
    TIMEOUT,
    Endpoint,
)
from tests.support.queued_exporters import otlp_exporters
from tests.support.waiting import LIMIT_S

ENGINE: Final = build_engine(
    load({"evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}]}]})
)
CODES: Final = (302, 400, 401, 403, 404, 405, 408, 413, 429, 500, 501, 502, 503, 504)
RESPONSES: Final[dict[str, tuple[str, ...]]] = {
    "http/protobuf": (*map(str, CODES), PAGE, REFUSED, RESET, TIMEOUT, MISREAD, PARTIAL),
    "grpc": (
        *sorted(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK),
        *(THROTTLED, REFUSED, RESET, TIMEOUT, MISREAD, PARTIAL),
    ),
}
TIMEOUT_S: Final = 0.2  # of one attempt, in the row of responses that do not come
LONG_S: Final = 30.0  # in the others: a busy machine must not add to them
PATIENT_S: Final = LIMIT_S
RECHECK_S: Final = 60.0
GIVE_UP_S: Final = 900.0


class Rig(Protocol):
    """One exporter of one signal."""

    tally: Counters
    is_impatient: bool  # attempts end after a short time, also on a busy machine

    def give(self) -> None:
        """One item more."""

    def push(self) -> None:
        """Have it sent soon."""

    def waiting(self) -> int:
        """Items that are neither delivered nor lost, nor wait for support of their signal."""

    def retried(self) -> int:
        """Attempts that were repeated."""

    def lost(self) -> str:
        """What happened to the items that will not be delivered; "" if there are none."""

    def unsupported(self) -> bool:
        """Whether the endpoint counts as not supporting the signal."""

    def close(self) -> None:
        """End."""


def place_of(endpoint: Endpoint, ca: str | None) -> To:
    """The endpoint as an exporter's."""
    tls = ClientTls.from_config("tls", {"ca_file": ca})
    timeout_s = TIMEOUT_S if endpoint.hangs else LONG_S
    return To(endpoint=endpoint.url, protocol=endpoint.protocol, timeout_s=timeout_s, tls=tls)


class Results:
    """Results in the receiver: a queue and, with storage, a dead-letter file."""

    def __init__(
        self,
        endpoint: Endpoint,
        signal: str,
        folder: Path,
        ca: str | None,
        *,
        kept: bool,
        clock: Clock,
    ) -> None:
        self.tally = Counters()
        self._kept, self._path, self.is_impatient = kept, folder / "dead.jsonl", endpoint.hangs
        self._dead = DeadLetterFile(self._path) if kept else None
        exporter = OtlpSignalExporter(place_of(endpoint, ca), signal)
        self._queue = ExportQueue(
            exporter, self.tally, max_reports=100, dead_letters=self._dead, retry=clock.retry
        )
        self._delivery = Exports([self._queue], self.tally, is_stored=kept)
        self._delivery.start()
        self._given = 0

    def give(self) -> None:
        self._given += 1
        self._delivery.export([report(self._given)])

    def push(self) -> None:
        self._queue.drain(0.01)

    def waiting(self) -> int:
        return len(self._queue)

    def retried(self) -> int:
        return self.tally.get("results.retries")

    def lost(self) -> str:
        if self.tally.get("results.dead_letters"):
            return "dead letter"
        return "dropped" if self.tally.get("results.dropped") else ""

    def check_counts(self) -> None:
        """Each lost result is counted, and is in the dead-letter file if there is one."""
        written = len(self._path.read_text().splitlines()) if self._path.exists() else 0
        dead_letters, dropped = (
            self.tally.get("results.dead_letters"),
            self.tally.get("results.dropped"),
        )
        assert written == dead_letters
        assert self.tally.get("results.export_failed") == dead_letters + dropped

    def unsupported(self) -> bool:
        return "exports.unsupported" in map(without_labels, self._delivery.counts())

    def close(self) -> None:
        self._delivery.close(5.0)
        self.check_counts()


class InProcess(Results):
    """Results in a program: the same queue, bounded; there is no storage, but a dead-letter file
    may be named.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        signal: str,
        folder: Path,
        ca: str | None,
        *,
        kept: bool,
        clock: Clock,
    ) -> None:
        self.tally, self._path, self._kept = Counters(), folder / "dead.jsonl", kept
        self.is_impatient = endpoint.hangs or signal == "metrics"
        dead = (lambda: DeadLetterFile(self._path)) if kept else (lambda: None)
        given: dict[str, Any] = {"counters": self.tally, "problems": set(), "interval_s": 3600.0}
        to = place_of(endpoint, ca)
        retry = clock.retry
        # which are tried again within the timeout: a few times, not two hundred
        if signal == "metrics":
            to, retry = (
                replace(to, timeout_s=TIMEOUT_S),
                replace(retry, first_s=0.03, longest_s=0.03),
            )
        (self._exporter,) = otlp_exporters(to, (signal,), dead_letters=dead, retry=retry, **given)
        self._given = 0

    def give(self) -> None:
        self._given += 1
        self._exporter.export([report(self._given)])

    def push(self) -> None:
        self._exporter.flush(0.01)

    def waiting(self) -> int:
        return len(self._exporter)

    def unsupported(self) -> bool:
        return self._count("exports.unsupported") == 1

    def _count(self, name: str) -> int:
        return sum(
            count for key, count in self._exporter.counts().items() if without_labels(key) == name
        )

    def close(self) -> None:
        self._exporter.close(1.0)
        self.check_counts()


class Metrics(InProcess):
    """Metrics of results, in a program and in the receiver: sums, of which nothing waits."""

    def push(self) -> None:
        self._exporter.flush(5.0)

    def waiting(self) -> int:
        """1 if the last item is in no sum that was accepted, but will be."""
        return int(not self.unsupported() and self.tally.get("exports.sent") < self._sent)

    def give(self) -> None:
        super().give()
        self._sent = self.tally.get("exports.sent") + 1

    def retried(self) -> int:
        return self.tally.get("exports.failed")

    def lost(self) -> str:
        if self.tally.get("exports.rejected"):
            return "counted"
        return "kept in the sum" if self.unsupported() else ""


class Forwarding:
    """Requests of agents that are passed on; with storage they are on disk until then."""

    def __init__(
        self,
        endpoint: Endpoint,
        signal: str,
        folder: Path,
        ca: str | None,
        *,
        kept: bool,
        clock: Clock,
    ) -> None:
        self.tally, self._signal, self.is_impatient = Counters(), signal, endpoint.hangs
        self._durable = (
            Durable(Storage(directory=str(folder)), segment_bytes=2**16) if kept else None
        )
        journal = self._durable.forwarded if self._durable else None
        self._forward = Forwarder(
            place_of(endpoint, ca),
            ENGINE,
            self.tally,
            signals=(signal,),
            journal=journal,
            retry=clock.retry,
        )
        self._forward.start()
        self._given = 0

    def give(self) -> None:
        self._given += 1
        with self._forward.accepting(self._signal, b"\x0a\x00", 1) as request:
            self._keep(request.ack)

    def _keep(self, ticket: Any) -> None:
        if self._durable is not None:
            self._durable.wait_until_synced(
                self._durable.journal_request(
                    AcknowledgedRequest(RawRequest(self._signal, b"\x0a\x00"), ticket), ()
                )
            )

    def push(self) -> None:
        self._forward.wait(0.01)

    def waiting(self) -> int:
        return len(self._forward._queues[self._signal])

    def retried(self) -> int:
        return self.tally.get("forward.retries")

    def lost(self) -> str:
        return (
            "dropped"
            if self.tally.get("forward.refused") or self.tally.get("forward.discarded")
            else ""
        )

    def unsupported(self) -> bool:
        return (
            count_name("exports.unsupported", exporter=f"forward.{self._signal}")
            in self._forward.counts()
        )

    def close(self) -> None:
        self._forward.stop(0.0)
        if self._durable is not None:
            self._durable.close()


class Clock:
    """Retries wait a millisecond; the clock of rechecks stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.retry = RetryPolicy(
            first_s=0.001, longest_s=0.001, most_s=0.001, last_s=0.001, clock=lambda: self.now
        )


RIGS: Final[dict[str, tuple[Callable[..., Rig], str, str]]] = {
    "in the receiver, logs": (Results, "logs", "results"),
    "in the receiver, spans": (Results, "spans", "results"),
    "in a process, logs": (InProcess, "logs", "results"),
    "in a process, spans": (InProcess, "spans", "results"),
    "metrics": (Metrics, "metrics", "metrics"),
    "forward, traces": (Forwarding, "traces", "forward"),
    "forward, logs": (Forwarding, "logs", "forward"),
    "forward, metrics": (Forwarding, "metrics", "forward"),
}
"""By name: what makes the exporter, its signal, and whose table it is in."""


def report(number: int) -> Report:
    """A report of one result."""
    result = Result(
        evaluation="e",
        scorer="s",
        type="tool_errors",
        version="1",
        outcome=Scored(1.0, passed=True),
        revision=0,
        result_id=f"{number:032x}",
    )
    return Report(trajectory(), "e", 0, (result,))


def outcomes(
    exporter: str, protocol: str, folder: Path, ca: Any, *, worked: bool, kept: bool
) -> dict[str, str]:
    """What happens to an item, by response."""
    found = {}
    leaf = ca.issue_cert("127.0.0.1")
    plain, secure, slow = Endpoint(protocol), Endpoint(protocol, leaf), Endpoint(protocol)
    slow.hangs = True
    trusted = folder / "ca.pem"
    ca.cert_pem.write_to_path(str(trusted))
    try:
        for number, response in enumerate(RESPONSES[protocol]):
            place = folder / str(number)
            place.mkdir()
            endpoint = {MISREAD: secure, TIMEOUT: slow}.get(response, plain)
            endpoint.answer("")
            clock = Clock()
            maker, signal, _ = RIGS[exporter]
            with ended(
                maker(
                    endpoint,
                    signal,
                    place,
                    str(trusted) if endpoint is secure else None,
                    kept=kept,
                    clock=clock,
                )
            ) as rig:
                found[response] = outcome(rig, endpoint, response, clock, worked=worked)
    finally:
        plain.close()
        secure.close()
        slow.close()
    return found


@contextmanager
def ended(rig: Rig) -> Iterator[Rig]:
    """The exporter, closed afterwards."""
    try:
        yield rig
    finally:
        rig.close()


def outcome(rig: Rig, endpoint: Endpoint, response: str, clock: Clock, *, worked: bool) -> str:
    """What happens to one item after this response, and that later ones are delivered."""
    if worked:
        rig.give()
        until(rig, lambda: not rig.waiting())
    taken = sum(endpoint.taken.values())
    endpoint.answer(response)
    rig.give()
    until(rig, lambda: not rig.waiting() or rig.retried() > 1)
    if rig.waiting():
        assert (rig.lost(), rig.unsupported()) == ("", False)
        endpoint.answer("")
        until(rig, lambda: not rig.waiting())
        arrived = sum(endpoint.taken.values()) - taken
        assert rig.lost() == ""
        # a slow success is a timeout as well
        assert arrived == 1 or (arrived > 1 and rig.is_impatient)
        return "delivered later"
    if not rig.unsupported():
        lost = rig.lost()
        accepts(rig, endpoint)
        return f"rejected: {lost}" if response == PARTIAL else lost
    return given_up(rig, clock) + rechecked(rig, endpoint, clock, response)


def accepts(rig: Rig, endpoint: Endpoint) -> None:
    """The next item is delivered."""
    endpoint.answer("")
    taken = sum(endpoint.taken.values())
    rig.give()
    until(rig, lambda: not rig.waiting())
    arrived = sum(endpoint.taken.values()) - taken
    assert arrived == 1 or (arrived > 1 and rig.is_impatient)


def given_up(rig: Rig, clock: Clock) -> str:
    """What becomes of an item after a quarter of an hour; before, it waits."""
    waits = "waits 15 minutes, then " if not rig.lost() else ""
    clock.now += GIVE_UP_S - 1
    until(rig, lambda: not rig.waiting())
    assert bool(rig.lost()) == (not waits)
    clock.now += 1
    until(rig, lambda: rig.lost() != "")
    return waits + rig.lost()


def rechecked(rig: Rig, endpoint: Endpoint, clock: Clock, response: str) -> str:
    """No item is sent before a minute has passed; then one is, and when it is accepted all are."""
    clock.now += RECHECK_S
    for passes_s, requests in ((0.0, 1), (RECHECK_S - 1, 0), (1.0, 1), (0.0, 0)):
        clock.now += passes_s
        asked = endpoint.asked
        rig.give()
        until(rig, lambda: not rig.waiting())
        assert endpoint.asked - asked == requests
    clock.now += RECHECK_S
    endpoint.answer("")
    rig.give()
    until(rig, lambda: not (rig.waiting() or rig.unsupported()))
    accepts(rig, endpoint)
    endpoint.answer(response)  # it has accepted the signal since: this is an outage now
    retried = rig.retried()
    rig.give()
    until(rig, lambda: rig.retried() > retried)
    endpoint.answer("")
    until(rig, lambda: not rig.waiting())
    return "; one tried each minute"


def until(rig: Rig, condition: Callable[[], bool]) -> None:
    """Wait for it, while the exporter sends without waiting for more items."""
    deadline = time.monotonic() + PATIENT_S
    rig.push()
    while not condition():
        assert time.monotonic() < deadline
        rig.push()


WORKED: Final = {True: "accepted the signal before", False: "never accepted it"}
TABLES: Final[dict[str, tuple[str, dict[bool, str]]]] = {
    "results": (
        "Results as log events and spans, in a process and in the receiver",
        {True: ", with a dead-letter file", False: ", without"},
    ),
    "metrics": ("Results as metrics, in a process and in the receiver", {True: ""}),
    "forward": (
        "Requests of agents, by `exporters: forward`",
        {True: ", with `storage`", False: ", without"},
    ),
}
NAMES: Final = {"grpc": "gRPC", "http/protobuf": "HTTP"}


def page(column: Callable[[str, str, bool, bool], Mapping[str, str]]) -> str:
    """The tables as Markdown; each holds for several exporters.

    Args:
        column: the outcomes for an exporter, a protocol, whether it worked before and whether there
            is storage.
    """
    parts = []
    for (kind, (title, kinds)), protocol in product(TABLES.items(), RESPONSES):
        columns = list(product((True, False), kinds))
        exporters = [name for name, (_, _, table_of) in RIGS.items() if table_of == kind]
        outcomes = [[column(name, protocol, *each) for each in columns] for name in exporters]
        assert all(each == outcomes[0] for each in outcomes)
        headings = [WORKED[worked] + kinds[kept] for worked, kept in columns]
        parts.append(
            f"**{title}, over {NAMES[protocol]}**\n\n{table(protocol, headings, outcomes[0])}"
        )
    return "\n".join(parts)


def table(protocol: str, headings: Sequence[str], columns: Sequence[Mapping[str, str]]) -> str:
    """The outcomes as Markdown; responses with equal outcomes share a row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for response in RESPONSES[protocol]:
        rows.setdefault(tuple(column[response] for column in columns), []).append(response)
    lines = [" | ".join(["| response", *headings]) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {', '.join(responses)} | " + " | ".join(outcome) + " |"
        for outcome, responses in rows.items()
    ]
    return "\n".join(lines) + "\n"
