"""Datasets: files with references for runs."""

from __future__ import annotations

from otel_eval.datasets.dataset import FORMATS, LIMIT, Dataset, InvalidDataset, Record

__all__ = ["FORMATS", "LIMIT", "Dataset", "InvalidDataset", "Record"]
