"""The standalone receiver: OTLP in, scores out.

Knows in which order the parts start and stop, and nothing of what they do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.compose import engine_of, later_of, limits_of
from otel_eval.app.outlets import fanout_of
from otel_eval.config import EvalConfig
from otel_eval.pipeline import Pipeline
from otel_eval.sinks.tally import Tally
from otel_eval.sources.otlp import Framed
from otel_eval.sources.receiver import Bound, OtlpReceiver, tune_gc, tune_malloc

if TYPE_CHECKING:
    from otel_eval.engine import Engine
    from otel_eval.sinks.forward import Forward
    from otel_eval.sources.receiver import Relay

__all__ = ["Server"]


class _Intake:
    """Hands what the receiver framed to the pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline: Final = pipeline

    def spans(self, framed: Framed) -> None:
        self._pipeline.spans(framed.spans)

    def logs(self, framed: Framed) -> None:
        self._pipeline.logs(framed.logs)


class Server:
    """`otel-eval serve` as an object.

    Args:
        config: its `receivers`, `traces`, `evaluations` and `exporters`; without exporters results go to stdout.

    Raises:
        ConfigError: an exporter cannot be opened.
    """

    def __init__(self, config: EvalConfig) -> None:
        self._counters: Final = Tally()
        engine = engine_of(config)
        self._forward: Final = _forward_of(config, engine, self._counters)
        self._outlet: Final = fanout_of(config, self._counters, [self._forward] if self._forward else [])
        judged = self._forward.judged if self._forward else lambda _: None
        later = later_of(config, engine, self._outlet.emit)
        self._pipeline: Final = Pipeline(engine, self._outlet.emit, limits_of(config), judged=judged, later=later)
        otlp = config.receivers.otlp
        grpc, http = otlp.protocols.grpc, otlp.protocols.http
        self._receiver: Final = OtlpReceiver(
            grpc=grpc.endpoint if grpc else None,
            http=http.endpoint if http else None,
            intake=_Intake(self._pipeline),
            max_body_bytes=max(each.max_message_size for each in (grpc, http) if each),
            max_inflight_bytes=otlp.max_inflight_size,
            relay=_relay(self._forward, self._pipeline),
        )

    def start(self) -> Bound:
        """Listen; the addresses that were bound.

        Raises:
            ConfigError: an address cannot be bound.
        """
        tune_malloc()
        tune_gc()
        self._pipeline.start()
        if self._forward:
            self._forward.start()
        return self._receiver.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop taking, score what is pending (marked `shutdown`), deliver; False if not all was in time."""
        deadline = time.monotonic() + timeout_s
        self._receiver.stop(min(2.0, timeout_s / 4))
        scored = self._pipeline.stop(timeout_s=max(0.0, (deadline - time.monotonic()) * 0.7))
        passed_on = self._forward.stop(max(0.1, (deadline - time.monotonic()) * 0.7)) if self._forward else True
        delivered = self._outlet.flush(max(0.1, deadline - time.monotonic()))
        self._outlet.close(max(0.1, deadline - time.monotonic()))
        return scored and delivered and passed_on

    def counts(self) -> dict[str, Any]:
        """What every part counted."""
        waiting = self._forward.counts() if self._forward else {}
        return dict(self._receiver.counters.as_dict()) | self._pipeline.counts() | self._counters.snapshot() | waiting


def _forward_of(config: EvalConfig, engine: Engine, counters: Tally) -> Forward | None:
    if config.exporters.forward is None:
        return None
    from otel_eval.app.passing import forward_of  # deferred: it loads grpc's client and HTTP's

    return forward_of(config, engine, counters)


def _relay(forward: Forward | None, pipeline: Pipeline) -> Relay | None:
    if forward is None:
        return None
    from otel_eval.app.passing import Passing

    return Passing(forward, pipeline)
