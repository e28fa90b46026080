"""Segments that are written over: nothing of what they held before is found, whatever ends the process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opened_journal import journal, read

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import Journal, StorageFull
from otel_eval.storage.segments import HEAD_BYTES

SEGMENT = 1000
RECORD = bytes(180)


segment_journal = partial(journal, segment_bytes=SEGMENT)


def fill(opened: Journal, segments: int, payload: bytes = RECORD) -> None:
    """Append until so many segments are finished."""
    while len(opened.finished) < segments:
        opened.commit(opened.append(1, [payload])[0])


def left_by_a_crash(path: Path) -> None:
    """A journal whose last segment is written over another, as it is when the process is killed."""
    script = f"""if True:
        from pathlib import Path
        import os, signal
        from otel_eval.storage.directory import DirectoryLock
        from otel_eval.storage.journal import Journal
        opened = Journal(DirectoryLock({str(path)!r}), max_bytes=2**30, segment_bytes={SEGMENT})
        while len(opened.finished) < 1:
            opened.append(1, [bytes(180)])
        opened.remove(opened.finished[0])
        while not opened.finished:
            opened.append(2, [bytes(180)])
        opened.commit(opened.append(3, [b"new"])[0])
        os.kill(os.getpid(), signal.SIGKILL)"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL


def test_a_segment_that_is_not_needed_becomes_a_later_one(tmp_path: Path):
    """The same file under another name, and no more files than are needed and two."""
    with segment_journal(tmp_path) as opened:
        fill(opened, 4)
        first = [segment.path.stat().st_ino for segment in opened.finished]
        for segment in opened.finished:
            opened.remove(segment)
        assert len(list(tmp_path.glob("*.spare"))) == 2
        assert opened.on_disk > opened.size + SEGMENT
        fill(opened, 3)
        assert {segment.path.stat().st_ino for segment in opened.finished} & set(first)
        assert not list(tmp_path.glob("*.spare"))
        sizes = [segment.size for segment in opened.finished]
        assert [segment.path.stat().st_size for segment in opened.finished] == sizes  # the rest of the old ones was cut
    with segment_journal(tmp_path) as opened:
        assert {payload for _, payload in read(opened)} == {RECORD}


def test_after_a_kill_there_is_nothing_of_the_former_segment(tmp_path: Path):
    """Its records are neither read nor counted as damage, and the file is as long as what is read."""
    left_by_a_crash(tmp_path)
    (last,) = (path for path in tmp_path.glob("*.journal") if b"new" in path.read_bytes())
    assert last.stat().st_size > SEGMENT
    with segment_journal(tmp_path) as opened:
        rows = read(opened)
        assert rows == [(1, RECORD), *[(2, RECORD)] * (len(rows) - 2), (3, b"new")]
        assert (opened.recovery.damaged, opened.recovery.torn_bytes) == (0, 0)
    assert last.stat().st_size < 2 * (HEAD_BYTES + len(RECORD))  # two records


def test_a_kill_while_a_segment_is_begun_leaves_no_record_of_the_former(tmp_path: Path):
    """Its head is written before it has its name; a file that has not got it yet goes at the next start."""
    with segment_journal(tmp_path) as opened:
        fill(opened, 1)
        opened.remove(opened.finished[0])
        opened.append(2, [b"kept"])
        (spare,) = tmp_path.glob("*.spare")
        former = spare.read_bytes()
        opened._spares.begin(tmp_path / "0000000009.journal")  # and nothing more: as if it died
        spare.write_bytes(former)  # or before that
    assert len(former) == (tmp_path / "0000000009.journal").stat().st_size
    with segment_journal(tmp_path) as opened:
        assert read(opened)[-1] == (2, b"kept")
        assert (opened.recovery.damaged, opened.recovery.torn_bytes) == (0, 0)
        assert not list(tmp_path.glob("*.spare"))
        opened.append(2, [b"more"])
        assert opened.finished[-1].number == 9
    with segment_journal(tmp_path) as opened:
        assert read(opened)[-1] == (2, b"more")


def test_pooled_segments_count_and_make_room_before_a_request_is_refused(tmp_path: Path):
    """All that there is room for can be used, and the files are never longer than that."""
    with segment_journal(tmp_path, max_bytes=8 * SEGMENT) as opened:
        fill(opened, 5)
        for segment in opened.finished[:3]:
            opened.remove(segment)
        needed = opened.size
        taken = 0
        while True:
            try:
                opened.append(1, [RECORD], bounded=True)
            except StorageFull:
                break
            taken += 1
            assert sum(path.stat().st_size for path in tmp_path.glob("*.*")) <= 8 * SEGMENT
        assert needed + taken * len(RECORD) > 6 * SEGMENT
        assert opened.on_disk == opened.size == sum(path.stat().st_size for path in tmp_path.glob("*.journal"))


