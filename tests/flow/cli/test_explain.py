"""`otel-eval explain`: what was recognised, why there is a run or not, and what each evaluation did
with it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.stored_traces import ExplainedTrace, explain
from otel_eval.cli import main
from otel_eval.config import load
from otel_eval.conventions import TABLES, Field
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Report, Trajectory
from tests.support.listeners import NO_PROBLEMS

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

FOLDER = Path(__file__).parents[2] / "traces"
FILES = sorted(
    path
    for path in FOLDER.glob("*.json")
    if "resourceSpans" in json.loads(path.read_text(encoding="utf-8"))
)
EVALUATIONS = """
evaluations:
  - name: all
    match: {runs: all}
    scorers: [{type: tool_errors}, {type: step_efficiency, max_tokens: 9}]
  - {name: travel, match: {service: travel*}, scorers: [{type: time_cost}]}
  - name: agents
    match: {agent: "*agent*", attributes: {gen_ai.operation.name: invoke_agent}}
    scorers: [{type: tool_errors}]
"""


def rows(text: str) -> list[dict[str, Any]]:
    """The objects of JSON Lines."""
    return [json.loads(line) for line in text.splitlines()]


def explained(paths: Sequence[Path], config: Path | None = None) -> list[ExplainedTrace]:
    """What the command shows, as objects."""
    return [*explain(map(str, paths), load(config), listener=NO_PROBLEMS)]


def test_it_agrees_with_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For every recorded trace: the same runs, the same matches, the same outcomes for the same
    reasons.
    """
    (tmp_path / "eval.yaml").write_text(EVALUATIONS, encoding="utf-8")
    words = [*map(str, FILES), "--config", str(tmp_path / "eval.yaml"), "--format", "json"]
    assert main(["replay", *words, "--allow-empty"]) in (0, 1)
    replayed = [row for row in rows(capsys.readouterr().out) if row["outcome"] != "no_run"]
    results = {
        (
            run.trajectory.trace_id,
            run.trajectory.span_id,
            run.trajectory.agent,
            evaluation.evaluation.name,
            result.scorer,
        ): result
        for trace in explained(FILES, tmp_path / "eval.yaml")
        for run in trace.runs
        for evaluation in run.evaluations
        for result in evaluation.results
    }
    keys = ("trace_id", "span_id", "agent", "evaluation", "scorer")
    facts = ("outcome", "value", "passed", "reason")
    report = Report(Trajectory(), "", 0, tuple(results.values()))
    assert {
        key: [row[fact] for fact in facts]
        for key, row in zip(results, rows_of(report), strict=True)
    } == {tuple(row[key] for key in keys): [row[fact] for fact in facts] for row in replayed}


def test_every_score_is_explained_as_replay_explains_it(
    otel_eval: Run, recorded: Path, config: Write
) -> None:
    """Redacted a score has no explanation, which may quote the configuration."""
    words = [recorded, "--config", config("{type: tool_errors}", "{type: time_cost, max_ms: 1}")]
    replayed = rows(otel_eval("replay", *words, "--format", "json").stdout)
    said = [row["explanation"] for row in replayed]
    shown = flat(otel_eval("explain", *words).stdout)
    assert [text for text in said if text not in shown] == []
    assert [
        text for text in said if text in flat(otel_eval("explain", *words, "--redact").stdout)
    ] == []


