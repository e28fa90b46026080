"""Behind the real Collector: an evaluator, or a ring of them, ends and comes back, or does not, or
the ring changes.

The Collector has the configurations of collector_config. A run counts as acknowledged when the
Collector acknowledged it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from otel_eval import merge_results
from tests.faults.fault_rig.books import Books, balance, rows_of, until
from tests.faults.fault_rig.outcome import SCORERS, Outcome
from tests.faults.fault_rig.sender import Request, Sender, requests_of, shuffled
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import Run, run_of, trace_id
from tests.support.collector_process import CollectorProcess
from tests.support.collector_sets import CollectorSet
from tests.support.waiting import LIMIT_S

__all__ = ["changed", "gone", "restarted"]

PORTS: Final = (5317, 5327, 5337)
SETTLED_S: Final = LIMIT_S
OPEN_AT_ONCE: Final = 80
# Defaults for whole runs; late spans have the time of a queue to arrive, parts without a root are
# given up soon.
TRACES: Final = {
    "decision_wait": "1s",
    "decision_wait_partial": "6s",
    "decision_wait_detached": "10s",
    "idle_timeout": "10s",
    "grace_period": "2m",
}


class Ring:
    """A Collector before some evaluators with storage; with one of them, without a balancer."""

    def __init__(self, folder: Path, members: int, stack: ExitStack) -> None:
        self._set = CollectorSet("gateway" if members > 1 else "collector-side", folder)
        self._stack = stack
        self.members = [
            self._member(folder / f"member{number}", PORTS[number]) for number in range(members)
        ]
        self.collector = stack.enter_context(self._process(members))

    def _member(self, folder: Path, port: int) -> Service:
        folder.mkdir()
        config = configuration(folder, traces=TRACES, storage={"directory": str(folder / "kept")})
        endpoint = json.loads(config.read_text())["receivers"]["otlp"]["protocols"]["grpc"][
            "endpoint"
        ]
        self._set.ports[port] = int(endpoint.rsplit(":", 1)[1])
        return self._stack.enter_context(Service(config))

    def _process(self, members: int) -> CollectorProcess:
        whole = ", ".join(f'"127.0.0.1:{port}"' for port in PORTS)
        return CollectorProcess(
            self._set.copy(
                "collector.yaml", instead={whole: ", ".join(whole.split(", ")[:members])}
            )
        )

    def resized(self, members: int) -> None:
        """Give the Collector another number of members, of which those that are new are started."""
        for number in range(len(self.members), members):
            self.members.append(self._member(self._set.folder / f"member{number}", PORTS[number]))
        assert self.collector.terminate() == 0
        self.collector = self._stack.enter_context(self._process(members))

    @property
    def address(self) -> tuple[str, str]:
        """Where the Collector accepts spans."""
        return f"127.0.0.1:{self._set.ports[4317]}", f"127.0.0.1:{self._set.ports[4318]}"

    def open(self) -> int:
        """Traces that the living members have not evaluated yet."""
        return sum(
            member.metric("processor_traces_on_memory") for member in self.members if member.alive
        )

    def rows(self, *, merged: bool = True) -> list[dict[str, Any]]:
        """The results of all members."""
        results = [rows_of(member.results) for member in self.members]
        return merge_results(*results) if merged else [row for each in results for row in each]

    def accepted(self) -> int:
        """Spans that the living members accepted since they were started."""
        return sum(
            member.metric("receiver_accepted_spans") for member in self.members if member.alive
        )

    def books(self, runs: Iterable[Run], acknowledged: set[int], *, merged: bool = True) -> Books:
        """Duplicated are results with another content under the same id, too."""
        books = balance(runs, acknowledged, self.rows(merged=merged), revisions=True)
        books.duplicated += sum(_conflicting(rows_of(member.results)) for member in self.members)
        return books


def _conflicting(rows: Iterable[dict[str, Any]]) -> int:
    """Result ids with more than one content; the time of evaluation is none."""
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        contents[row["result_id"]].add(json.dumps({**row, "evaluated_at": ""}, sort_keys=True))
    return sum(len(each) > 1 for each in contents.values())


@contextmanager
def _ring(folder: Path, members: int) -> Iterator[Ring]:
    with ExitStack() as stack:
        yield Ring(folder, members, stack)


def _spread(runs: list[Run]) -> list[Request]:
    """The spans of so many runs in any order, some twice, then the next: each is open for a second
    or two.
    """
    groups = [runs[first : first + OPEN_AT_ONCE] for first in range(0, len(runs), OPEN_AT_ONCE)]
    return [each for group in groups for each in shuffled(group, seed=len(runs), at_once=20)]


@contextmanager
def _under_load(
    ring: Ring,
    runs: list[Run],
    requests: list[Request],
    seconds: float,
    *,
    allowed: int = sys.maxsize,
) -> Iterator[Sender]:
    """Sends all, spread over so many seconds if nothing holds it up; ends when all is acknowledged.
    Of the requests, so many are `allowed` at first.
    """
    sender = Sender(runs, lambda: ring.address)
    sender.allowed = allowed
    arguments = {"within_s": 3600, "pace_s": seconds * 4 / len(requests)}
    load = threading.Thread(target=sender.send, args=(requests,), kwargs=arguments)
    load.start()
    try:
        yield sender
    except BaseException:
        sender.stopped.set()
        raise
    finally:
        load.join()
    assert len(sender.acknowledged) == len(runs), sender.answers


def _scored(ring: Ring, runs: Iterable[int], within_s: float = SETTLED_S) -> bool:
    wanted = {trace_id(number).hex() for number in runs}

    def complete() -> bool:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for member in ring.members:
            for row in rows_of(member.results):
                found[row["trace_id"]].add(row["scorer"])
        return all(len(found[each] - {""}) == SCORERS for each in wanted)

    return until(complete, within_s, every_s=0.5)


def restarted(
    folder: Path, *, victim: str, end: str, times: int, runs: int, seconds: float, members: int = 1
) -> Outcome:
    """An evaluator, or the Collector, ends in a way and comes back, over and over, while runs
    arrive.

    Each time has a share of the requests, of which the second half begins only once it ended: so
    each restart has a part of the load before it and another one to take.
    """
    rng = random.Random(times)
    sent = [run_of(number) for number in range(runs)]
    requests = _spread(sent)
    half = len(requests) // times // 2
    with _ring(folder, members) as ring:
        process: Service | CollectorProcess = (
            ring.collector if victim == "Collector" else ring.members[-1]
        )
        with _under_load(ring, sent, requests, seconds, allowed=half) as sender:
            for number in range(times):
                begun = 2 * half * number + rng.randrange(half)
                assert until(lambda begun=begun: sender.begun > begun, SETTLED_S), sender.answers
                process.kill() if end == "SIGKILL" else process.terminate()
                assert len(sender.acknowledged) < runs, "not under load"
                sender.allowed = 2 * half * (number + 1)
                time.sleep(rng.random())
                process.start()
                assert until(lambda: process.metric("receiver_accepted_spans") > 0, SETTLED_S), (
                    "it gets nothing any more"
                )
                sender.allowed += half
            sender.allowed = sys.maxsize
        _scored(ring, sender.acknowledged)
        until(lambda: not ring.collector.metric("exporter_queue_size"), SETTLED_S)
        books = ring.books(sent, sender.acknowledged, merged=False)
    figures = f"{runs} runs, {books.revised} results revised"
    return Outcome(f"{end} under load, then a new start", times, books, figures)


def gone(folder: Path, *, runs: int, seconds: float) -> Outcome:
    """SIGKILL of one of three, which never comes back; what was on its disk is drained, what came
    for it afterwards is lost.

    The books have what is lost beyond the difference of the accepted spans: the Collector's less
    the evaluators'.
    """
    before, after = [
        [run_of(number) for number in range(first, first + runs)] for first in (0, runs)
    ]
    with _ring(folder, 3) as ring:
        with _under_load(ring, before, requests_of(before), seconds) as first:
            pass
        assert until(lambda: ring.accepted() == first.taken, SETTLED_S), "not everything arrived"
        dead = ring.members[-1]
        last_seen = dead.metric("receiver_accepted_spans")
        dead.kill()
        with _under_load(ring, after, requests_of(after), seconds) as second:
            pass
        _settle(ring.accepted)
        missing = ring.collector.metric("receiver_accepted_spans") - ring.accepted() - last_seen
        _drain(dead)
        _settle(lambda: len(ring.rows()))
        evaluated = {row["trace_id"] for row in ring.rows()}
        lost = [run for run in after if trace_id(run.number).hex() not in evaluated]
        assert sum(len(run.calls) + 1 for run in lost) == missing, (missing, lost)
        kept = (first.acknowledged | second.acknowledged) - {run.number for run in lost}
        books = ring.books([*before, *after], kept)
    figures = (
        f"{len(lost)} of {2 * runs} runs lost; their {missing} spans are the difference of the"
        " counters, exactly"
    )
    return Outcome("SIGKILL, then `serve --drain` of its storage", 1, books, figures)


def _drain(member: Service) -> None:
    command = [
        sys.executable,
        "-m",
        "otel_eval",
        "serve",
        "--config",
        str(member.config),
        "--drain",
    ]
    subprocess.run(command, check=True, timeout=SETTLED_S, capture_output=True)


def _settle(number: Callable[[], int], quiet_s: float = 5.0) -> None:
    """Wait until a number does not change any more."""
    last, since = number(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        time.sleep(0.5)
        if (now := number()) != last:
            last, since = now, time.monotonic()


def changed(folder: Path, *, members: int, to: int, runs: int, seconds: float) -> Outcome:
    """The ring gets one more member, or one less, while runs are open.

    Runs whose spans went to two members are wrong or right, but marked; the books have those that
    are not marked.
    """
    sent = [run_of(number) for number in range(runs)]
    # when some are open, whatever the machine's speed
    half = runs // 2 // OPEN_AT_ONCE * OPEN_AT_ONCE + OPEN_AT_ONCE // 2
    middle = sum(len(run.calls) + 1 for run in sent[:half])
    with _ring(folder, members) as ring:
        with _under_load(ring, sent, _spread(sent), seconds) as sender:
            assert until(lambda: sender.taken >= middle, SETTLED_S, every_s=0.01), "not under load"
            ring.resized(to)
        _scored(ring, sender.acknowledged)
        # A part without the run's own span is given up, and has its line, only after idle_timeout.
        assert until(lambda: not ring.open(), SETTLED_S), "traces stay open"
        _settle(lambda: sum(member.results.stat().st_size for member in ring.members), 2.0)
        split = {row["trace_id"] for row in ring.rows() if row.get("split")}
        marked = {run.number for run in sent if trace_id(run.number).hex() in split}
        books = ring.books(sent, sender.acknowledged - marked)
        of_marked = balance(sent, marked, ring.rows(), revisions=True)
        books.lost += of_marked.lost
    assert marked, "no run was split: not under load"
    figures = (
        f"{len(marked)} of {runs} runs split, all marked; {of_marked.wrong} of their"
        f" {SCORERS * len(marked)} results wrong"
    )
    return Outcome(f"{members} become {to} under load, results merged", 1, books, figures)
