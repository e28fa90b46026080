"""The configuration from files, mappings and objects, and what is said of mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.exporting import export_queues_of
from otel_eval.config import (
    EvalConfig,
    Evaluation,
    Exporters,
    JsonlExporter,
    Match,
    Protocols,
    Traces,
    load,
)
from otel_eval.counters import Counters
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer

SHAPE = """
traces: {decision_wait: 1s, decision_wait_partial: 6s, grace_period: 30s,
  idle_timeout: 5m, max_age: 1h,
  max_traces: 100000, max_spans_per_trace: 10000, max_bytes: 512MiB}
evaluations:
  - name: support-policy
    match:
      {service: "support-*", agent: "*", span: "*", runs: outermost,
       attributes: {deployment.environment.name: prod}}
    sample: 1.0
    scorers:
      - {type: tool_call_count, criteria: {search: "<= 3", refund: ["==", 1]}}
      - {type: tool_call_order, name: search-then-refund, expected: [search, refund],
         threshold: 1.0}
      - {type: time_cost, max_ms: 20000}
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:4317"}, http: {endpoint: "127.0.0.1:4318"}}}
exporters:
  otlp: {endpoint: "http://127.0.0.1:5317", protocol: grpc, signals: [logs, metrics, spans]}
  jsonl: {path: results.jsonl}
