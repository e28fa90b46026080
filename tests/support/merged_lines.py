"""A line of results as exporters write it, with what merging looks at."""

from __future__ import annotations

from typing import Any, Final

ROW: Final[dict[str, Any]] = {
    "trace_id": "t",
    "span_id": "s",
    "evaluation": "e",
    "scorer": "x",
    "policy": "p",
    "outcome": "scored",
    "value": 1.0,
    "spans": 3,
    "spans_digest": "d3",
    "evaluator": "a",
    "revision": 0,
    "result_id": "r",
}
