"""The page on troubleshooting quotes messages that the program writes."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from otel_eval.cli import cli
from otel_eval.model import SkipReason
from tests.support.doc_pages import ROOT, page

PAGE = page("troubleshooting")
SOURCE = " ".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
    for path in (ROOT / "otel_eval").rglob("*.py")
)
QUOTED = [
    quoted
    for line in PAGE.partition("## The score is skipped")[0].splitlines()
    if line.startswith("| `")
    for quoted in re.findall(r"`([^`]+)`", line.split(" | ")[0])
]


@pytest.mark.parametrize("quoted", QUOTED)
def test_each_quoted_line_is_one_that_is_logged(quoted: str):
    """Each part of it between the places where values stand."""
    parts = [
        part
        for part in re.split(r"…|\(sampler …\)|\([^)]*requests?[^)]*\)|\(no request came\)", quoted)
        if part.strip()
    ]
    for part in parts:
        assert part.strip() in SOURCE, part


def test_every_reason_of_a_skip_is_explained():
    """In a row of its own."""
    assert [reason for reason in get_args(SkipReason) if f"| `{reason}` |" not in PAGE] == []


def test_the_commands_exist():
    """Those that the page tells to run."""
    named = set(re.findall(r"otel-eval ([a-z]+)", PAGE))
    assert named - set(cli.commands) == set()
