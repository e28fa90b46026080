"""What an operator sees of a receiver that runs: health, numbers and a page.

Knows how numbers are called outside and how they are asked for. Knows no part of the receiver: it is handed a function.
"""

from __future__ import annotations

from otel_eval.admin.self_metrics import SelfMetric, collect_self_metrics
from otel_eval.admin.server import AdminServer
from otel_eval.admin.status import Readiness

__all__ = ["AdminServer", "Readiness", "SelfMetric", "collect_self_metrics"]
