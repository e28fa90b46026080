"""References: files of what runs are expected to do.

Knows files of records and when to read them again; knows no scorer and no run.
"""

from __future__ import annotations

from otel_eval.datasets.dataset import FORMATS, LIMIT, Dataset, InvalidDataset, Record

__all__ = ["FORMATS", "LIMIT", "Dataset", "InvalidDataset", "Record"]