"""


def problem(given: Any) -> str:
    """The one line that a wrong configuration gives."""
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def scored_by(*scorers: Any, **more: Any) -> dict[str, Any]:
    """A configuration of one evaluation."""
    return {
        "evaluations": [
            {"name": "one", "scorers": list(scorers) or [{"type": "tool_errors"}], **more}
        ]
    }


def test_the_documented_shape_is_read_with_its_units(tmp_path: Path) -> None:
    """Seconds and bytes, whatever they were written in."""
    path = tmp_path / "eval.yaml"
    path.write_text(SHAPE, encoding="utf-8")
    config = load(path)
    assert (config.traces.idle_timeout, config.traces.max_bytes) == (300.0, 512 * 2**20)
    assert [scorer.name for scorer in config.evaluations[0].build()] == [
        "tool_call_count",
        "search-then-refund",
        "time_cost",
    ]
    assert config.exporters.jsonl == JsonlExporter(path="results.jsonl")


def test_nothing_given_is_the_default_evaluation() -> None:
    """It needs no reference; an empty file means the same."""
    (evaluation,) = load().evaluations
    assert (evaluation.name, [scorer.type for scorer in evaluation.build()]) == (
        "default",
        ["tool_errors", "time_cost"],
    )
    assert load({}) == load(None) == EvalConfig()


def test_an_empty_file_is_the_default_too(tmp_path: Path) -> None:
    """A file of comments says nothing."""
    path = tmp_path / "eval.yaml"
    path.write_text("# nothing yet\n", encoding="utf-8")
    assert load(path) == EvalConfig()


def test_objects_say_the_same_as_a_mapping() -> None:
    """Each key is an argument of the same name."""
    objects = EvalConfig(
        traces=Traces(decision_wait="2s"),
        evaluations=[
            Evaluation(name="one", match=Match(agent="a*"), scorers=[{"type": "tool_errors"}])
        ],
    )
    assert load(objects) is objects
    assert objects == load({"traces": {"decision_wait": 2}, **scored_by(match={"agent": "a*"})})


def test_a_scorer_may_be_an_object() -> None:
    """It is used as it is, and its name counts like any other."""
    scorer = create_scorer({"type": "tool_errors"})
    assert Evaluation(name="one", scorers=[scorer]).build() == (scorer,)
    with pytest.raises(ConfigError, match="the name 'tool_errors' is used twice"):
        Evaluation(name="one", scorers=[scorer, {"type": "tool_errors"}])


def test_only_the_protocols_named_are_served() -> None:
    """`grpc:` alone takes the defaults; none at all is a mistake."""
    protocols = load(
        {"receivers": {"otlp": {"protocols": {"grpc": None}}}}
    ).receivers.otlp.protocols
    assert protocols.grpc is not None
    assert protocols.grpc.endpoint == "127.0.0.1:4317"
    assert protocols.http is None
    with pytest.raises(ConfigError, match="no protocol is named"):
        Protocols()


def test_the_environment_is_expanded_in_files_and_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole reference has the type of its text."""
    monkeypatch.setenv("WAIT", "3")
    assert load({"traces": {"decision_wait": "${env:WAIT}"}}).traces.decision_wait == 3.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"evaluation": []}, ["evaluation: unknown key", "did you mean 'evaluations'?"]),
        (
            {"traces": {"decision_wiat": "1s"}},
            ["traces.decision_wiat: unknown key", "did you mean 'decision_wait'?"],
        ),
        (
            {"traces": {"decision_wait": "1 fortnight"}},
            ["traces.decision_wait: '1 fortnight' is not a duration", "write e.g. 250ms"],
        ),
        ({"traces": {"max_traces": 0}}, ["traces.max_traces: 0 is less than 1; raise it"]),
        (
            {"traces": {"decision_wait": "7s"}},
            ["traces.decision_wait: 7s is more than decision_wait_partial (6s)"],
        ),
        (
            {"traces": {"max_bytes": "1MiB"}},
            ["traces.max_bytes_per_trace: 64MiB is more than max_bytes (1MiB)"],
        ),
        ({"traces": []}, ["traces: [] is not a mapping; its keys are decision_wait, "]),
        ({"evaluations": []}, ["evaluations: the list is empty"]),
        (
            {"evaluations": {"name": "x"}},
            [
                "evaluations: {'name': 'x'} is not a list; write one, in brackets or with `- `"
                " before each entry"
            ],
        ),
        (
            {"evaluations": [{"scorers": [{"type": "tool_errors"}]}]},
            ["evaluations[0].name: is missing"],
        ),
        (scored_by(sample=2), ["evaluations[0].sample: 2 is more than 1; lower it"]),
        (
            scored_by(match={"runs": "inner"}),
            ["evaluations[0].match.runs: 'inner' is invalid; write 'outermost' or 'all'"],
        ),
        (
            scored_by(match={"service": 5}),
            [
                "evaluations[0].match.service: 5 is not text; write text, in quotes where it looks"
                " like a number"
            ],
        ),
        (scored_by("tool_errors"), ["evaluations[0].scorers[0]: 'tool_errors' is not a scorer"]),
        (
            scored_by({"type": "tool_eror"}),
            ["evaluations[0].scorers[0]", "tool_eror", "tool_errors"],
        ),
        (
            scored_by({"type": "tool_errors"}, {"type": "time_cost", "max_ms": -5}),
            ["evaluations[0].scorers[1].max_ms: -5"],
        ),
        (
            scored_by(
                {"type": "time_cost", "max_ms": -5, "strickt": True},
                {"type": "tool_call_order", "expected": ["a", 3, [4]]},
                {"type": "tool_call_count", "criteria": {"a-b": 1, "c d": 2}},
            ),
            [
                "evaluations[0].scorers[0].max_ms: -5",
                "evaluations[0].scorers[0].strickt: unknown key; did you mean 'strict'?",
                "evaluations[0].scorers[1].expected[1]: 3",
                "evaluations[0].scorers[1].expected[2][0]: 4",
                "evaluations[0].scorers[2].criteria.a-b: 1",
                "evaluations[0].scorers[2].criteria.c d: 2",
            ],
        ),
        (
            scored_by({"type": "tool_errors"}, {"type": "tool_errors"}),
            ["evaluations[0].scorers: the name 'tool_errors' is used twice"],
        ),
        (
            {"evaluations": scored_by()["evaluations"] * 2},
            ["evaluations: the name 'one' is used twice"],
        ),
        (
            {"receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "4317"}}}}},
            ["grpc.endpoint: '4317' is not host:port"],
        ),
        (
            {"receivers": {"kafka": {"brokers": ["me:pw@host"], "topic": "x"}}},
            ["brokers[0]: '***@host' is not host:port"],
        ),
        (
            {"exporters": {"otlp": {"endpoint": "http://x y:1"}}},
            ["exporters.otlp.endpoint: 'http://x y:1' is not a URL"],
        ),
        (
            {"exporters": {"otlp": {"endpoint": "localhost:4317"}}},
            ["exporters.otlp.endpoint: 'localhost:4317' is not a URL"],
        ),
        (
            {"exporters": {"otlp": {"endpoint": "http://h", "signals": ["log"]}}},
            ["exporters.otlp.signals[0]: 'log' is invalid; write 'logs', 'metrics' or 'spans'"],
        ),
        (
            {"exporters": {"otlp": {"endpoint": "http://h", "signals": []}}},
            ["exporters.otlp.signals: the list is empty; name at least one"],
        ),
        ({"exporters": {"jsonl": {}}}, ["exporters.jsonl.path: is missing"]),
        (
            {"exporters": {"jsonl": {"path": "r", "mode": 640}}},
            ["exporters.jsonl.mode: 640 is not text; write text, in quotes"],
        ),
        (
            {"exporters": {"jsonl": {"path": "r", "mode": "0777"}}},
            [
                "exporters.jsonl.mode: '0777' must let the owner read and write, and no one"
                " execute; write e.g. "
            ],
        ),
        (
            {"exporters": {"dead_letter_mode": "0440"}},
            ["exporters.dead_letter_mode: '0440' must let the owner read and write"],
        ),
        ({"conventions": [3]}, ["conventions[0]: 3 is not a convention"]),
        (
            {"traces": {"decision_wait": "${env:NOT_SET_ANYWHERE}"}},
            ["traces.decision_wait: the environment variable NOT_SET_ANYWHERE is not set"],
        ),
    ],
)
def test_an_error_names_its_path_its_value_and_the_remedy(given: Any, words: list[str]) -> None:
    """One line, however it came about."""
    line = problem(given)
    for word in words:
        assert word in line


