"""The files of the journal after a kill, and other files that are in their place."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import Journal
from otel_eval.storage.segments import HEAD_BYTES
from tests.support.opened_journal import journal, read

SEGMENT = 1000
RECORD = bytes(180)


segment_journal = partial(journal, segment_bytes=SEGMENT)


def fill(opened: Journal, segments: int, payload: bytes = RECORD) -> None:
    """Append until this number of segments is finished."""
    while len(opened.finished) < segments:
        opened.commit(opened.append(1, [payload])[0])


def test_a_segment_without_a_head_is_counted_as_damaged_and_left_as_it_is(tmp_path: Path):
    """Segments get their names after their headers are on the disk, so no crash leaves such a
    file.
    """
    with segment_journal(tmp_path) as opened:
        opened.append(1, [b"a"])
    (path,) = tmp_path.glob("*.journal")
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    data[HEAD_BYTES // 2 + 3] ^= 1  # in both copies
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
    """Every acknowledged record of the remaining segments is read once, in order."""
    rng = random.Random(5)
    number = 0
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(number)], stdout=subprocess.PIPE
        ) as process:
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
def test_start_fails_on_foreign_file_in_storage_directory(tmp_path: Path, plant: Any) -> None:
    """With an error of one line: opening a pipe would block, and a link may lead to a file of
    another program.
    """
    with segment_journal(tmp_path / "kept") as opened:
        fill(opened, 1)
    plant(tmp_path / "kept" / "0000000009.journal")
    with (
        pytest.raises(
            ConfigError,
            match=r"^storage\.directory: .*0000000009\.journal' is not a file; remove it",
        ),
        segment_journal(tmp_path / "kept"),
    ):
        pass


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    """Even a file with the greatest possible number, after which there would be no next one."""
    names = ["README", "1.journal", "a.journal", "9999999999.journal", "lost+found"]
    with segment_journal(tmp_path / "kept") as opened:
        for name in names:
            (tmp_path / "kept" / name).write_bytes(b"theirs")
        fill(opened, 2)
    with segment_journal(tmp_path / "kept") as opened:
        found = read(opened)
        fill(opened, 4)
        assert found == [(1, RECORD)] * len(found)
        assert [(tmp_path / "kept" / name).read_bytes() for name in names] == [b"theirs"] * len(
            names
        )


@pytest.mark.parametrize("plant", [os.mkfifo, _link], ids=["pipe", "link"])
def test_a_link_where_a_segment_will_be_leads_nowhere(tmp_path: Path, plant: Any) -> None:
    """The link is replaced with a file, and its target is unchanged."""
    (tmp_path / "precious").write_bytes(b"theirs")
    with segment_journal(tmp_path / "kept") as opened:
        plant(tmp_path / "kept" / "0000000001.new")
        opened.append(1, [RECORD])
        assert (tmp_path / "kept" / "0000000001.journal").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "precious").read_bytes() == b"theirs"


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """Following the link would create a file in a place of another program."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"^storage\.directory"):
        DirectoryLock(tmp_path / "kept")
    assert not (tmp_path / "elsewhere").exists()
