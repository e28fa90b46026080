"""Which test runs which line of the scorers, and how long it takes: a plugin of pytest for
`mutate.py`.

Knows lines and tests; knows no mutant.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOM = os.path.join("otel_eval", "scorers") + os.sep


class Covering:
    """Notes what tests run, and writes it at the end: `lines` (place: tests), `seconds` (test: how
    long), `modules` (loaded).
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[str, set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Note the lines of the scorers that one test runs."""
        touched: set[tuple[str, int]] = set()

        def line(frame: FrameType, event: str, _: Any) -> Any:
            touched.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        def enter(frame: FrameType, event: str, _: Any) -> Any:
            return line(frame, event, _) if ROOM in frame.f_code.co_filename else None

        before, began = sys.gettrace(), time.monotonic()
        sys.settrace(enter)
        try:
            return (yield)
        finally:
            sys.settrace(before)
            self._seconds[item.nodeid] = time.monotonic() - began
            for name, number in touched:
                self._lines[f"{name.partition(ROOM)[2]}:{number}"].add(item.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        lines = {place: sorted(tests) for place, tests in self._lines.items()}
        self._file.write_text(
            json.dumps({"lines": lines, "seconds": self._seconds}), encoding="utf-8"
        )


class Chosen:
    """Keeps some of the tests that were found, in the order given."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {test: at for at, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop what was not chosen."""
        items[:] = sorted(
            (each for each in items if each.nodeid in self._place),
            key=lambda each: self._place[each.nodeid],
        )
