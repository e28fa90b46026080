"""References: files of what runs are expected to do.

Knows files of records and when to read them again; knows no scorer and no run.
"""

from __future__ import annotations

from otel_eval.references.dataset import Dataset
from otel_eval.references.records import FORMATS, LIMIT, Record, Unusable

__all__ = ["FORMATS", "LIMIT", "Dataset", "Record", "Unusable"]
