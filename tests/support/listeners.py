"""Listeners to the reading of stored traces."""

from __future__ import annotations

from otel_eval.sources.files import CollectedMessages


class _RefusedProblems(CollectedMessages):
    def problem(self, message: str) -> None:
        raise AssertionError(message)


NO_PROBLEMS = _RefusedProblems()
"""Fails the test at the first problem."""
