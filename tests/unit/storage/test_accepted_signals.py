"""The signals that endpoints have accepted, kept over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_eval.storage.directory import AcceptedSignals, DirectoryLock


def test_accepted_signals_are_known_in_the_next_process(tmp_path: Path) -> None:
    """No other signal is known."""
    claim = DirectoryLock(tmp_path)
    for key in ("otlp.logs a", "otlp.spans a", "otlp.logs a"):
        AcceptedSignals(claim).add(key)
    known = AcceptedSignals(claim)
    assert [known.has(key) for key in ("otlp.logs a", "otlp.spans a", "otlp.logs b")] == [
        True,
        True,
        False,
    ]
    claim.release()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, null]", b"\xff"])
def test_a_file_that_cannot_be_read_holds_nothing(tmp_path: Path, content: bytes) -> None:
    """It is replaced."""
    claim = DirectoryLock(tmp_path)
    (tmp_path / "accepted.json").write_bytes(content)
    known = AcceptedSignals(claim)
    assert not known.has("a")
    known.add("a")
    assert AcceptedSignals(claim).has("a")
    claim.release()


def test_a_directory_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The running process still knows the signal."""
    claim = DirectoryLock(tmp_path)
    (tmp_path / "accepted.new").mkdir()
    known = AcceptedSignals(claim)
    known.add("a")
    assert known.has("a")
    assert "accepted.json cannot be written" in caplog.text
    claim.release()


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    """Endpoints that were configured once do not accumulate."""
    claim = DirectoryLock(tmp_path)
    known = AcceptedSignals(claim)
    for number in range(150):
        known.add(str(number))
    assert (AcceptedSignals(claim).has("49"), AcceptedSignals(claim).has("50")) == (False, True)
    claim.release()
