"""Scores in MLflow: assessments of the runs' traces, by REST."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.dashboard_rig import outage, products, revised_run
from tests.dashboards.dashboard_rig.mlflow_api import Experiment
from tests.dashboards.dashboard_rig.recorded_runs import FILES, play, send
from tests.dashboards.dashboard_rig.ways import WAYS, Evaluation
from tests.support.waiting import wait_until

Found = dict[tuple[str, str], tuple[Any, str]]


def _evaluation(experiment: Experiment, folder: Path) -> Evaluation:
    exporters = {
        "mlflow": {
            "endpoint": experiment.url,
            "experiment": experiment.id,
            "timeout": "60s",
            "verdict": False,
        }
    }
    return Evaluation(
        partial(play), experiment.traces_endpoint, exporters, folder, experiment.headers
    )


def _expected(rows: list[dict[str, Any]]) -> Found:
    """By trace and name; what was skipped at first is not sent."""
    scored = [row for row in rows if row["outcome"] == "scored" or row["details"].get("label")]
    return {
        (row["trace_id"], row["scorer"]): (
            row["details"].get("label") or row["value"],
            row["explanation"],
        )
        for row in scored
    }


def _found(experiment: Experiment) -> Found:
    assessments = [
        (trace, each) for trace, listed in experiment.assessments().items() for each in listed
    ]
    found = {
        (trace, each["assessment_name"]): (each["feedback"]["value"], each["rationale"])
        for trace, each in assessments
    }
    assert len(found) == len(assessments), "an assessment is there twice"
    return found


@pytest.mark.parametrize("way", WAYS)
def test_every_score_is_an_assessment_of_its_run(mlflow: str, way: str, tmp_path: Path) -> None:
    experiment = Experiment.create(mlflow, f"scores of {way}")
    evaluation = _evaluation(experiment, tmp_path)
    WAYS[way](evaluation)
    expected = _expected(evaluation.rows())
    assert len({trace for trace, _ in expected}) == len(FILES)
    wait_until(lambda: len(_found(experiment)) >= len(expected), interval_s=1)
    assert _found(experiment) == expected
    low = {
        trace
        for (trace, name), (value, _) in expected.items()
        if name == "tool_errors" and value < 0.8
    }
    assert {
        trace["trace_id"].removeprefix("tr-")
        for trace in experiment.traces("feedback.tool_errors < 0.8")
    } == low


def test_a_second_replay_changes_no_count(mlflow: str, tmp_path: Path) -> None:
    """Each assessment keeps its id."""
    experiment = Experiment.create(mlflow, "twice")
    evaluation = _evaluation(experiment, tmp_path)

    def updated() -> dict[str, str]:
        return {
            each["assessment_id"]: each["last_update_time"]
            for listed in experiment.assessments().values()
            for each in listed
        }

    evaluation.by_replay()
    wait_until(lambda: len(updated()) == len(_expected(evaluation.rows())), interval_s=1)
    first = updated()
    evaluation.replay_again()
    wait_until(lambda: all(updated()[key] > at for key, at in first.items()), interval_s=1)
    assert updated().keys() == first.keys()


def test_every_score_is_there_once_after_kills(mlflow_path: Path, tmp_path: Path) -> None:
    """Of MLflow under load, and of the receiver while MLflow is away."""
    server, url = products.mlflow(mlflow_path, tmp_path / "mlflow")
    with server:
        experiment = Experiment.create(url, "killed")
        forward = {
            "endpoint": url,
            "protocol": "http/protobuf",
            "timeout": "60s",
            "headers": experiment.headers,
        }
        scores = {
            "endpoint": url,
            "experiment": experiment.id,
            "timeout": "60s",
            "verdict": False,
        }
        with outage.receiver(tmp_path, forward=forward, mlflow=scores) as served:
            expected = _expected(outage.survive(server, served, "unused"))
            wait_until(lambda: len(_found(experiment)) >= len(expected), outage.TIMEOUT_S, 2)
        assert _found(experiment) == expected


def test_a_late_revision_replaces_and_clears_scores(mlflow: str) -> None:
    experiment = Experiment.create(mlflow, "revised")
    spans, late = revised_run.spans("unused")
    send([*spans, late], experiment.traces_endpoint, experiment.headers)

    def scores() -> dict[str, float | None]:
        (listed,) = experiment.assessments().values()
        return {each["assessment_name"]: each["feedback"].get("value") for each in listed}

    with revised_run.served(
        {"mlflow": {"endpoint": mlflow, "experiment": experiment.id, "verdict": False}}
    ) as receive:
        receive(spans)
        wait_until(lambda: scores() == {"tool_errors": 1.0, "redundant_calls": 1.0}, interval_s=0.5)
        receive([late])
        wait_until(
            lambda: scores() == {"tool_errors": 0.5, "redundant_calls": None}, interval_s=0.5
        )
