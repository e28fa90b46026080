"""The journal on a real disk: it continues where it ended, shares syncs, and survives a full
disk.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import StorageFull
from tests.support.opened_journal import journal, read


def test_appended_records_are_read_after_a_restart(tmp_path: Path):
    """In order over several segments; records that are appended later follow."""
    rows = [(number % 5, bytes([number]) * number * 10) for number in range(40)]
    for part in (rows[:25], rows[25:]):
        with journal(tmp_path, segment_bytes=1000) as opened:
            assert read(opened) == rows[: 25 if part[0] == rows[25] else 0]
            for kind, payload in part:
                opened.commit(opened.append(kind, [payload[:3], payload[3:]])[0])
    with journal(tmp_path) as opened:
        assert read(opened) == rows
        assert len(opened.finished) > 5
        assert (opened.recovery.records, opened.recovery.damaged, opened.recovery.torn_bytes) == (
            40,
            0,
            0,
        )


@pytest.mark.parametrize("cut", [1, 7, 30, 59])
def test_a_torn_end_is_cut_and_written_over(tmp_path: Path, cut: int):
    """The torn record is dropped and the records before it are kept; the file is cut at their
    end.
    """
    with journal(tmp_path) as opened:
        for payload in (b"one", b"two" * 20):
            opened.append(1, [payload])
    (path,) = tmp_path.glob("*.journal")
    os.truncate(path, path.stat().st_size - cut)
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"one")]
        assert opened.recovery.torn_bytes > 0
        opened.append(2, [b"three"])
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"one"), (2, b"three")]
        assert opened.recovery.damaged == 0


def test_a_damaged_record_is_counted_and_the_others_are_read(tmp_path: Path):
    """The record is in the middle of a segment, or at the end of one that is not the last."""
    for payloads in ((b"a", b"bbb", b"c"), (b"d",)):
        with journal(tmp_path) as opened:
            for payload in payloads:
                opened.append(1, [payload])
    first = sorted(tmp_path.glob("*.journal"))[0]
    data = first.read_bytes()
    first.write_bytes(data.replace(b"bbb", b"bxb")[:-1] + b"!")
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"a"), (1, b"d")]
        assert opened.recovery.damaged == 1  # two, side by side at the end
    assert first.stat().st_size == len(data)


@pytest.mark.parametrize("left", [b"", b"oe-", bytes(100)])
def test_a_segment_that_was_never_begun_is_no_harm(tmp_path: Path, left: bytes):
    """Left by a crash while the segment was created."""
    with journal(tmp_path) as opened:
        opened.append(1, [b"a"])
    (tmp_path / "0000000002.journal").write_bytes(left)
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"a")]
        opened.append(1, [b"b"])
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"a"), (1, b"b")]


def test_beyond_the_limit_only_what_is_bounded_is_refused(tmp_path: Path):
    """Decisions can always be written, so that space becomes free again."""
    with journal(tmp_path, max_bytes=400, segment_bytes=100) as opened:
        opened.append(1, [bytes(200)], bounded=True)
        with pytest.raises(StorageFull):
            opened.append(1, [bytes(200)], bounded=True)
        opened.append(2, [bytes(200)])
        opened.remove(opened.finished[0])
        opened.append(1, [bytes(20)], bounded=True)


def test_many_who_wait_share_a_sync(tmp_path: Path):
    """Each `commit` returns only after its record is on the disk; together they need less than one
    sync each.
    """
    with journal(tmp_path) as opened:
        begin = threading.Barrier(8)

        def write() -> None:
            begin.wait()
            for _ in range(50):
                opened.commit(opened.append(1, [bytes(1000)])[0])

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened.syncs < 400
    with journal(tmp_path) as opened:
        assert len(read(opened)) == 400


def test_a_second_process_is_refused_in_one_line(tmp_path: Path):
    """While the first one runs; any end of it releases the lock."""
    script = (
        "from otel_eval.storage.directory import DirectoryLock as Lock\n"
        f"held = Lock({str(tmp_path)!r})\nprint(1, flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ConfigError, match="in use by another process"):
            DirectoryLock(tmp_path)
        other.kill()
    DirectoryLock(tmp_path).release()


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path):
    """The path is that of a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"storage\.directory: .* cannot be used"):
        DirectoryLock(tmp_path / "file")


