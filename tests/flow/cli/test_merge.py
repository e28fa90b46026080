"""`otel-eval merge`: files of results in, one file of results out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from otel_eval import merge_results
from tests.support.merged_lines import ROW

Run = Callable[..., "CompletedProcess[str]"]


def _lines(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def test_files_become_one(otel_eval: Run, tmp_path: Path) -> None:
    """As `merge_results` has it, in any order; what two evaluators knew differently is marked."""
    other = ROW | {"evaluator": "b", "spans": 2, "spans_digest": "d2"}
    one, two = _lines(tmp_path / "one.jsonl", ROW), _lines(tmp_path / "two.jsonl", other)
    done = otel_eval("merge", one, two)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows == merge_results([ROW], [other])
    assert rows[0]["split"] is True
    assert otel_eval("merge", two, one).stdout == done.stdout
    assert otel_eval("merge", _lines(tmp_path / "merged.jsonl", *rows)).stdout == done.stdout
    zipped = tmp_path / "two.jsonl.gz"
    zipped.write_bytes(gzip.compress(two.read_bytes()))
    assert otel_eval("merge", "-", zipped, stdin=one.read_text()).stdout == done.stdout


def test_what_replay_wrote_can_be_merged(otel_eval: Run, tmp_path: Path) -> None:
    """Two parts of a trace: each is replayed by itself, and looks whole or has no run."""
    recorded = Path(__file__).parents[2] / "traces" / "openai_agents_openinference.json"
    document = json.loads(recorded.read_text())
    parts = _halves(document)
    files = []
    for number, part in enumerate(parts):
        stored = _lines(tmp_path / f"part{number}.json", part)
        done = otel_eval("replay", stored, "--format", "json", "--allow-empty")
        files.append(_lines(tmp_path / f"part{number}.jsonl", *done.stdout.splitlines()))
    merged = [json.loads(line) for line in otel_eval("merge", *files).stdout.splitlines()]
    assert merged
    assert all(row["split"] for row in merged)


def _halves(document: dict) -> list[dict]:  # type: ignore[type-arg]
    halves = []
    for number in (0, 1):
        part = json.loads(json.dumps(document))
        for resource in part["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                scope["spans"] = scope["spans"][number::2]
        halves.append(part)
    return halves


def test_what_cannot_be_used_is_named_and_the_rest_is_merged(
    otel_eval: Run, tmp_path: Path
) -> None:
    """File, line and reason; exit code 2."""
    mixed = _lines(tmp_path / "mixed.jsonl", ROW, "{", "[]", '{"trace_id": "t"}', "")
    done = otel_eval("merge", mixed, tmp_path / "missing.jsonl")
    assert done.returncode == 2
    assert [json.loads(line) for line in done.stdout.splitlines()] == [ROW]
    where = f"otel-eval: {mixed}, line"
    remedy = "; results come from `exporters: jsonl` or `replay --format json`"
    assert done.stderr.splitlines() == [
        f"{where} 2: not JSON",
        f"{where} 3: not a result: no JSON object{remedy}",
        f"{where} 4: not a result: span_id is missing or no text{remedy}",
        f"otel-eval: {tmp_path / 'missing.jsonl'}: No such file or directory",
    ]
