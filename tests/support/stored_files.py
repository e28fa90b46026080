"""Reads one stored file of traces, as replay reads each of its inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator

from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.sources.files import Notify
from otel_eval.sources.files.reader import Input, read_pieces


def read_file(
    path: str | os.PathLike[str],
    on_problem: Notify = lambda _: None,
    on_notice: Notify = lambda _: None,
) -> Iterator[SpanBatch]:
    """Yield the batches of the file; "-" is standard input."""
    with Input.repeatable(path) as source:
        yield from (batch for _, batch in read_pieces(source, on_problem, on_notice))
