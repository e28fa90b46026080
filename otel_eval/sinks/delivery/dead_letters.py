"""Where results go that nobody wants: a file of JSON Lines for a person to look at.

Knows the fields of a line: those of a result, and who refused it and why.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from otel_eval.model import Report
from otel_eval.sinks.jsonl import OWNER_ONLY, JsonLinesSink, line_of, result_fields

__all__ = ["DeadLetters"]


class DeadLetters:
    """Appends a line for each result that was refused for good.

    Args:
        path: the file.
        key: where the path stands in the configuration, for errors.
        mode: permissions of the file if it is created.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], key: str = "exporters.dead_letter", mode: int = OWNER_ONLY) -> None:
        self._sink: Final = JsonLinesSink(path, "dead letters", key=key, mode=mode)

    def add(self, sink: str, reports: Sequence[Report], why: str, rejected: int | None = None) -> None:
        """Write the results down.

        Args:
            rejected: how many of them were refused, where the sink does not say which; None: all.

        Raises:
            OSError: they could not be written.
        """
        results = [(report, result) for report in reports for result in report.results]
        told: dict[str, Any] = {"sink": sink, "why": why}
        told |= {} if rejected is None else {"rejected": rejected, "of": len(results)}
        lines = (line_of(result_fields(report, result) | told) + "\n" for report, result in results)
        self._sink.write("".join(lines).encode("utf-8", "backslashreplace"))
        self._sink.sync()

    def close(self) -> None:
        """Close the file."""
        self._sink.close(0.0)
