"""Forwards what the receiver accepted to a backend, with the scores on the runs' own spans.

Requests are forwarded as bytes: nothing is decoded that is not changed.
"""

from __future__ import annotations

from otel_eval.forwarding.pending_spans import PendingSpan, UnsentRequest
from otel_eval.forwarding.stage import Forwarder
from otel_eval.storage.durable import Ack

__all__ = ["Ack", "Forwarder", "PendingSpan", "UnsentRequest"]
