"""The Collector configurations can be parsed, and scores are not sent back to the evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_eval.config import load

FOLDER = Path(__file__).parents[2] / "collector_config"
COLLECTORS = sorted(FOLDER.glob("*/collector*.yaml"))
EVALUATORS = sorted(FOLDER.glob("*/eval*.yaml"))


def read(path: Path) -> Any:
    """The document as a Collector reads it."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_pipeline_names_only_what_is_defined(path: Path) -> None:
    """A Collector would not start."""
    config = read(path)
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline.get(kind, [])) <= set(config[kind])


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scores_do_not_go_round(path: Path) -> None:
    """No pipeline that takes scores exports to otel-eval."""
    for pipeline in read(path)["service"]["pipelines"].values():
        if "otlp/scores" in pipeline["receivers"]:
            assert not [
                exporter for exporter in pipeline["exporters"] if exporter.endswith("/eval")
            ]


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_leads_to_an_evaluator_does_not_give_up(path: Path) -> None:
    """A queue and endless retries: without them the absence of an evaluator loses its spans."""
    for name, exporter in read(path)["exporters"].items():
        if name.endswith("/eval") or name == "kafka":
            reliable = exporter["protocol"]["otlp"] if "protocol" in exporter else exporter
            assert reliable["retry_on_failure"]["max_elapsed_time"] == "0s"
            assert reliable["sending_queue"]["queue_size"] >= 20_000


@pytest.mark.parametrize("path", EVALUATORS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_evaluator_keeps_what_it_acknowledged(path: Path) -> None:
    """Otherwise a restart loses open traces, and their counters cannot be read."""
    ours = load(path)
    assert ours.storage is not None or ours.receivers.kafka is not None
    assert ours.telemetry.endpoint
