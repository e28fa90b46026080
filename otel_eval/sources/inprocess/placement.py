"""Where we stand among a provider's span processors.

Knows the few private names of the SDK that tell; each look is guarded, and an SDK that answers differently costs the
advantage, never an error. Checked with SDK 1.30 to 1.45.

Why it matters: a provider shuts its processors down in the order in which they were added. A batch processor added before
us is closed before we can send the last run's scores through it.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import SynchronousMultiSpanProcessor
from opentelemetry.trace import get_current_span

__all__ = ["move_to_front", "neighbours", "open_parent", "pipeline_of"]


def pipeline_of(span: Any) -> Any:
    """What is told when the span ends: the processors of its provider. None if the SDK does not say."""
    return getattr(span, "_span_processor", None)


def neighbours(pipeline: Any) -> tuple[Any, ...]:
    """The processors of a pipeline in order; none if the SDK does not say."""
    found = getattr(pipeline, "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def move_to_front(processor: Any, pipeline: Any) -> bool:
    """Have `processor` called, flushed and shut down before the others; False if that cannot be known to hold.

    The pipeline replaces its tuple of processors under its lock and iterates over the old one, so a callback that is under
    way is not disturbed.
    """
    if not isinstance(pipeline, SynchronousMultiSpanProcessor):
        return False
    try:
        with pipeline._lock:
            others = tuple(each for each in pipeline._span_processors if each is not processor)
            if len(others) == len(pipeline._span_processors):
                return False  # we are inside another processor
            if pipeline._span_processors != (processor, *others):  # also if it was added twice
                pipeline._span_processors = (processor, *others)
    except (AttributeError, TypeError):
        return False
    return True


def open_parent(span: Any, parent_context: Any) -> int | None:
    """The id of the span's parent if that is an open span of the same provider.

    Asked for the first span that we see of a trace: such a parent started before we were added, and will tell us its end.
    A parent of another provider will not.
    """
    parent = span.parent
    if parent is None or parent.is_remote or not parent.trace_flags.sampled:
        return None
    held = get_current_span(parent_context)
    if held.get_span_context() != parent or not held.is_recording():
        return None
    pipeline = pipeline_of(held)
    return parent.span_id if pipeline is not None and pipeline is pipeline_of(span) else None
