"""Evaluations that were in progress when the process died are counted, once for each crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_eval.interfaces import Crashes
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.in_progress import SLOTS, InProgress, key_of_trace

ONE, TWO = key_of_trace(b"1" * 16), key_of_trace(b"2" * 16)


@contextmanager
def opened(path: Path, *, stop: bool = True) -> Iterator[InProgress]:
    """Open the evaluations in progress; without `stop` the next start sees a crash."""
    claim = DirectoryLock(path)
    found = InProgress(claim, sync=True)
    try:
        yield found
    finally:
        if stop:
            found.close()
        claim.release()


def crash(path: Path, *keys: bytes, scoring: bool = False) -> None:
    """Crash while these are being evaluated."""
    with opened(path, stop=False) as found:
        found.recover(lambda _: True)
        for slot, key in enumerate(keys):
            found.begin(slot, key)
            if scoring:
                found.mark_scoring(slot)


def test_crashes_are_counted_for_what_was_in_progress(tmp_path: Path):
    """Evaluations that had ended, and those that are no longer needed, are not counted."""
    crash(tmp_path, ONE)
    with opened(tmp_path, stop=False) as found:
        assert found.crashed
        assert found.recover(lambda _: True) == {ONE: Crashes(1, scoring=False)}
        found.begin(0, TWO)
        found.end(0)
        found.begin(0, ONE)
        found.mark_scoring(0)
    with opened(tmp_path) as found:
        assert found.recover(lambda _: True) == {ONE: Crashes(2, scoring=True)}
        assert found.crashes(TWO) == Crashes(0)
    with opened(tmp_path) as found:
        assert not found.crashed
        assert found.recover(lambda _: True) == {}
        assert found.crashes(ONE) == Crashes(2, scoring=True)
        assert found.recover(lambda trace_id: trace_id != ONE[:16]) == {}
        assert found.crashes(ONE) == Crashes(0)


def test_one_crash_is_counted_once_however_often_the_start_is_cut_short(tmp_path: Path):
    """Both before and after the crash was counted."""
    crash(tmp_path, ONE)
    for stop in (False, True, False):
        with opened(tmp_path, stop=stop):
            """The process dies, or cannot start, while the journal is read."""
    for _ in range(3):
        with opened(tmp_path, stop=False) as found:
            found.recover(lambda _: True)
            assert found.crashes(ONE) == Crashes(1)


def test_an_end_that_was_asked_for_is_no_crash(tmp_path: Path):
    """Whatever is in progress, and however the process ends after the request to stop."""
    with opened(tmp_path, stop=False) as found:
        found.recover(lambda _: True)
        found.begin(0, ONE)
        found.stop()
        found.begin(1, TWO)
    with opened(tmp_path) as found:
        assert not found.crashed
        assert found.recover(lambda _: True) == {}
        assert found.crashes(ONE) == Crashes(0)


def test_a_trace_that_was_evaluated_without_a_crash_is_no_longer_suspected(tmp_path: Path):
    """Its count stays removed after the next start."""
    crash(tmp_path, ONE, TWO)
    with opened(tmp_path) as found:
        found.recover(lambda _: True)
        found.forget(ONE)
        assert (found.crashes(ONE).times, found.crashes(TWO).times) == (0, 1)
    with opened(tmp_path) as found:
        assert (found.crashes(ONE).times, found.crashes(TWO).times) == (0, 1)


def test_a_crash_before_a_reboot_is_reported(tmp_path: Path):
    """A crash without a reboot is not, nor is a stop."""
    crash(tmp_path, ONE)
    with opened(tmp_path, stop=False) as found:
        assert (found.crashed, found.rebooted) == (True, False)
    with (tmp_path / "evaluating").open("r+b") as file:
        file.seek(8)
        file.write(os.urandom(16))
    with opened(tmp_path) as found:
        assert (found.crashed, found.rebooted) == (True, True)
        found.recover(lambda _: True)
        found.begin(0, ONE, durable=True)
    with opened(tmp_path) as found:
        assert (found.crashed, found.rebooted) == (False, False)


def test_parts_of_a_trace_are_counted_apart():
    """Equal parts have equal keys."""
    keys = [
        key_of_trace(b"1" * 16, parts)
        for parts in ((), (b"a" * 8,), (b"b" * 8,), (b"a" * 8, b"b" * 8))
    ]
    assert len(set(keys)) == 4
    assert all(key[:16] == b"1" * 16 and len(key) == 24 for key in keys)
    assert key_of_trace(b"1" * 16, (b"a" * 8,)) == keys[1]


def test_every_slot_is_counted_and_the_newest_counts_are_kept(tmp_path: Path):
    """The file does not grow."""
    for round_ in range(5):
        crash(tmp_path, *[key_of_trace(bytes([round_, slot]) * 8) for slot in range(SLOTS)])
    size = (tmp_path / "evaluating").stat().st_size
    with opened(tmp_path) as found:
        assert len(found.recover(lambda _: True)) == SLOTS
        assert found.crashes(key_of_trace(bytes([3, 0]) * 8)).times == 1
        assert found.crashes(key_of_trace(bytes([0, 0]) * 8)).times == 0
    assert (tmp_path / "evaluating").stat().st_size == size


@pytest.mark.parametrize(
    "data", [b"", b"oe-eval1", b"\xff" * 16384, os.urandom(16384), os.urandom(50_000)]
)
def test_a_file_that_is_damaged_is_begun_anew(tmp_path: Path, data: bytes):
    """Its counts are lost, and nothing raises."""
    (tmp_path / "evaluating").write_bytes(data)
    with opened(tmp_path, stop=False) as found:
        assert not found.crashed or data.startswith(b"oe-eval1")
        assert found.recover(lambda _: True) == {}
        found.begin(0, ONE)
    with opened(tmp_path) as found:
        assert found.recover(lambda _: True) == {ONE: Crashes(1)}


def test_a_disk_without_room_for_the_file_does_not_stop_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Crashes are then not counted, which is logged."""
    (tmp_path / "evaluating").mkdir()
    with opened(tmp_path) as found:
        found.recover(lambda _: True)
        found.begin(0, ONE)
        found.mark_scoring(0)
        found.end(0)
    assert "crashes are not counted" in caplog.text


def test_a_real_process_that_is_killed_leaves_what_it_was_doing(tmp_path: Path):
    """No sync is needed for that."""
    program = f"""
import os, signal
from pathlib import Path
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.in_progress import InProgress
found = InProgress(DirectoryLock(Path({str(tmp_path)!r})), sync=False)
found.recover(lambda _: True)
found.begin(0, {ONE!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert (
        subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    )
    with opened(tmp_path) as found:
        assert found.recover(lambda _: True) == {ONE: Crashes(1)}
