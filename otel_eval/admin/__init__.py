"""What an operator sees of a receiver that runs: health, numbers and a page.

Knows how numbers are called outside and how they are asked for. Knows no part of the receiver: it is handed a function.
"""

from __future__ import annotations

from otel_eval.admin.self_metrics import Reading, readings
from otel_eval.admin.server import Site
from otel_eval.admin.status import Readiness

__all__ = ["Readiness", "Reading", "Site", "readings"]