def test_its_text_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """100 columns, no control characters, for each fourth file; and in the redacted form."""
    for options in ([], ["--redact"]):
        assert main(["explain", *map(str, FILES[::4]), *options]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 100
        assert all(line.isprintable() for line in lines)


AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def flat(text: str) -> str:
    """The text on one line, as wrapping does not matter."""
    return " ".join(text.split())


def test_a_trace_without_a_run(otel_eval: Run, traced: Callable[..., Path]) -> None:
    """Which spans of which scopes there are, what they have, what rules look at, and what to do."""
    path = traced(
        ("1", "", {"http.method": "GET"}),
        ("2", "1", {"gen_ai.operation.name": "ponder"}),
        scope="my.http",
    )
    done = otel_eval("explain", path)
    said = flat(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "my.http 2 2 none" in said
    assert (
        'ignored: no rule of a convention holds; rules tested gen_ai.operation.name="ponder"'
        in said
    )
    assert (
        "2 spans of my.http match no rule; their attributes: gen_ai.operation.name, http.method"
        in said
    )
    assert "no agent run: no span was recognised as an agent, a model call or a tool call." in said
    assert "under `conventions` in the configuration" in said
    assert "Attributes that rules test: " in said
    assert said.endswith("1 trace, 0 with an agent run")


@pytest.mark.parametrize(
    ("redact", "tool"), [([], "mine: step.kind=action"), (["--redact"], "mine: step.kind")]
)
def test_a_rule_is_shown_with_all_its_conditions(
    redact: list[str], tool: str, otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """Also a pattern for the span's name, which is no value of the span."""
    rules = (
        '[{kind: agent, name: "step 1"}, {kind: tool, key: step.kind, value: action, name: "step'
        ' *"}]'
    )
    path = config("{type: tool_errors}", more=f"conventions: [{{name: mine, rules: {rules}}}]")
    done = otel_eval(
        "explain",
        traced(("1", "", {}), ("2", "1", {"step.kind": "action"})),
        "--config",
        path,
        *redact,
    )
    said = flat(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine: span name step 1" in said
    assert f"{tool} and span name step *" in said


def test_a_missing_parent(otel_eval: Run, traced: Callable[..., Path]) -> None:
    """Where it is, as far as the flags tell; and what it does to the run."""
    said = flat(
        otel_eval("explain", traced(("1", "", AGENT), ("2", "1", TOOL), ("3", "9", TOOL))).stdout
    )
    assert "its parent is a span of the same process that did not arrive (9999999999999999)" in said
    assert "incomplete: a parent of spans within the run never arrived" in said
    assert "ignored: outside of every agent run" in said
    assert "tool_errors skipped, incomplete see above" in said


def test_the_conditions_that_fail(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """With what is wanted and what the run has."""
    more = "    match: {service: shop*, agent: Helper, attributes: {tenant: a*}}"
    path = traced(("1", "", AGENT), ("2", "1", TOOL))
    said = flat(
        otel_eval("explain", path, "--config", config("{type: tool_errors}", more=more)).stdout
    )
    assert "evaluation one does not match:" in said
    assert 'match.service requires "shop*", and the run has ""' in said
    assert 'match.agent requires "Helper", and the run has "helper"' in said
    assert 'match.attributes.tenant requires "a*", and the run has none' in said


def test_a_sample_and_a_run_inside_another(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """The other two conditions in words; both runs are shown."""
    path = traced(("1", "", AGENT), ("2", "1", {**AGENT, "gen_ai.agent.name": "inner"}))
    said = flat(
        otel_eval(
            "explain", path, "--config", config("{type: tool_errors}", more="    sample: 0.00001")
        ).stdout
    )
    assert "sample is 1e-05, and the hash of the trace id is 0." in said
    assert 'match.runs requires "outermost", and this run is inside another one' in said
    assert "(agent inner): an agent span; inside another run; 0 tool calls" in said


def test_all_spans_and_scopes_are_shown(otel_eval: Run, traced: Callable[..., Path]) -> None:
    """However many there are."""
    path = traced(("1", "", AGENT))
    document = json.loads(path.read_text(encoding="utf-8"))
    (group,) = document["resourceSpans"][0]["scopeSpans"]
    for number in range(100):
        child = {
            **group["spans"][0],
            "spanId": f"{number + 1:016}",
            "parentSpanId": "1" * 16,
            "attributes": [],
        }
        document["resourceSpans"][0]["scopeSpans"].append(
            {"scope": {"name": f"scope-{number}"}, "spans": [child]}
        )
    path.write_text(json.dumps(document), encoding="utf-8")
    lines = otel_eval("explain", path).stdout.splitlines()
    assert all(sum(f"scope-{number} " in line for line in lines) == 2 for number in range(100))
    assert sum("ignored: no rule" in line for line in lines) == 100


def test_what_a_skipped_scorer_lacked(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """Its reason and text; a scorer that failed by the type of its error."""
    scorers = [
        "{type: tool_call_args, expected: [{name: search, arguments: {q: 1}}]}",
        "{type: tool_call_order, reference: nowhere}",
    ]
    path = traced(("1", "", AGENT), ("2", "1", TOOL))
    said = flat(otel_eval("explain", path, "--config", config(*scorers)).stdout)
    assert "tool_call_args skipped, not_recorded" in said
    assert "not recorded (how to record it: docs/how-to/record-content.md)" in said
    assert "tool_call_order skipped, no_reference no reference: nowhere not recorded" in said


def test_judges_are_not_asked(otel_eval: Run, traced: Callable[..., Path], config: Write) -> None:
    """Explaining costs nothing, and needs no endpoint that answers."""
    judge = 'judges: {main: {base_url: "http://127.0.0.1:9/v1", model: m, api_key_env: KEY}}'
    path = config("{type: llm_judge, judge: main, criteria: polite}", more=judge)
    done = otel_eval(
        "explain", traced(("1", "", AGENT), ("2", "1", TOOL)), "--config", path, KEY="k"
    )
    assert done.returncode == 0
    assert "llm_judge not run" in flat(done.stdout)


def test_only_one_trace_and_an_unusable_file(
    otel_eval: Run, traced: Callable[..., Path], recorded: Path
) -> None:
    """Traces by the beginning of their id; what cannot be read is one line and exit 2."""
    path = traced(("1", "", AGENT))
    assert "2 traces, 2 with an agent run" in otel_eval("explain", path, recorded).stdout
    said = otel_eval("explain", path, recorded, "--trace", "ABAB").stdout
    assert f"trace {'ab' * 16}" in said
    assert "1 trace, 1 with an agent run" in said
    done = otel_eval("explain", path, "nowhere.json")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "1 trace, 1 with an agent run" in done.stdout


NAMED_BY = {
    key
    for table in TABLES
    for field in (Field.TOOL_NAME, Field.AGENT_NAME)
    for key in table.fields.get(field, ())
}


def plant(document: Any, spared: tuple[str, ...], keys: set[str]) -> int:
    """Append a secret to every text value but those that are names or that rules look at; how many
    there were.
    """
    if isinstance(document, list):
        return sum(plant(each, spared, keys) for each in document)
    if not isinstance(document, dict):
        return 0
    planted = 0
    for key in ("stringValue", "message"):
        # A message may end with a tool's name, and be where the name is read from.
        if isinstance(document.get(key), str) and not document[key].endswith(spared):
            document[key] += "SECRET"
            planted += 1
    return planted + sum(
        plant(value, spared, keys) for value in document.values() if document.get("key") not in keys
    )


def test_redacted_it_holds_names_and_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No id, time, service, attribute, event or status of any recorded trace; the names of spans
    stay.
    """
    traces = explained(FILES)
    runs = [run.trajectory for trace in traces for run in trace.runs]
    spans = [span for trace in traces for span in trace.trace.spans]
    called = {
        name
        for run in runs
        for name in (
            run.agent,
            *(call.name for call in run.calls),
            # some messages hold a name as the text of a Python literal
            *(f"'{call.name}'" for call in run.calls),
            *re.findall(r'"(.+?)"', run.waiting),
        )
    }
    # names by which tables tell closing tools from others
    closing = {name for table in TABLES for name in (*table.not_calls, *table.not_requests)}
    names = tuple((called | closing) - {""})
    keys = NAMED_BY | {key for span in spans for key in span.recognition.looked_at}
    for path in FILES:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert plant(document, names, keys) > 5
        (tmp_path / path.name).write_text(json.dumps(document), encoding="utf-8")
    planted = [str(tmp_path / path.name) for path in FILES]
    assert main(["explain", *planted, "--redact"]) == 0
    printed = capsys.readouterr().out
    assert "SECRET" not in printed
    ids = {*(trace.trace.trace_id for trace in traces), *(span.span_id for span in spans)}
    assert [span_id for span_id in ids if span_id in printed] == []
    assert spans[0].name in printed


def test_redacted_it_holds_no_value_of_the_configuration(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """Patterns and what they were compared with; attributes that no rule accepts; texts of scorers
    of one's own.
    """
    (traced(("1", "", {})).parent / "own.py").write_text(
        "from otel_eval import Skipped\ndef mine(run):\n    return Skipped('SECRET',"
        " reason='not_recorded')\n",
        encoding="utf-8",
    )
    path = traced(
        ("1", "", {**AGENT, "tenant": "SECRET"}),
        ("2", "1", {"gen_ai.operation.name": "SECRET"}),
        ("3", "1", TOOL),
    )
    more = "\n".join(
        [
            "    match: {service: SECRET, attributes: {tenant: b-SECRET}}",
            "  - {name: two, scorers: [{type: 'own:mine', name: mine}]}",
        ]
    )
    words = ["explain", path, "--config", config("{type: tool_errors}", more=more)]
    assert (
        otel_eval(*words, PYTHONPATH=f"{path.parent}:{Path(__file__).parents[3]}").stdout.count(
            "SECRET"
        )
        >= 5
    )
    done = otel_eval(*words, "--redact", PYTHONPATH=f"{path.parent}:{Path(__file__).parents[3]}")
    assert done.returncode == 0, done.stderr
    assert "match.attributes.tenant" in done.stdout
    assert "not_recorded" in done.stdout
    assert "SECRET" not in done.stdout
