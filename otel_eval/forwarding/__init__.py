"""Pass what the receiver took on to a backend, with the scores on the runs' own spans.

Knows OTLP requests as bytes and where in them a span stands; decodes nothing that it does not change.
"""

from __future__ import annotations

from otel_eval.forwarding.ack import Ack, UnsentRequest
from otel_eval.forwarding.pending_spans import PendingSpan
from otel_eval.forwarding.stage import Forwarder

__all__ = ["Ack", "Forwarder", "PendingSpan", "UnsentRequest"]
