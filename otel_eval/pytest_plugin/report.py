"""The report of a test session: a file of run documents, and a table for the terminal."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from otel_eval.errors import InputError
from otel_eval.exporters.whole_file import write_whole


def write_report(path: str, lines: Sequence[str]) -> None:
    """Write the lines of run documents; the file is there whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        write_whole(path, "".join(f"{line}\n" for line in lines))
    except InputError as error:
        raise pytest.UsageError(f"--otel-eval-report {error}") from None


def summary_lines(lines: Sequence[str]) -> Iterator[str]:
    """A line for each scorer: how many scores passed, and the mean."""
    results: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for document in map(json.loads, lines):
        for result in document["results"]:
            results[document["evaluation"], result["scorer"]].append(result)
    names = {key: f"{key[0]}/{key[1]}" for key in results}
    width = max(map(len, names.values()), default=0)
    for key, of_scorer in sorted(results.items()):
        values = [result["value"] for result in of_scorer if result["value"] is not None]
        passed = sum(result["passed"] is True for result in of_scorer)
        others = [
            f"{count} {outcome}"
            for outcome in ("skipped", "failed")
            if (count := sum(result["outcome"] == outcome for result in of_scorer))
        ]
        mean = f"mean {sum(values) / len(values):.3f}" if values else "no score"
        counts = [f"{passed} of {len(of_scorer)} passed", mean, *others]
        yield f"{names[key]:<{width}}  {', '.join(counts)}"
