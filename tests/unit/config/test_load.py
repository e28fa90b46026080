"""The configuration from files, mappings and objects, and what is said of mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_eval import config
from otel_eval.app.build import config_schema
from otel_eval.app.exporting import (
    build_dead_letters,
    build_export_queues,
    build_receiver_exporters,
)
from otel_eval.config import (
    EvalConfig,
    Evaluation,
    Exporters,
    JsonlExporter,
    Match,
    OtlpReceiver,
    Protocols,
    Traces,
    load,
)
from otel_eval.counters import Counters
from otel_eval.delivery.exports import Exports
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer
from tests.support.waiting import LIMIT_S

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


def test_an_empty_configuration_is_the_default_evaluation() -> None:
    """It needs no reference; an empty file means the same."""
    (evaluation,) = load().evaluations
    assert (evaluation.name, [scorer.type for scorer in evaluation.build()]) == (
        "default",
        ["tool_errors", "time_cost"],
    )
    assert load({}) == load(None) == EvalConfig()


def test_parts_that_are_left_out_are_as_if_they_were_empty() -> None:
    """Their defaults are not validated: they are the values that validation gives."""
    parts = ("traces", "results", "async_scoring", "receivers", "exporters", "delivery")
    further = ("telemetry", "ui", "window")
    left_out = load({})
    empty = load({name: {} for name in (*parts, *further)})
    for name in (*parts, *further):
        assert getattr(left_out, name) == getattr(empty, name)
    assert left_out.receivers.otlp == OtlpReceiver()
    assert left_out.evaluations[0].match == Match()


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
    schema = config_schema()
    json.dumps(schema)
    shapes = schema["$defs"]
    parts = [shape for name, shape in shapes.items() if name in {*dir(config)}]
    for shape in (schema, *parts):
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
    config = load({"exporters": places})
    exporters = build_receiver_exporters(config)
    dead_letters = build_dead_letters(config)
    queues = build_export_queues(config, exporters, Counters(), lambda *_: None, dead_letters)
    assert Exports(queues).close(LIMIT_S)
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in "rd"] == ["0o640", "0o604"]


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A pipe that nothing writes to would block the program that loads it forever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        assert "cannot be read (no regular file); name a YAML file" in problem(path)
    (tmp_path / "empty.yaml").touch()
    assert load(tmp_path / "empty.yaml") == EvalConfig()


def test_an_evaluation_without_a_name_has_the_one_of_the_default_evaluation() -> None:
    """A second one needs another name."""
    nameless = {"scorers": [{"type": "tool_errors"}]}
    assert [each.name for each in load({"evaluations": [nameless]}).evaluations] == ["default"]
    assert problem({"evaluations": [nameless, nameless]}) == (
        "evaluations: the name 'default' is used twice; rename one of them"
    )


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("should_exact_match", "match: exact"),
        ("should_consider_ordering", "match: in_order"),
        ("evaluation_params", "compare: [arguments]"),
        ("tool_calls_count", "criteria: "),
        ("expected_output", "tool_call_output"),
        ("model", "judges"),
    ],
)
def test_a_key_of_another_library_points_to_ours(key: str, remedy: str) -> None:
    message = problem(scored_by({"type": "execution_order", "expected": ["a"], key: True}))
    place, _, words = message.partition(": unknown key; ")
    assert place == f"evaluations[0].scorers[0].{key}"
    assert remedy in words
