"""The Collector configurations can be parsed, and scores are not sent back to the evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_eval.config import load

FOLDER = Path(__file__).parents[2] / "collector_config"
COLLECTORS = sorted(path for path in FOLDER.glob("*.yaml") if "eval" not in path.name)


def read(path: Path) -> Any:
    """The document as a Collector reads it."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.name)
def test_a_pipeline_names_only_what_is_defined(path: Path) -> None:
    """A Collector would not start."""
    config = read(path)
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline.get(kind, [])) <= set(config[kind])


@pytest.mark.parametrize("path", COLLECTORS, ids=lambda path: path.name)
def test_scores_do_not_go_round(path: Path) -> None:
    """No pipeline that takes scores exports to otel-eval."""
    for pipeline in read(path)["service"]["pipelines"].values():
        if "otlp/scores" in pipeline["receivers"]:
            assert not [exporter for exporter in pipeline["exporters"] if exporter.endswith("/eval")]


def test_both_ends_name_the_same_ports() -> None:
    """What one exports to, the other listens on."""
    collector, ours = read(FOLDER / "collector.yaml"), load(FOLDER / "eval.yaml")
    grpc, back = ours.receivers.otlp.protocols.grpc, ours.exporters.otlp
    assert grpc is not None
    assert back is not None
    assert collector["exporters"]["otlp_grpc/eval"]["endpoint"] == grpc.endpoint
    assert back.endpoint == "http://" + collector["receivers"]["otlp/scores"]["protocols"]["grpc"]["endpoint"]


def test_forwarding_leads_from_ours_to_the_collector() -> None:
    """What one passes on to, the other listens on."""
    collector, ours = read(FOLDER / "forwarding-collector.yaml"), load(FOLDER / "forwarding-eval.yaml")
    assert ours.exporters.forward is not None
    assert ours.exporters.forward.endpoint == "http://" + collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