def test_a_disk_that_is_full_gets_the_spares_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A write that fails is tried again without them."""
    write, refused = os.pwritev, []

    def full(file: int, pieces: list[bytes], at: int) -> int:
        if list(tmp_path.glob("*.spare")):
            refused.append(at)
            raise OSError(28, "No space left on device")
        return write(file, pieces, at)

    with segment_journal(tmp_path) as opened:
        fill(opened, 3)
        for segment in opened.finished[:2]:
            opened.remove(segment)
        monkeypatch.setattr(os, "pwritev", full)
        opened.append(1, [b"all the same"])
        assert len(refused) == 1
    with segment_journal(tmp_path) as opened:
        assert read(opened)[-1] == (1, b"all the same")


def test_a_segment_without_a_head_is_counted_as_damaged_and_left_as_it_is(tmp_path: Path):
    """Segments get their names after their heads are on the disk, so no crash does that."""
    with segment_journal(tmp_path) as opened:
        opened.append(1, [b"a"])
    (path,) = tmp_path.glob("*.journal")
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    data[40] ^= 1  # in both copies
    path.write_bytes(data)
    with segment_journal(tmp_path) as opened:
        assert read(opened) == []
        assert (opened.recovery.damaged, opened.recovery.torn_bytes) == (1, 0)
    assert path.read_bytes() == data


WRITER = """
import sys
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import Journal
folder, number = sys.argv[1], int(sys.argv[2])
opened = Journal(DirectoryLock(folder), max_bytes=2**30, segment_bytes=5000)
for _ in opened.replay():
    pass
while True:
    opened.commit(opened.append(1, [b"%d " % number, bytes(number * 7919 % 700)])[0])
    while len(opened.finished) > 3:
        opened.remove(opened.finished[0])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def test_kills_at_any_moment_leave_every_record_that_was_acknowledged(tmp_path: Path):
    """Of the segments that are still there; each record once, in order, none from a former segment."""
    rng = random.Random(5)
    number = 0
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(number)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(30, 300)):
                line = process.stdout.readline()
            process.kill()
            lines = [line, *process.stdout.read().splitlines(keepends=True)]
        acknowledged = int([each for each in lines if each.endswith(b"\n")][-1])
        with segment_journal(tmp_path) as opened:
            numbers = [int(payload.split(b" ")[0]) for _, payload in read(opened)]
            assert opened.recovery.damaged == 0
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert acknowledged <= numbers[-1] <= acknowledged + 1
        assert len(numbers) > 10
        number = numbers[-1] + 1


def _link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "precious")


@pytest.mark.parametrize("plant", [Path.mkdir, os.mkfifo, _link], ids=["directory", "pipe", "link"])
def test_what_has_the_name_of_a_segment_and_is_none_stops_the_start(tmp_path: Path, plant: Any) -> None:
    """In one line: a pipe would be waited for, and a link may lead to a file of another program."""
    with segment_journal(tmp_path / "kept") as opened:
        fill(opened, 1)
    plant(tmp_path / "kept" / "0000000009.journal")
    with (
        pytest.raises(ConfigError, match=r"^storage\.directory: .*0000000009\.journal' is no file; remove it"),
        segment_journal(tmp_path / "kept"),
    ):
        pass


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    """One that has the last of all names too, after which there is no next."""
    names = ["README", "1.journal", "a.journal", "9999999999.journal", "lost+found"]
    with segment_journal(tmp_path / "kept") as opened:
        for name in names:
            (tmp_path / "kept" / name).write_bytes(b"theirs")
        fill(opened, 2)
    with segment_journal(tmp_path / "kept") as opened:
        found = read(opened)
        fill(opened, 4)
        assert found == [(1, RECORD)] * len(found)
        assert [(tmp_path / "kept" / name).read_bytes() for name in names] == [b"theirs"] * len(names)


@pytest.mark.parametrize("plant", [os.mkfifo, _link], ids=["pipe", "link"])
def test_a_link_where_a_segment_will_be_leads_nowhere(tmp_path: Path, plant: Any) -> None:
    """One write is refused, and the next one makes a file of its own; what the link names is as it was."""
    (tmp_path / "precious").write_bytes(b"theirs")
    with segment_journal(tmp_path / "kept") as opened:
        plant(tmp_path / "kept" / "0000000001.spare")
        with pytest.raises(OSError, match=r"seek|symbolic"):
            opened.append(1, [RECORD])
        opened.append(1, [RECORD])
        assert (tmp_path / "kept" / "0000000001.journal").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "precious").read_bytes() == b"theirs"


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """It would make a file where another program may need one."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"^storage\.directory"):
        DirectoryLock(tmp_path / "kept")
    assert not (tmp_path / "elsewhere").exists()
