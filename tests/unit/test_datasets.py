"""Dataset files: valid and invalid contents, and new versions of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.datasets import LIMIT, Dataset, InvalidDataset, parse_records

ONE = '{"id": "a", "expected": ["x"]}\n'
TWO = '{"id": "a", "expected": ["y"]}\n{"id": "b", "expected": ["z"]}\n'


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at 100 s."""
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one record."""
    path = tmp_path / "cases.jsonl"
    path.write_text(ONE, encoding="utf-8")
    return path


def replaced(path: Path, text: str) -> None:
    """Replace the file by a rename, as users should."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def test_a_new_version_of_the_same_size_and_time_is_read(file: Path, clock: Clock):
    """As `cp -p` and `rsync --inplace -t` leave it; `chmod` of a file that could not be read
    changes no more either.
    """
    dataset, before = Dataset(file, "id", clock), file.stat()
    file.write_text(ONE.replace('"x"', '"y"'), encoding="utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    clock.now += 2
    assert dataset("a") == {"id": "a", "expected": ["y"]}


@pytest.mark.parametrize(
    ("raw", "suffix", "records"),
    [
        (b'{"id": "a"}\n\n{"id": "b"}', ".jsonl", {"a": {"id": "a"}, "b": {"id": "b"}}),
        (b'\xef\xbb\xbf{"id": 7}\r\n', ".ndjson", {"7": {"id": 7}}),
        (b'{"id": true}', ".jsonl", {"true": {"id": True}}),
        (b"", ".jsonl", {}),
        (
            b'id,expected\na,"[""x"", ""y""]"\nb,\n',
            ".csv",
            {"a": {"id": "a", "expected": '["x", "y"]'}, "b": {"id": "b"}},
        ),
        (b"id,note\r\n07,\xc3\xa4\r\n", ".csv", {"07": {"id": "07", "note": "ä"}}),
        (b"id\n", ".csv", {}),
    ],
)
def test_records_are_read(raw, suffix, records):
    """Both formats are read."""
    assert {key: record for key, (_, record) in parse_records(raw, suffix, "id").items()} == records


@pytest.mark.parametrize(
    ("raw", "suffix", "says"),
    [
        (b"\xff", ".jsonl", "is not UTF-8 text"),
        (b'{"id": "a"}\n{', ".jsonl", "line 2 is not JSON"),
        (b"[" * 100_000, ".jsonl", "line 1 is not JSON"),
        (b'["a"]', ".jsonl", "line 1 is not an object"),
        (b'{"ID": "a"}', ".jsonl", "line 1 has no key 'id'; give each record a text or a number"),
        (b'{"id": ["a"]}', ".jsonl", "line 1 has no key 'id'"),
        (b'{"id": "7"}\n{"id": 7}', ".jsonl", "line 2 has the key of line 1"),
        (b"", ".csv", "has no column 'id'; its columns are none"),
        (b"case,expected\na,b\n", ".csv", "its columns are case, expected"),
        (b"id,id\na,b\n", ".csv", "two columns of one name"),
        (b"id,x\na,b,c\n", ".csv", "line 2 has more cells"),
        (b'id,x\na,"b"c\n', ".csv", "line 2 is not CSV"),
        (b"id,x\n,b\n", ".csv", "line 2 has no key 'id'"),
    ],
)
def test_a_dataset_without_records_is_refused_with_the_line(raw, suffix, says):
    """The error quotes none of its values."""
    with pytest.raises(InvalidDataset) as caught:
        parse_records(raw, suffix, "id")
    assert says in str(caught.value)


@given(st.dictionaries(st.text(min_size=1), st.lists(st.text())))
def test_records_are_read_as_they_were_written(records):
    """Texts may contain any character, including line separators other than the line feed."""
    lines = "".join(
        json.dumps({"k": key, "v": value}, ensure_ascii=False) + "\n"
        for key, value in records.items()
    )
    assert {
        key: record["v"]
        for key, (_, record) in parse_records(lines.encode(), ".jsonl", "k").items()
    } == records


def test_a_file_is_looked_at_once_a_second(file, clock):
    """A change is visible only after a second."""
    dataset = Dataset(file, "id", clock)
    replaced(file, TWO)
    clock.now += 0.99
    assert dataset("b") is None
    clock.now += 0.02
    assert dataset("b") == {"id": "b", "expected": ["z"]}
    assert (dataset.changes, dataset.broken) == (1, 0)


def test_a_file_that_is_as_it_was_is_not_read(file, clock, monkeypatch):
    """Only its stamp is compared."""
    dataset = Dataset(file, "id", clock)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("read"))
    clock.now += 5
    assert dataset("a") == {"id": "a", "expected": ["x"]}


@pytest.mark.parametrize("breaks", [lambda path: replaced(path, "{"), lambda path: path.unlink()])
def test_a_broken_version_keeps_the_old_and_is_logged_once(file, clock, caplog, breaks):
    """The old records stay in use until there is a valid version."""
    dataset = Dataset(file, "id", clock)
    breaks(file)
    for _ in range(3):
        clock.now += 2
        assert dataset("a") == {"id": "a", "expected": ["x"]}
    assert (dataset.changes, dataset.broken) == (0, 1)
    (line,) = caplog.messages
    assert str(file) in line
    assert "stay in use" in line
    replaced(file, TWO)
    clock.now += 2
    assert dataset("a") == {"id": "a", "expected": ["y"]}
    assert (dataset.changes, dataset.broken) == (1, 1)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    """It would be kept in memory."""
    path = tmp_path / "large.jsonl"
    with path.open("wb") as large:
        large.truncate(LIMIT + 1)
    with pytest.raises(InvalidDataset, match="is larger than 64 MiB"):
        Dataset(path, "id")


def test_a_dataset_that_is_no_regular_file_is_refused(tmp_path):
    """Reading a pipe would never end."""
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InvalidDataset, match="no regular file"):
        Dataset(tmp_path / "pipe.csv", "id")


@pytest.mark.parametrize(
    ("name", "why"), [("x" * 300, "File name too long"), ("a\0b", "not a path")]
)
def test_an_invalid_path_is_refused_like_a_missing_file(name, why, tmp_path):
    """It is reported like a missing file."""
    with pytest.raises(InvalidDataset, match=rf"cannot be read \({why}\)"):
        Dataset(tmp_path / f"{name}.jsonl", "id")
