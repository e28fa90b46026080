"""A file of results to which only what is new or has changed is added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from otel_eval.model import Report
from otel_eval.sinks.jsonl import OWNER_ONLY, JsonLinesSink, encoded, rows_of

__all__ = ["ChangedLinesSink"]

_OCCASION: Final = ("evaluated_at", "evaluator")  # results that differ in these alone are equal


class ChangedLinesSink(JsonLinesSink):
    """Appends a line for each result that the file does not hold as it is; of two lines with one id the later one counts.

    What the file holds is read once, when it is opened: 8 bytes are kept for each result.

    Args:
        path: the file, made if it does not exist, or "-" for standard output, which holds nothing.
        mode: permissions of the file if it is created.

    Raises:
        ConfigError: the file cannot be opened for writing.
    """

    def __init__(self, path: str, *, mode: int = OWNER_ONLY) -> None:
        super().__init__(path, mode=mode)
        self._held: dict[str, bytes] = {} if path == "-" else dict(_held(Path(path)))

    def emit(self, report: Report) -> None:
        """Write the report's results that are new or have changed."""
        changed = []
        for row in rows_of(report):
            written = encoded([row])
            digest = _digest(json.loads(written))
            if self._held.get(row["result_id"]) != digest:
                self._held[row["result_id"]] = digest
                changed.append(written)
        if changed:
            self.write(b"".join(changed))


def _held(path: Path) -> Iterator[tuple[str, bytes]]:
    """The id of each result in the file and what tells whether it has changed."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                row = json.loads(line)
                yield row["result_id"], _digest(row)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # no line of ours


def _digest(row: Mapping[str, Any]) -> bytes:
    compared = {key: value for key, value in row.items() if key not in _OCCASION}
    return blake2b(json.dumps(compared, sort_keys=True).encode(), digest_size=8).digest()
