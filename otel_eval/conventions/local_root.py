"""The rule by which a span starts its trace's part in one process: its parent, if it names one, is in another process."""

from __future__ import annotations

from typing import Final

from otel_eval.interfaces import Frame, SpanReader

__all__ = ["is_local_root", "parent_is_remote"]

_ENTRY_KINDS: Final = (2, 5)  # OTLP: SERVER, CONSUMER. They start a process's part even where no flag records it.


def parent_is_remote(frame: Frame, view: SpanReader | None = None) -> bool | None:
    """Whether the parent that a span names is in another process: by its flags, else by its kind; None if neither tells.

    Args:
        frame: the span; its parent's id is not empty.
        view: the span's reader, where there is one already.
    """
    _, payload, envelope = frame
    remote = envelope.parent_is_remote(payload)
    if remote is None:
        return (view or envelope.view(payload)).span_kind in _ENTRY_KINDS or None
    return remote


def is_local_root(frame: Frame, view: SpanReader | None = None) -> bool:
    """Whether the span is a root, or surely the first span of its process."""
    return not frame[0] or bool(parent_is_remote(frame, view))
