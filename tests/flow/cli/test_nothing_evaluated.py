"""Exit code 3: a replay that evaluated nothing, or left records of a dataset unused, must not pass
in CI.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper", "case.id": "one"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
PASSES = '{type: tool_call_count, criteria: {search: ["==", 1]}}'
FAILS = '{type: tool_call_count, name: wrong, criteria: {search: ["==", 7]}}'
NOT_APPLICABLE = "{type: error_recovery}"
LABEL = "{type: label_distribution, label: case.id}"


@pytest.fixture
def run(traced: Callable[..., Path]) -> Path:
    """A trace of one agent run with one call."""
    return traced(("1", "", AGENT), ("2", "1", TOOL), name="run.json")


@pytest.fixture
def incomplete(traced: Callable[..., Path]) -> Path:
    """A trace with a run of which spans are missing."""
    return traced(("1", "", AGENT), ("2", "1", TOOL), ("3", "9", TOOL), name="incomplete.json")


def code_and_lines(done: subprocess.CompletedProcess[str]) -> tuple[int, list[str]]:
    """What a script and a person look at."""
    return done.returncode, done.stderr.splitlines()


def test_no_run_found(otel_eval: Run, config: Write, traced: Callable[..., Path]) -> None:
    """The spans and their scopes are named, with the command that explains."""
    plain = traced(("1", "", {}), ("2", "1", {"http.method": "GET"}), scope="my.http")
    code, (line,) = code_and_lines(otel_eval("replay", plain, "--config", config(PASSES)))
    assert code == 3
    assert line.startswith(
        "otel-eval: nothing was evaluated: no agent run found in 2 spans of scopes 'my.http' (2); "
    )
    assert "otel-eval explain" in line
    assert "--allow-empty" in line
    assert code_and_lines(
        otel_eval("replay", plain, "--config", config(PASSES), "--allow-empty")
    ) == (0, [])


def test_no_evaluation_matched(otel_eval: Run, run: Path, config: Write) -> None:
    """As with a misspelt agent."""
    path = config(PASSES, more="    match: {agent: another}")
    code, (line,) = code_and_lines(otel_eval("replay", run, "--config", path))
    assert code == 3
    assert line.startswith(
        "otel-eval: nothing was evaluated: no evaluation matched any of 1 run; service "
    )
    assert "evaluation 'one' does not match: match.agent requires 'another', and the run" in line
    assert code_and_lines(otel_eval("replay", run, "--config", path, "--allow-empty")) == (0, [])


def test_runs_that_no_evaluation_matched_are_counted_at_the_end(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """Beside those that were evaluated, and without a warning: a policy may be of one agent."""
    other = {**AGENT, "gen_ai.agent.name": "other"}
    path = traced(("1", "", AGENT), ("2", "1", TOOL), ("3", "", other))
    policy = config(PASSES, more="    match: {agent: helper}")
    done = otel_eval("replay", path, "--config", policy)
    assert code_and_lines(done) == (0, [])
    assert done.stdout.splitlines()[-1] == (
        "1 run, 1 result: 1 passed; 1 run matched no evaluation"
    )


def test_an_agent_that_runs_inside_another_needs_every_run(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """The pattern is right, and the remedy another one."""
    inner = {**AGENT, "gen_ai.agent.name": "inner"}
    path = traced(("1", "", AGENT), ("2", "1", inner), ("3", "2", TOOL))
    match = "    match: {agent: inner}"
    done = otel_eval("replay", path, "--config", config(PASSES, more=match))
    assert done.returncode == 3
    assert "inside another one; runs: all would match it" in done.stderr
    match = "    match: {agent: inner, runs: all}"
    assert otel_eval("replay", path, "--config", config(PASSES, more=match)).returncode == 0


def test_a_tool_call_of_no_agent_run_is_evaluated_by_itself_only(
    otel_eval: Run, traced: Callable[..., Path], config: Write
) -> None:
    """The warning, `explain` and `trajectory` say so."""
    path = traced(("1", "", TOOL))
    code, (line,) = code_and_lines(otel_eval("replay", path, "--config", config(PASSES)))
    assert code == 3
    assert "1 tool call of no agent run" in line
    assert "match: {runs: tools}" in line
    assert "match: {runs: tools}" in " ".join(otel_eval("explain", path).stdout.split())
    by_itself = config(PASSES, more="    match: {runs: tools}")
    assert otel_eval("replay", path, "--config", by_itself).returncode == 0
    assert "a tool call that belongs to no agent run" in " ".join(
        otel_eval("explain", path, "--config", by_itself).stdout.split()
    )
    shown = otel_eval("trajectory", path, "--format", "json", "--runs", "tools").stdout
    assert [call["name"] for call in json.loads(shown)["calls"]] == ["search"]
    assert otel_eval("trajectory", path, "--format", "json").stdout == ""


def test_a_sample_that_leaves_every_trace_out_is_named(
    otel_eval: Run, run: Path, config: Write
) -> None:
    """Else one looks for a wrong pattern."""
    done = otel_eval("replay", run, "--config", config(PASSES, more="    sample: 0.000001"))
    assert done.returncode == 3
    assert "(1): outside the sample; correct match or sample" in done.stderr


@pytest.mark.parametrize("scorers", [[PASSES], [PASSES, NOT_APPLICABLE], [PASSES, LABEL]])
def test_every_scorer_was_skipped(
    otel_eval: Run, incomplete: Path, config: Write, scorers: list[str]
) -> None:
    """For a reason that leaves the run unevaluated; what has nothing to score changes nothing."""
    code, (line,) = code_and_lines(otel_eval("replay", incomplete, "--config", config(*scorers)))
    assert code == 3
    assert "nothing was evaluated: every scorer was skipped (incomplete " in line
    assert (
        otel_eval("replay", incomplete, "--config", config(*scorers), "--allow-empty").returncode
        == 0
    )


@pytest.mark.parametrize(
    ("spans", "scorer", "reason"),
    [
        ([AGENT], PASSES, "calls_unknown"),
        (
            [AGENT, TOOL],
            "{type: tool_call_args, expected: [{name: search, arguments: {q: 1}}]}",
            "not_recorded",
        ),
        ([AGENT, TOOL], "{type: tool_call_order, reference: my.expected}", "no_reference"),
    ],
)
def test_each_reason_that_leaves_a_run_unevaluated(
    otel_eval: Run,
    traced: Callable[..., Path],
    config: Write,
    spans: list[dict[str, str]],
    scorer: str,
    reason: str,
) -> None:
    """Unknown is never a pass, and no success beside a score, unless that is allowed; a missing
    reference means that the scorer does not apply.
    """
    model = {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": "tool_calls"}
    members = [*spans, *([model] if reason == "calls_unknown" else [])]
    path = traced(
        *((str(place), "1" if place > 1 else "", each) for place, each in enumerate(members, 1))
    )
    code, (line,) = code_and_lines(
        otel_eval("replay", path, "--config", config(scorer, NOT_APPLICABLE))
    )
    assert code == 3
    assert f"every scorer was skipped ({reason} " in line
    beside = config(scorer, "{type: time_cost}")
    code, lines = code_and_lines(otel_eval("replay", path, "--config", beside))
    skipped = f"otel-eval: 1 result skipped ({reason} 1); --allow-skipped accepts that"
    assert (code, lines) == ((0, []) if reason == "no_reference" else (1, [skipped]))
    for option in ("--allow-skipped", "--allow-empty"):
        accepted = otel_eval("replay", path, "--config", beside, option)
        assert code_and_lines(accepted) == (0, [])


@pytest.mark.parametrize("scorers", [[NOT_APPLICABLE], [LABEL], [NOT_APPLICABLE, LABEL]])
def test_nothing_to_score_is_no_failure(
    otel_eval: Run, run: Path, config: Write, scorers: list[str]
) -> None:
    """No failed call for `error_recovery`, or a label that is only recorded."""
    assert code_and_lines(otel_eval("replay", run, "--config", config(*scorers))) == (0, [])


def test_a_score_that_did_not_pass_outranks(
    otel_eval: Run, run: Path, incomplete: Path, config: Write, tmp_path: Path
) -> None:
    """Exit 1, not 3 for an unused record; 2 outranks both, and 3 a skip if nothing was scored."""
    dataset = tmp_path / "cases.jsonl"
    dataset.write_text('{"case.id": "other", "expected": ["search"]}\n', encoding="utf-8")
    unused = "{type: tool_call_order, name: order, reference: {dataset: cases.jsonl, key: case.id}}"
    assert otel_eval("replay", run, "--config", config(FAILS, unused)).returncode == 1
    assert (
        otel_eval("replay", run, "nowhere.json", "--config", config(FAILS, unused)).returncode == 2
    )
    assert otel_eval("replay", incomplete, "--config", config(PASSES)).returncode == 3


ORDER = "{type: tool_call_order, reference: {dataset: cases.jsonl, key: case.id}}"


def cases(folder: Path, *keys: str) -> None:
    """A dataset of these keys."""
    rows = [json.dumps({"case.id": key, "expected": ["search"]}) for key in keys]
    (folder / "cases.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_a_record_that_matched_no_run(
    otel_eval: Run, run: Path, config: Write, tmp_path: Path
) -> None:
    """It is named: a case that was never run must not pass."""
    cases(tmp_path, "one", "two", "three")
    code, (line,) = code_and_lines(otel_eval("replay", run, "--config", config(ORDER)))
    assert code == 3
    assert line.startswith("otel-eval: ")
    assert "cases.jsonl: 2 of 3 records matched no run: line 2 'two', line 3 'three'; " in line
    assert "--allow-unused" in line
    assert code_and_lines(
        otel_eval("replay", run, "--config", config(ORDER), "--allow-unused")
    ) == (0, [])
    assert otel_eval("replay", run, "--config", config(ORDER), "--allow-empty").returncode == 3


@pytest.mark.parametrize("sampled", ["{scorer}", "evaluation"])
def test_records_are_not_missed_where_traces_are_sampled(
    otel_eval: Run, run: Path, config: Write, tmp_path: Path, sampled: str
) -> None:
    """A part of the traces cannot use all records."""
    cases(tmp_path, "one", "two")
    more = "    sample: 0.999999" if sampled == "evaluation" else ""
    tree = (
        "{type: dag, sample: 0.999999, reference: {dataset: cases.jsonl, key: case.id}, root: n,"
        " nodes: {n: {type: binary, cel: 'true', children: [{verdict: true, score: 10}, {verdict:"
        " false, score: 0}]}}}"
    )
    scorer = ORDER if sampled == "evaluation" else tree
    assert code_and_lines(otel_eval("replay", run, "--config", config(scorer, more=more))) == (
        0,
        [],
    )


def test_a_record_of_an_incomplete_run_is_used(
    otel_eval: Run, run: Path, incomplete: Path, config: Write, tmp_path: Path
) -> None:
    """The run is there, although it could not be scored."""
    cases(tmp_path, "one")
    done = otel_eval("replay", incomplete, "--config", config(ORDER))
    assert done.returncode == 3
    assert "matched no run" not in done.stderr


def test_a_record_behind_a_tree_counts_too(
    otel_eval: Run, run: Path, config: Write, tmp_path: Path
) -> None:
    """A tree may lead to a scorer with a dataset."""
    cases(tmp_path, "one", "two")
    further = f"{{scorer: {ORDER}}}"
    tree = (
        "{type: dag, root: n, nodes: {n: {type: binary, cel: 'true', children: [{verdict:"
        f" true, then: {further}}}, {{verdict: false, score: 0}}]}}}}}}"
    )
    done = otel_eval("replay", run, "--config", config(tree))
    assert done.returncode == 3
    assert "1 of 2 records matched no run: line 2 'two'" in done.stderr


def test_trajectory_names_what_holds_no_run(
    otel_eval: Run, run: Path, traced: Callable[..., Path]
) -> None:
    """On stderr, so that JSON stays JSON; the runs that are there are printed."""
    plain = traced(("1", "", {}), scope="my.http")
    plain.write_text(
        plain.read_text(encoding="utf-8").replace("ab" * 16, "cd" * 16), encoding="utf-8"
    )
    done = otel_eval("trajectory", plain, run, "--format", "json")
    assert done.returncode == 0
    assert [json.loads(line)["agent"] for line in done.stdout.splitlines()] == ["helper"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("otel-eval: no agent run found in 1 span of scopes 'my.http' (1); ")
    assert "otel-eval explain" in line
