"""Readings as Prometheus reads them.

Knows the text format, version 0.0.4, which is one line for each number: too little to ask a library for. Names are as they are,
without `_total`, so that they are the same by OTLP. Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from otel_eval.operations.readings import Reading

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(readings: Iterable[Reading]) -> str:
    r"""The text of readings that are ordered by name.

    >>> print(exposition([Reading("a_b", (("x", 'y"'),), 3)]), end="")
    # TYPE a_b counter
    a_b{x="y\""} 3
    """
    lines = []
    for name, rows in groupby(readings, key=lambda each: each.name):
        group = list(rows)
        if group[0].unit:
            lines.append(f"# HELP {name} in {group[0].unit}")
        lines.append(f"# TYPE {name} {'gauge' if group[0].gauge else 'counter'}")
        lines += [f"{name}{_labels(each)} {each.value:.10g}" for each in group]
    return "".join(f"{line}\n" for line in lines)


def _labels(reading: Reading) -> str:
    told = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in reading.labels)
    return "{" + told + "}" if told else ""