def test_a_disk_that_is_full_leaves_what_was_written_and_takes_more_when_there_is_room(
    tmp_path: Path,
):
    """No part of the refused record is read again. The limit on this process' file size stands for
    the full disk.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with journal(tmp_path) as opened:
        opened.append(1, [bytes(1000)])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
            for _ in range(2):
                with pytest.raises(OSError, match="File too large"):
                    opened.append(2, [bytes(5000)])
            opened.append(3, [bytes(100)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        opened.append(4, [bytes(5000)])
    with journal(tmp_path) as opened:
        assert [kind for kind, _ in read(opened)] == [1, 3, 4]


class _Disk:
    """A disk whose syncs fail on request."""

    def __init__(self) -> None:
        self.broken = False
        self._sync = os.fdatasync

    def __call__(self, file: int) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        self._sync(file)


def test_a_sync_that_fails_is_reported_and_the_next_record_begins_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kernel may have dropped what was not on the disk: waiting clients get an error and send
    it again.
    """
    disk = _Disk()
    monkeypatch.setattr(os, "fdatasync", disk)
    with journal(tmp_path) as opened:
        first, *_ = opened.append(1, [b"a"])
        opened.commit(first)
        disk.broken = True
        second, *_ = opened.append(1, [b"b"])
        with pytest.raises(OSError, match="sync"):
            opened.commit(second)
        disk.broken = False
        third, segment, _ = opened.append(1, [b"c"])
        opened.commit(third)
        opened.commit(first)
        assert segment.number == 2


def test_a_sync_that_fails_at_the_end_of_a_segment_is_reported_to_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The kernel reports an error once: a second sync would succeed, and what was dropped would be
    acknowledged.
    """
    disk = _Disk()
    monkeypatch.setattr(os, "fdatasync", disk)
    with journal(tmp_path, segment_bytes=100) as opened:
        first, *_ = opened.append(1, [bytes(100)])
        disk.broken = True
        second, segment, _ = opened.append(1, [b"b"])
        disk.broken = False
        assert segment.number == 2
        with pytest.raises(OSError, match="sync"):
            opened.commit(first)
        opened.commit(second)


@pytest.mark.parametrize("sync", [True, False])
def test_a_directory_that_was_removed_is_an_error_before_the_next_commit_returns(
    tmp_path: Path, sync: bool
) -> None:
    """Also one that was replaced by another; not any more when it is back at its place."""
    path, moved = tmp_path / "kept", tmp_path / "moved"
    with journal(path, sync=sync) as opened:
        opened.commit(opened.append(1, [b"one"]).position)
        path.rename(moved)
        for replacement in (False, True):
            if replacement:
                path.mkdir()
            with pytest.raises(OSError, match="the directory was removed"):
                opened.commit(opened.append(1, [b"lost"]).position)
        path.rmdir()
        moved.rename(path)
        opened.commit(opened.append(1, [b"two"]).position)
    with journal(path) as opened:
        assert (1, b"two") in read(opened)


def test_a_segment_that_was_removed_is_an_error_and_the_next_record_begins_another(
    tmp_path: Path,
) -> None:
    """Everyone who waits for a record in it learns of it."""
    with journal(tmp_path) as opened:
        appended = [opened.append(1, [b"lost"]) for _ in range(2)]
        appended[0].segment.path.unlink()
        for each in appended:
            with pytest.raises(OSError, match="a file was removed"):
                opened.commit(each.position)
        opened.commit(opened.append(1, [b"two"]).position)
    with journal(tmp_path) as opened:
        assert read(opened) == [(1, b"two")]
