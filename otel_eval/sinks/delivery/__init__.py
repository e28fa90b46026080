"""Results on their way out of the receiver, each until somebody took it or refused it for good.

Knows queues, retries and what an answer means; drops nothing unsaid.
"""

from __future__ import annotations

from otel_eval.sinks.delivery.dead_letters import DeadLetters
from otel_eval.sinks.delivery.outbox import Outbox
from otel_eval.sinks.delivery.stage import Delivery

__all__ = ["DeadLetters", "Delivery", "Outbox"]
