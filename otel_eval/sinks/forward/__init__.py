"""Pass what the receiver took on to a backend, with the scores on the runs' own spans.

Knows OTLP requests as bytes and where in them a span stands; decodes nothing that it does not change.
"""

from __future__ import annotations

from otel_eval.sinks.forward.held import Root
from otel_eval.sinks.forward.stage import Forward
from otel_eval.sinks.forward.ticket import Ticket, Unsent

__all__ = ["Forward", "Root", "Ticket", "Unsent"]
