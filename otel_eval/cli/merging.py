"""Merge files of results on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import IO, Any

import click

from otel_eval.errors import InputError
from otel_eval.exporters.result_rows import line_of
from otel_eval.merging import check_row, merge_results

__all__ = ["merge"]


def merge(files: Sequence[str]) -> int:
    """Print the merged results of the files; 0, or 2 if a file or a line is invalid: then the others are merged."""
    problems: list[str] = []
    for row in merge_results(*(_rows(file, problems) for file in files)):
        click.echo(line_of(row))
    for problem in problems:
        click.echo(f"otel-eval: {problem}", err=True)
    return 2 if problems else 0


def _rows(file: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The results in a file; "-" is standard input."""
    name = "standard input" if file == "-" else file
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as lines:
            yield from _results(lines, name, problems)
    except OSError as error:
        problems.append(f"{name}: {error.strerror or error}")


def _results(lines: IO[bytes], name: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """The valid lines of a file; problems are added to the list and the other lines still used."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            check_row(row)
        except InputError as error:
            problems.append(f"{name}, line {number}: {error}; results come from `exporters: jsonl` or `replay --format json`")
        except (ValueError, RecursionError):
            problems.append(f"{name}, line {number}: not JSON")
        else:
            yield row
