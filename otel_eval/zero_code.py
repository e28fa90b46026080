"""Scores an agent without changes to its code, as the entry point `opentelemetry_instrumentor` of
`opentelemetry-instrument`.

Does nothing unless the environment names a configuration, and never stops the program that loads
it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import trace

from otel_eval.errors import OtelEvalError

VARIABLE: Final = "OTEL_EVAL_CONFIG"

_log = logging.getLogger("otel_eval")


class EvalInstrumentor:
    """Adds an `EvalSpanProcessor` to the process's tracer provider, once.

    It has the two methods of `BaseInstrumentor` that the loader of OpenTelemetry calls, but does
    not derive from it, so that this package does not need `opentelemetry-instrumentation`.
    """

    _added: Any = None

    def instrument(self, *, config: str | Mapping[str, Any] | None = None, **_: Any) -> None:
        """Add the processor; if that fails, log one warning.

        Args:
            config: the configuration for `EvalSpanProcessor`; if left out, the file that
                `OTEL_EVAL_CONFIG` names. Without either nothing is done.
        """
        config = config or os.environ.get(VARIABLE, "").strip()
        if not config or EvalInstrumentor._added is not None:
            return
        provider: Any = trace.get_tracer_provider()
        # Before an SDK is set up, the global provider is that of the API, which cannot have
        # processors.
        if not hasattr(provider, "add_span_processor"):
            _log.warning(
                "%s is set, but there is no SDK tracer provider: nothing is scored; install"
                " opentelemetry-distro",
                VARIABLE,
            )
            return
        try:
            # deferred: a program without a configuration loads nothing
            from otel_eval.app.inprocess import EvalSpanProcessor

            EvalInstrumentor._added = EvalSpanProcessor(config)
            provider.add_span_processor(EvalInstrumentor._added)
        except OtelEvalError as error:
            _log.warning("%s cannot be used, nothing is scored: %s", VARIABLE, error)
        except Exception as error:  # noqa: BLE001 - the program must not fail because of this
            _log.warning("nothing is scored: %s", type(error).__name__)

    def uninstrument(self, **_: Any) -> None:
        """Stop scoring; results of ended runs are delivered."""
        added, EvalInstrumentor._added = EvalInstrumentor._added, None
        if added is not None:
            added.shutdown()
