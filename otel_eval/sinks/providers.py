"""Which OpenTelemetry providers a process has, and whether they still take anything.

Knows the API's stand-ins and, guarded, the SDK's flags of shutdown; emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

# Here and not where they are used: a process that forks while a thread imports leaves a child with half a module.
from opentelemetry._logs import get_logger_provider
from opentelemetry.metrics import get_meter_provider
from opentelemetry.trace import get_tracer_provider

__all__ = [
    "global_logger_provider",
    "global_meter_provider",
    "global_tracer_provider",
    "has_no_processor",
    "is_real",
    "is_shut_down",
    "sampler_of",
]

_API: Final = ("opentelemetry._logs", "opentelemetry.trace", "opentelemetry.metrics")


def is_real(provider: Any) -> bool:
    """Whether a provider does something: neither nothing nor one of the API's proxies and no-ops."""
    return provider is not None and not type(provider).__module__.startswith(_API)


def global_logger_provider() -> Any:
    """The global one, if somebody set one."""
    return _real(get_logger_provider())


def global_meter_provider() -> Any:
    """The global one, if somebody set one."""
    return _real(get_meter_provider())


def global_tracer_provider() -> Any:
    """The global one, if somebody set one."""
    return _real(get_tracer_provider())


def sampler_of(provider: Any) -> str:
    """The description of a tracer provider's sampler, or "unknown"."""
    sampler: Any = getattr(provider, "sampler", None)
    return str(sampler.get_description()) if hasattr(sampler, "get_description") else "unknown"


def _real(provider: Any) -> Any:
    return provider if is_real(provider) else None


def is_shut_down(provider: Any) -> bool:
    """Whether all that a provider (or a pipeline of processors) hands to is known to be shut down.

    The SDK has no public answer, and what is emitted afterwards is lost without a word. Where its private flags are not
    found the answer is no.
    """
    own = getattr(provider, "_shutdown", None)
    if isinstance(own, bool):
        return own
    flags = [_flag(processor) for processor in _processors(provider)]
    known = [flag for flag in flags if flag is not None]
    return bool(known) and all(known) and len(known) == len(flags)


def has_no_processor(provider: Any) -> bool:
    """Whether a provider (or a pipeline of processors) is known to have no processor but ours, so that it drops everything.

    `OTEL_LOGS_EXPORTER=none` leaves a `LoggerProvider` like that. The SDK has no public answer; where its private
    lists are not found the answer is no.
    """
    return _lists(provider) != [] and next(_processors(provider), None) is None


def _processors(provider: Any) -> Iterator[Any]:
    for listed in _lists(provider):
        for each in listed:
            if not type(each).__module__.startswith("otel_eval"):
                yield each


def _lists(provider: Any) -> list[Any]:
    """The lists of processors that were found behind a provider, normally one."""
    inner = provider
    for name in ("_multi_log_record_processor", "_active_span_processor"):
        inner = getattr(provider, name, inner)
    return [getattr(inner, name) for name in ("_log_record_processors", "_span_processors") if hasattr(inner, name)]


def _flag(processor: Any) -> bool | None:
    for holder in (processor, getattr(processor, "_batch_processor", None)):
        for name in ("_shutdown", "done"):  # `done`: the batch processors before 1.34
            flag = getattr(holder, name, None)
            if isinstance(flag, bool):
                return flag
    return None
