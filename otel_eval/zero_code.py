"""Scores an agent without changes to its code, as the entry point `opentelemetry_instrumentor` of `opentelemetry-instrument`.

Does nothing unless the environment names a configuration, and never stops the program that loads it.
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

    It has the two methods that the OpenTelemetry loader calls on its `BaseInstrumentor` and does not derive from it, so that
    the package does without `opentelemetry-instrumentation`.
    """

    _added: Any = None

    def instrument(self, *, config: str | Mapping[str, Any] | None = None, **_: Any) -> None:
        """Add the processor; if that fails one warning is logged.

        Args:
            config: as `EvalSpanProcessor` takes it; left out, the file that `OTEL_EVAL_CONFIG` names, else nothing is done.
        """
        config = config or os.environ.get(VARIABLE, "").strip()
        if not config or EvalInstrumentor._added is not None:
            return
        provider: Any = trace.get_tracer_provider()
        # The provider of the API alone, before an SDK is set up, cannot have processors.
        if not hasattr(provider, "add_span_processor"):
            _log.warning(
                "%s is set, but there is no SDK tracer provider: nothing is scored; install opentelemetry-distro", VARIABLE
            )
            return
        try:
            from otel_eval.app.inprocess import EvalSpanProcessor  # deferred: a program without a configuration loads nothing

            EvalInstrumentor._added = EvalSpanProcessor(config)
            provider.add_span_processor(EvalInstrumentor._added)
        except OtelEvalError as error:
            _log.warning("%s cannot be used, nothing is scored: %s", VARIABLE, error)
        except Exception as error:  # noqa: BLE001 - the program runs on, whatever happens here
            _log.warning("nothing is scored: %s", type(error).__name__)

    def uninstrument(self, **_: Any) -> None:
        """Score no more; what is done is delivered."""
        added, EvalInstrumentor._added = EvalInstrumentor._added, None
        if added is not None:
            added.shutdown()
