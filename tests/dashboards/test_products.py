"""Each product starts on loopback alone and accepts recorded runs from the exporter of the SDK."""

from __future__ import annotations

from pathlib import Path

from tests.dashboards.dashboard_rig import products
from tests.dashboards.dashboard_rig.mlflow_api import Experiment
from tests.dashboards.dashboard_rig.phoenix_api import Project
from tests.dashboards.dashboard_rig.recorded_runs import FILES, exporting, play
from tests.dashboards.dashboard_rig.servers import LOOPBACK, Server
from tests.support.waiting import wait_until


def _runs_on_loopback(started: tuple[Server, str]) -> None:
    server, _ = started
    with server:
        assert server.listening() - LOOPBACK == set()
        assert server.listening()


def test_phoenix_has_the_runs_in_their_project(phoenix: str) -> None:
    project = Project(phoenix, "arrival")
    runs = play([exporting(f"{phoenix}/v1/traces")], project=project.name)
    roots = {run.root_id for run in runs}  # Phoenix counts a trace before it has stored its root
    wait_until(lambda: roots <= project.span_ids(), interval_s=0.5)
    assert project.trace_count() == len(FILES)


def test_phoenix_listens_on_loopback(phoenix_path: Path, tmp_path: Path) -> None:
    _runs_on_loopback(products.phoenix(phoenix_path, tmp_path))


def test_mlflow_has_the_runs_in_their_experiment(mlflow: str) -> None:
    experiment = Experiment.create(mlflow, "arrival")
    runs = play([exporting(experiment.traces_endpoint, experiment.headers)])
    assert experiment.assessments() == {run.trace_id: [] for run in runs}


def test_mlflow_listens_on_loopback(mlflow_path: Path, tmp_path: Path) -> None:
    _runs_on_loopback(products.mlflow(mlflow_path, tmp_path))


def test_prometheus_listens_on_loopback(prometheus_path: Path, tmp_path: Path) -> None:
    _runs_on_loopback(products.prometheus(prometheus_path, tmp_path, ""))


def test_prometheus_3_listens_on_loopback(prometheus3_path: Path, tmp_path: Path) -> None:
    _runs_on_loopback(
        products.prometheus(prometheus3_path, tmp_path, "", "--web.enable-otlp-receiver")
    )
