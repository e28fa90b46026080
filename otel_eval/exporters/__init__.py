"""Where results go: OTLP (log events, metrics, spans), the process's own providers, JSON Lines, exporters of other packages.

Nothing is loaded before it is used, because OTLP loads gRPC.
"""

from __future__ import annotations

from otel_eval.exporters.interface import Exporter
from otel_eval.exporters.result_rows import rows_of
from otel_eval.retry import ExportResult

__all__ = ["ExportResult", "Exporter", "rows_of"]
