"""Starts, stops and disks that fail."""

from __future__ import annotations

import http.client
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.fork_server import FORKS
from tests.support.receiver_process import ENVIRONMENT, Served, request, twice, whole
from tests.support.waiting import STAYS_OPEN, wait_until

Make = Callable[..., Served]


def test_a_rolling_restart_cuts_no_trace(served: Make) -> None:
    """SIGTERM leaves undecided traces for the next start, which scores complete runs."""
    receiver = served()
    receiver.leave_open(request((1, 2, 1, "search")), whole(2))
    assert receiver.rows() == []
    receiver.start()
    assert receiver.post(request((1, 1, 0, ""))) == 200
    rows = receiver.wait_for(2)
    assert sorted((row["completeness"], row["value"]) for row in rows) == [("joined", 1.0)] * 2


_STOPPED_WHILE_IT_STARTS = """
import os, signal, sys
from otel_eval.cli import serving
from otel_eval.config import load

def read():
    os.kill(os.getpid(), signal.SIGTERM)
    return load(sys.argv[1])

sys.exit(serving.run(read))
"""


def test_a_stop_ends_the_recovery_and_the_next_start_recovers_everything(served: Make) -> None:
    """Of a start, by SIGTERM, and of `--drain`: both end between two records."""
    receiver = served()
    receiver.leave_open(request((1, 2, 1, "search")), whole(2))
    config = str(receiver.folder / "eval.json")
    program = [sys.executable, "-c", _STOPPED_WHILE_IT_STARTS, config]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)
    assert done.returncode == 0
    assert "ready" not in done.stderr
    draining = Server(load(config))
    draining.note_stop()
    assert not draining.drain(threading.Event())
    assert receiver.rows() == []
    receiver.start()
    assert receiver.post(request((1, 1, 0, ""))) == 200
    rows = receiver.wait_for(2)
    assert sorted((row["completeness"], row["value"]) for row in rows) == [("joined", 1.0)] * 2


@pytest.mark.slow
def test_a_last_stop_leaves_nothing_unscored(served: Make) -> None:
    """`--drain` scores undecided traces as they are, delivers the results, and leaves nothing for
    the next start.
    """
    receiver = served(traces=STAYS_OPEN)
    receiver.start()
    assert receiver.post(whole(1)) == 200
    assert receiver.post(request((2, 2, 1, "search"))) == 200
    assert receiver.end(signal.SIGTERM) == 0
    for _ in range(2):
        done = drain(receiver)
        assert (done.returncode, done.stderr) == (0, "")
        rows = receiver.rows()
        assert sorted((row["outcome"], row["completeness"]) for row in rows) == [
            ("scored", "shutdown"),
            ("skipped", "shutdown"),
        ]


def test_there_is_nothing_to_drain_without_storage(served: Make) -> None:
    """It ends with one line and exit code 2."""
    receiver = served(storage=None)
    (receiver.folder / "eval.json").write_text("{}")
    done = drain(receiver)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--drain" in done.stderr


def drain(receiver: Served) -> subprocess.CompletedProcess[str]:
    """Run `serve --drain` to its end."""
    words = ["serve", "--config", str(receiver.folder / "eval.json"), "--drain"]
    return FORKS.run(words, receiver.folder, ENVIRONMENT)


def test_a_second_process_is_refused(served: Make) -> None:
    """It ends with one line and exit code 2; the first one keeps running."""
    receiver = served()
    receiver.start()
    words = ["serve", "--config", str(receiver.folder / "eval.json")]
    done = FORKS.run(words, receiver.folder, ENVIRONMENT)
    assert done.returncode == 2
    assert "in use by another process" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert receiver.post(whole(1)) == 200


def test_a_disk_that_is_full_refuses_and_goes_on_when_there_is_room(served: Make) -> None:
    """Clients get a retryable error; nothing that was accepted is lost, and no restart is
    needed.
    """
    receiver = served(traces={"decision_wait": "100ms"})
    full = 40_000
    receiver.start(
        limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
    )
    taken = 0
    while receiver.post(whole(taken + 1, tools=5)) == 200:
        taken += 1
        assert taken < 100
    assert 0 < receiver.retry_after < 10
    assert receiver.process is not None
    resource.prlimit(
        receiver.process.pid,
        resource.RLIMIT_FSIZE,
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    receiver.insist(whole(taken + 1))
    rows = receiver.wait_for(taken + 1)
    assert twice(rows) == {}
    receiver.end()
    receiver.start()
    receiver.insist(whole(taken + 2))
    assert len(receiver.wait_for(taken + 2)) == taken + 2


def test_evaluation_that_waits_for_a_full_disk_is_paused_and_the_receiver_stays_ready(
    served: Make,
) -> None:
    """`/readyz` shows the reason."""
    receiver = served(traces={"decision_wait": "1s"}, telemetry={"endpoint": "127.0.0.1:0"})
    receiver.start(
        limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
    )
    trace = 1
    while receiver.post(whole(trace, tools=5)) == 200:
        trace += 1
    found = re.search(r"telemetry=(\S+)", receiver.said())
    assert found
    address = found[1]
    paused = "ready: evaluation is paused: storage cannot be written"
    wait_until(lambda: readiness(address).startswith(paused))
    assert receiver.process is not None
    resource.prlimit(
        receiver.process.pid,
        resource.RLIMIT_FSIZE,
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    receiver.wait_for(trace - 1)
    wait_until(lambda: readiness(address) == "ready\n")


def readiness(address: str) -> str:
    """Return the body of `/readyz`, whose status must be 200."""
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("cut", [1, 300])
def test_a_journal_that_was_torn_is_read_up_to_there(served: Make, cut: int) -> None:
    """Records before that are scored, and the start succeeds."""
    receiver = served(traces=STAYS_OPEN)
    receiver.start()
    for trace in range(1, 4):
        assert receiver.post(whole(trace)) == 200
    receiver.end()
    receiver.config["traces"] = {"decision_wait": "100ms"}
    (segment,) = receiver.storage.glob("*.journal")
    segment.write_bytes(segment.read_bytes()[:-cut])
    receiver.start()
    rows = receiver.wait_for(2)
    assert {int(row["trace_id"], 16) for row in rows} >= {1, 2}


def test_a_record_that_the_disk_damaged_costs_its_request_alone(served: Make) -> None:
    """The other requests are scored."""
    receiver = served(traces=STAYS_OPEN)
    receiver.start()
    for trace in range(1, 4):
        assert receiver.post(whole(trace)) == 200
    receiver.end()
    receiver.config["traces"] = {"decision_wait": "100ms"}
    (segment,) = receiver.storage.glob("*.journal")
    data = bytearray(segment.read_bytes())
    data[data.index((2).to_bytes(16)) + 40] ^= 1
    segment.write_bytes(data)
    receiver.start()
    receiver.insist(whole(4))
    assert {int(row["trace_id"], 16) for row in receiver.wait_for(3)} == {1, 3, 4}


def test_a_directory_that_was_removed_is_noticed_before_the_next_acknowledgement(
    served: Make,
) -> None:
    """The request is refused as retryable, it is said, and what was acknowledged before is scored
    from memory.
    """
    receiver = served(traces=STAYS_OPEN)
    receiver.start()
    assert receiver.post(whole(1)) == 200
    shutil.rmtree(receiver.folder / "kept")
    assert [receiver.post(whole(number)) for number in (2, 3)] == [503, 503]
    assert receiver.end(signal.SIGTERM) == 0
    assert "storage cannot be written (the directory was removed" in receiver.said()
    assert len(receiver.rows()) == 3
