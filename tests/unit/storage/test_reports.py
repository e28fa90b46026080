"""Reports on disk: what is read is what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_eval.errors import ConfigError
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Completeness, Evidence, Report, Result, Scored, Stamp
from otel_eval.storage.directory import DirectoryLock, evaluator_identity
from otel_eval.storage.record_types import report_from_json, report_to_json
from otel_eval.testing import trajectory

RUN = trajectory(
    trace_id="1" * 32,
    span_id="2" * 16,
    agent="clerk",
    service="shop",
    conversation_id="c",
    completeness=Completeness.REMOTE_PARENT,
    start_ns=10**18,
    end_ns=10**18 + 5,
    service_version="1.2",
    environment="staging",
    resource={"service.name": "shop", "process.command_args": ["a", "b"], "host": {"cpus": 2}},
    response_id="resp-1",
    last_end_ns=10**18 + 4,
)
RESULT = Result(
    evaluation="e",
    scorer="s",
    type="t",
    version="1",
    outcome=Scored(0.5, False, "half", {"a": 1}),
    revision=2,
    result_id="a" * 32,
)
REPORT = Report(
    RUN,
    "e",
    2,
    (RESULT,),
    late=True,
    attributes={"case": 7},
    evidence=Evidence(3, "f" * 16),
    stamp=Stamp("me", 10**18 + 9),
)


def test_a_report_read_again_gives_the_same_lines() -> None:
    """Evaluator and time are kept, so a result that is delivered after a crash is equal to the one
    before it.
    """
    again = report_from_json(json.loads(json.dumps(report_to_json(REPORT))))
    assert list(rows_of(again)) == list(rows_of(REPORT))
    assert again.stamp == REPORT.stamp
    assert again.late
    assert again.trajectory == RUN


def test_a_directory_keeps_who_evaluates(tmp_path: Path) -> None:
    """Identity and start time are kept; another directory has another evaluator."""
    first = _identity(tmp_path / "a", 5)
    assert first.since_ns == 5
    assert _identity(tmp_path / "a", 9) == first
    assert _identity(tmp_path / "b", 9).evaluator != first.evaluator


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"evaluator": ""}', b'{"evaluator": 1, "since_ns": 2}']
)
def test_an_unreadable_identity_is_replaced(tmp_path: Path, content: bytes) -> None:
    """The next start finds the new identity."""
    (tmp_path / "evaluator.json").write_bytes(content)
    found = _identity(tmp_path, 5)
    assert found.evaluator
    assert _identity(tmp_path, 6) == found


def test_an_identity_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The error is one line with the file and a remedy."""
    (tmp_path / "evaluator.new").mkdir()
    with pytest.raises(
        ConfigError,
        match=r"storage\.directory: '.*evaluator\.json' cannot be written \(.*\); make room",
    ):
        _identity(tmp_path, 5)


def _identity(directory: Path, now_ns: int):
    claim = DirectoryLock(directory)
    try:
        return evaluator_identity(claim, now_ns)
    finally:
        claim.release()
