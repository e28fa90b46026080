"""A journal with one flipped bit."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_eval.app.server import Server
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import Storage, load
from otel_eval.storage.durable import Durable
from otel_eval.storage.record_types import RecordKind
from otel_eval.storage.recovery import Recovery
from otel_eval.storage.segments import HEAD_BYTES, RECORD_BYTES, Damage, scan
from tests.support.receiver_process import Served, whole
from tests.support.recovered_results import RecoveredReports
from tests.support.waiting import wait_until

Make = Callable[..., Served]


def records(data: bytes) -> list[tuple[int, int, int]]:
    """Return kind, start and end of each record."""
    ends = [(record.kind, record.end) for record in scan(data, Damage())]
    return [
        (kind, start, end)
        for (kind, end), start in zip(ends, [HEAD_BYTES, *(end for _, end in ends)], strict=False)
    ]


def journal_of(receiver: Served, runs: int) -> Path:
    """Return the only segment of a receiver that delivered `runs` runs one after another and was
    killed.
    """
    receiver.start()
    for trace in range(1, runs + 1):
        receiver.insist(whole(trace))
        receiver.wait_for(trace)
    (segment,) = receiver.storage.glob("*.journal")
    wait_until(lambda: len(receiver.recorded(RecordKind.DELIVERED)) >= runs)
    receiver.end()
    return segment


def test_a_flipped_bit_writes_no_result_twice(served: Make, tmp_path: Path) -> None:
    """In the header or payload of any record. What is not known to be closed, scored or delivered
    is done again.
    """
    receiver = served()
    segment = journal_of(receiver, 2)
    found = records(segment.read_bytes())
    assert {RecordKind.BODY, RecordKind.CLOSED, RecordKind.EVALUATED, RecordKind.DELIVERED} <= {
        kind for kind, _, _ in found
    }
    for number, at in enumerate(
        [place for _, start, end in found for place in (start + 4, start + RECORD_BYTES, end - 1)]
    ):
        folder = tmp_path / str(number)
        shutil.copytree(receiver.storage, folder / "kept")
        shutil.copy(receiver.results, folder)
        data = bytearray(segment.read_bytes())
        data[at] ^= 1 << number % 8
        (folder / "kept" / segment.name).write_bytes(data)
        places = {"exporters": {"jsonl": {"path": str(folder / receiver.results.name)}}}
        config = (
            receiver.config
            | places
            | {"storage": {"directory": str(folder / "kept"), "sync": False}}
        )
        for _ in range(2):
            assert Server(load(config)).drain(threading.Event())
        ids = [
            json.loads(line)["result_id"]
            for line in (folder / receiver.results.name).read_text().splitlines()
        ]
        assert (len(ids), len(set(ids))) == (2, 2), (number, at)


def test_a_request_that_a_later_version_wrote_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first byte of its record is a signal that this version does not know."""
    storage = Storage(directory=str(tmp_path), sync=False)
    before = Durable(storage)
    before.journal.append(RecordKind.BODY, [b"\x7f", b"body"])
    before.close()
    after = Durable(storage)
    assert Recovery(after, RecoveredReports()).replay(TraceBuffer(Limits()), 0.0) == []
    after.close()
    assert (
        "storage.directory: 1 requests in it cannot be read by this version and are left out"
        in caplog.text
    )


def test_what_the_disk_lost_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was acknowledged, and with `--drain` there are no self-metrics to show it."""
    storage = Storage(directory=str(tmp_path), sync=False)
    before = Durable(storage)
    for _ in range(2):
        before.journal.append(RecordKind.TOMBSTONES, [bytes(100)])
    before.close()
    (segment,) = tmp_path.glob("*.journal")
    data = bytearray(segment.read_bytes())
    data[HEAD_BYTES + RECORD_BYTES + 50] ^= 1
    segment.write_bytes(data)
    after = Durable(storage)
    Recovery(after, RecoveredReports()).replay(TraceBuffer(Limits()), 0.0)
    after.close()
    assert (
        "storage.directory: 1 damaged places were skipped; what was recorded there is lost"
        in caplog.text
    )