def test_every_error_is_reported_at_once() -> None:
    """One line for each, joined."""
    line = problem({"traces": {"grace_period": "x", "max_age": "y"}, "signals": ["z"]})
    assert [
        path in line for path in ("traces.grace_period:", "traces.max_age:", "signals[0]:")
    ] == [True] * 3
    assert line.count("; ") >= 2


def test_a_key_is_never_shown() -> None:
    """Values of headers may be keys of a service."""
    assert "hunter2" not in problem(
        {"exporters": {"otlp": {"endpoint": "http://h", "headers": {"key": ["hunter2"]}}}}
    )


def test_objects_refuse_as_a_file_does() -> None:
    """Also where only a part is built."""
    with pytest.raises(ConfigError, match="max_age: 'x' is not a duration"):
        Traces(max_age="x")
    with pytest.raises(ConfigError, match="unknown key; did you mean 'jsonl'"):
        Exporters(json1=None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            (
                b"evaluations:\n- name: a\n  scorers:\n  - {type: tool_call_count, criteria:"
                b" {search: >= 3}}"
            ),
            "line 4: an unquoted >=",
        ),
        (b"- a\n", "is not a mapping of keys to values; begin with e.g. evaluations:"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"#" * (2**20 + 1), "is larger than 1 MiB"),
        (b"traces: {decision_wait: x}", "traces.decision_wait: 'x' is not a duration"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    """The path comes first."""
    path = tmp_path / "eval.yaml"
    path.write_bytes(content)
    line = problem(path)
    assert line.startswith(str(path))
    assert words in line


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """As is a folder, or a thing that is no configuration at all."""
    assert "cannot be read" in problem(tmp_path / "nowhere.yaml")
    assert "cannot be read" in problem(str(tmp_path))
    assert "int is no configuration" in problem(3)


def test_the_schema_describes_every_key() -> None:
    """Editors show it."""
    schema = EvalConfig.model_json_schema()
    json.dumps(schema)
    shapes = schema["$defs"]
    for shape in (schema, *shapes.values()):
        options = {"type": ["object", "null"]}  # of exporters of packages
        assert shape["additionalProperties"] == (options if shape is shapes["Exporters"] else False)
        for key, field in shape["properties"].items():
            described = field.get("description") or shapes[field["$ref"].rsplit("/", 1)[1]].get(
                "description"
            )
            assert described, key


def test_the_modes_of_files_reach_them(tmp_path: Path) -> None:
    """Of results and of dead letters, each its own; quoted octal digits."""
    places = {
        "jsonl": {"path": str(tmp_path / "r"), "mode": "0640"},
        "dead_letter": str(tmp_path / "d"),
        "dead_letter_mode": "604",
    }
    export_queues_of(load({"exporters": places}), Counters(), lambda *_: None).close(1.0)
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in "rd"] == ["0o640", "0o604"]


def test_a_pipe_without_content_is_not_the_default_evaluation() -> None:
    """What wrote to it failed, or it was read before; an empty file is the default."""
    end, begin = os.pipe()
    os.write(begin, b"window: {time: 5s}")
    os.close(begin)
    assert load(f"/dev/fd/{end}").window.time == 5.0
    assert "is a pipe without content; name a file" in problem(f"/dev/fd/{end}")
    os.close(end)
    assert load("/dev/null") == EvalConfig()
