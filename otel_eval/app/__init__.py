"""The composition root: builds the parts that a configuration names, and connects them. Only it may
import every other package.

`replay`, `understand` and `explain`, the ways in for stored traces, are loaded when they are used:
a program that is instrumented does not need what reads files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_eval.app.stored_traces import explain, replay, understand

__all__ = ["explain", "replay", "understand"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from otel_eval.app import stored_traces

    return getattr(stored_traces, name)
