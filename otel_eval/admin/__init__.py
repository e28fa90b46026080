"""What an operator sees of a running receiver: health, metrics and a status page."""

from __future__ import annotations

from otel_eval.admin.server import AdminServer, Readiness

__all__ = ["AdminServer", "Readiness"]
