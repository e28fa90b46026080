"""The dead-letter file: results that were refused permanently, as JSON Lines with the exporter and the reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from otel_eval.exporters.jsonl import OWNER_ONLY, JsonLinesFile
from otel_eval.exporters.result_rows import line_of, result_fields
from otel_eval.model import Report

__all__ = ["DeadLetterFile"]


class DeadLetterFile:
    """Appends a line for each result that was refused permanently.

    Args:
        path: the file.
        key: where the path stands in the configuration, for errors.
        mode: permissions of the file if it is created.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], key: str = "exporters.dead_letter", mode: int = OWNER_ONLY) -> None:
        self._file: Final = JsonLinesFile(path, key=key, mode=mode)

    def add(self, exporter: str, reports: Sequence[Report], why: str, rejected: int | None = None) -> None:
        """Write the results to the file.

        Args:
            rejected: how many of them were refused, where the exporter does not know which; None: all.

        Raises:
            OSError: they could not be written.
        """
        results = [(report, result) for report in reports for result in report.results]
        fields: dict[str, Any] = {"sink": exporter, "why": why}
        fields |= {} if rejected is None else {"rejected": rejected, "of": len(results)}
        lines = (line_of(result_fields(report, result) | fields) + "\n" for report, result in results)
        self._file.write("".join(lines).encode("utf-8", "backslashreplace"))
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
