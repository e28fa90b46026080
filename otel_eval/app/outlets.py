"""Where scores go, from the configuration.

Knows the exporters' keys; opens what they name.
"""

from __future__ import annotations

from collections.abc import Sequence

from otel_eval.config import EvalConfig
from otel_eval.ports import Sink
from otel_eval.sinks.fanout import Fanout
from otel_eval.sinks.tally import Tally

__all__ = ["exporter_sinks", "fanout_of"]


def exporter_sinks(config: EvalConfig, counters: Tally) -> list[Sink]:
    """A sink for each exporter that is configured.

    Raises:
        ConfigError: one cannot be opened.
    """
    sinks: list[Sink] = []
    if config.exporters.jsonl:
        from otel_eval.sinks.jsonl import JsonLinesSink

        sinks.append(JsonLinesSink(config.exporters.jsonl.path))
    if config.exporters.otlp:
        # Deferred: the exporters load grpc or requests, which a file of results has no need of.
        from otel_eval.sinks.otlp import Endpoint, otlp_sinks

        otlp = config.exporters.otlp
        to = Endpoint(
            endpoint=otlp.endpoint,
            protocol=otlp.protocol,
            headers=otlp.headers,
            timeout_s=otlp.timeout,
            compression=otlp.compression,
        )
        sinks.extend(otlp_sinks(to, otlp.signals, counters=counters))
    return sinks


def fanout_of(config: EvalConfig, counters: Tally | None = None, also: Sequence[Sink] = ()) -> Fanout:
    """One outlet in front of every configured exporter and of `also`; stdout if there is none."""
    counters = counters or Tally()
    sinks = [*also, *exporter_sinks(config, counters)]
    if not sinks:
        from otel_eval.sinks.jsonl import JsonLinesSink

        sinks.append(JsonLinesSink("-"))
    return Fanout(sinks, counters)
