"""The journal: what was accepted, decided and delivered, on disk before it is acknowledged."""

from __future__ import annotations

from otel_eval.storage.directory import AcceptedSignals, DirectoryLock, EvaluatorIdentity, evaluator_identity
from otel_eval.storage.in_progress import SLOTS, InProgress, key_of_trace
from otel_eval.storage.journal import SEGMENT_BYTES, Appended, Journal, JournalRecord, Segment, StorageFull
from otel_eval.storage.record_types import key_of
from otel_eval.storage.segment_refs import SegmentRefs

__all__ = [
    "SEGMENT_BYTES",
    "SLOTS",
    "AcceptedSignals",
    "Appended",
    "DirectoryLock",
    "EvaluatorIdentity",
    "InProgress",
    "Journal",
    "JournalRecord",
    "Segment",
    "SegmentRefs",
    "StorageFull",
    "evaluator_identity",
    "key_of",
    "key_of_trace",
]
