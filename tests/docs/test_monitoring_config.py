"""The rules and the dashboard name metrics that exist, and the dashboard is what its script
writes.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GRAFANA, PROMETHEUS = (ROOT / "collector_config" / name for name in ("grafana", "prometheus"))


def documented() -> set[str]:
    """Names of metrics in the reference; endings of the lists in the page of self-metrics are not
    among them.
    """
    pages = [
        (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
        for name in ("signals", "self-metrics")
    ]
    return set(re.findall(r"`(otel_eval_\w+)`", "".join(pages)))


def rules() -> list[str]:
    documents = [
        yaml.safe_load((PROMETHEUS / name).read_text(encoding="utf-8"))
        for name in ("rules.yml", "alerts.yml")
    ]
    return [
        rule["expr"]
        for document in documents
        for group in document["groups"]
        for rule in group["rules"]
    ]


def panels() -> list[str]:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


LABELS = {
    "otel_eval_evaluation",
    "otel_eval_service",
    "otel_eval_environment",
    "otel_eval_service_version",
    "otel_eval_verdict",
    "otel_eval_outcome",
    "otel_eval_scorer_type",
}


@pytest.mark.parametrize("expression", [*rules(), *panels()])
def test_an_expression_names_metrics_that_exist(expression: str) -> None:
    named = {
        re.sub("_(bucket|sum|count)$", "", each)
        for each in re.findall(r"\botel_eval_\w+", expression)
    } - LABELS
    assert named <= documented()


def test_the_dashboard_is_what_its_script_writes() -> None:
    """Python collector_config/grafana/make_dashboard.py"""
    script = runpy.run_path(str(GRAFANA / "make_dashboard.py"))
    assert (GRAFANA / "dashboard.json").read_text(encoding="utf-8") == script["text"]()


def test_every_panel_has_a_place_of_its_own() -> None:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)) > 8
