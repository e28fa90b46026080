"""How far back the aggregates over a sliding window reach.

Knows a time and a number; counts nothing.
"""

from __future__ import annotations

from otel_eval.config.door import Shape
from otel_eval.config.judges import Whole
from otel_eval.config.places import Seconds

__all__ = ["Window"]


class Window(Shape):
    """The sliding window of the metrics `otel_eval.window.*`, for each evaluation and scorer. 0 for either: no such metrics."""

    time: Seconds = 3600.0
    """How old a result may become."""
    results: Whole = 10_000
    """How many results are held, the newest; each takes some 400 bytes."""
