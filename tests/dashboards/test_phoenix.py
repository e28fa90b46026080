"""Scores in Phoenix: annotations of the runs' spans, by REST and GraphQL."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.dashboards.dashboard_rig import outage, products, revised_run
from tests.dashboards.dashboard_rig.phoenix_api import Project
from tests.dashboards.dashboard_rig.recorded_runs import FILES, play, send
from tests.dashboards.dashboard_rig.ways import WAYS, Evaluation
from tests.support.waiting import wait_until

Found = dict[tuple[str, str], tuple[float | None, str, str]]


def _evaluation(project: Project, folder: Path) -> Evaluation:
    played = partial(play, project=project.name)
    return Evaluation(
        played,
        f"{project.url}/v1/traces",
        {"phoenix": {"endpoint": project.url, "verdict": False}},
        folder,
    )


def _expected(rows: list[dict[str, Any]]) -> Found:
    """By span and name; what was skipped at first is not sent."""
    scored = [row for row in rows if row["outcome"] == "scored" or row["details"].get("label")]
    return {
        (row["span_id"], row["scorer"]): (row["value"], _label(row), row["explanation"])
        for row in scored
    }


def _label(row: dict[str, Any]) -> str:
    return row["details"].get("label") or ("pass" if row["passed"] else "fail")


def _found(project: Project, rows: list[dict[str, Any]]) -> Found:
    annotations = project.annotations(*sorted({row["span_id"] for row in rows}))
    results = {(each["span_id"], each["name"]): each["result"] for each in annotations}
    assert len(results) == len(annotations), "an annotation is there twice"
    return {
        key: (each["score"], each["label"], each["explanation"]) for key, each in results.items()
    }


@pytest.mark.parametrize("way", WAYS)
def test_every_score_is_an_annotation_of_its_run(phoenix: str, way: str, tmp_path: Path) -> None:
    project = Project(phoenix, f"scores-of-{way}")
    evaluation = _evaluation(project, tmp_path)
    WAYS[way](evaluation)
    expected = _expected(rows := evaluation.rows())
    assert len({row["span_id"] for row in rows}) == len(FILES)
    wait_until(lambda: len(_found(project, rows)) >= len(expected), interval_s=0.5)
    assert _found(project, rows) == expected


def test_scores_can_be_filtered_and_averaged(phoenix: str, tmp_path: Path) -> None:
    """The filter of the Spans page and the means of its side panel."""
    project = Project(phoenix, "filtered")
    evaluation = _evaluation(project, tmp_path)
    evaluation.by_serve()
    rows = [
        row
        for row in evaluation.rows()
        if row["scorer"] == "tool_errors" and row["outcome"] == "scored"
    ]
    low = {row["span_id"] for row in rows if row["value"] < 0.8}
    assert 0 < len(low) < len(rows)
    wait_until(
        lambda: project.span_ids("annotations['tool_errors'].score < 0.8") == low, interval_s=0.5
    )
    # of all, some of which may arrive after the low ones
    mean = pytest.approx(fmean(row["value"] for row in rows))
    wait_until(lambda: project.mean_scores().get("tool_errors") == mean, interval_s=0.5)


def test_a_second_replay_changes_no_count(phoenix: str, tmp_path: Path) -> None:
    """Each annotation keeps its id."""
    project = Project(phoenix, "twice")
    evaluation = _evaluation(project, tmp_path)
    evaluation.by_replay()
    expected = _expected(rows := evaluation.rows())
    wait_until(lambda: _found(project, rows) == expected, interval_s=0.5)

    def updated() -> dict[str, str]:
        return {
            each["id"]: each["updated_at"]
            for each in project.annotations(*{row["span_id"] for row in rows})
        }

    first = updated()
    evaluation.replay_again()
    wait_until(lambda: all(updated()[key] > at for key, at in first.items()), interval_s=0.5)
    assert updated().keys() == first.keys()


def test_every_score_is_there_once_after_kills(phoenix_path: Path, tmp_path: Path) -> None:
    """Of Phoenix under load, once it stored what it acknowledged, and of the receiver while Phoenix
    is away.
    """
    server, url = products.phoenix(phoenix_path, tmp_path / "phoenix")
    project = Project(url, "killed")
    forward = {"endpoint": url, "protocol": "http/protobuf", "timeout": "60s"}
    scores = {"endpoint": url, "timeout": "60s", "verdict": False}
    with server, outage.receiver(tmp_path, forward=forward, phoenix=scores) as served:
        rows = outage.survive(
            server, served, project.name, lambda made: _found(project, made) == _expected(made)
        )
        expected = _expected(rows)
        wait_until(lambda: len(_found(project, rows)) >= len(expected), outage.TIMEOUT_S, 2)
        assert _found(project, rows) == expected


def test_a_late_revision_replaces_and_clears_scores(phoenix: str) -> None:
    project = Project(phoenix, "revised")
    spans, late = revised_run.spans(project.name)
    run = format(spans[-1].context.span_id, "016x")
    send([*spans, late], f"{phoenix}/v1/traces")

    def scores() -> dict[str, tuple[float | None, str]]:
        return {
            each["name"]: (each["result"]["score"], each["result"]["label"])
            for each in project.annotations(run)
        }

    with revised_run.served({"phoenix": {"endpoint": phoenix, "verdict": False}}) as receive:
        receive(spans)
        wait_until(
            lambda: scores() == {"tool_errors": (1.0, "pass"), "redundant_calls": (1.0, "pass")},
            60,
            0.5,
        )
        receive([late])
        wait_until(
            lambda: (
                scores()
                == {"tool_errors": (0.5, "fail"), "redundant_calls": (None, "not_evaluated")}
            ),
            60,
            0.5,
        )
    assert project.mean_scores() == {"tool_errors": 0.5, "redundant_calls": None}
