"""The exporters of a configuration: what is said of them, and whether they take the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_eval import EvalConfig
from otel_eval.app.exporting import destinations, writes_lines

LANGFUSE = {"endpoint": "http://127.0.0.1:3000"}


def test_every_configured_exporter_is_named_with_its_target(tmp_path: Path) -> None:
    cases, results = str(tmp_path / "cases"), str(tmp_path / "results.jsonl")
    config = EvalConfig(
        exporters={
            "otlp": {"endpoint": "http://127.0.0.1:4317", "signals": ["logs"]},
            "jsonl": {"path": results},
            "console": {},
            "cases": {"directory": cases},
            "langfuse": LANGFUSE,
            "forward": {"endpoint": "http://127.0.0.1:4319"},
            "dead_letter": str(tmp_path / "dead.jsonl"),
        }
    )
    assert destinations(config) == [
        "otlp 'http://127.0.0.1:4317' (logs)",
        f"jsonl {results}",
        "console",
        f"cases {cases}",
        "langfuse 'http://127.0.0.1:3000'",
        "forward 'http://127.0.0.1:4319'",
    ]


@pytest.mark.parametrize(
    ("exporters", "is_expected"),
    [
        ({}, True),
        ({"max_queue": 5}, True),
        ({"cases": {"directory": "cases"}}, True),
        ({"langfuse": LANGFUSE}, False),
        ({"console": {}}, False),
        ({"console": {}, "jsonl": {"path": "-x"}}, True),
    ],
)
def test_lines_are_written_if_they_are_configured_or_nothing_else_takes_the_results(
    exporters: dict[str, object], is_expected: bool
) -> None:
    assert writes_lines(EvalConfig(exporters=exporters)) is is_expected
