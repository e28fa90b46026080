"""The commands of the how-to pages, run as they are written, put scores on the screen; and the
pictures show them.

Ports and the addresses of a product's data are the only things that differ. With
OTEL_EVAL_PICTURES=docs/images the pictures of the pages are taken again. Each picture has the
clicks that lead to it from the list of runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.dashboards.dashboard_rig import drive_browser, products
from tests.dashboards.dashboard_rig.mlflow_api import Experiment
from tests.dashboards.dashboard_rig.phoenix_api import Project
from tests.dashboards.dashboard_rig.rest import get
from tests.dashboards.dashboard_rig.servers import Server, free_port
from tests.support.doc_pages import ROOT, page
from tests.support.waiting import wait_until

RUNS, NOT_PASSED = 30, 18
SCORERS = {"tool_errors", "redundant_calls", "looks_up_first", "#verdict"}
PARTS = (
    "otel_eval",
    "examples",
    "collector_config",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
)
MOST_BYTES = 150_000
INSTALL_S = 500
# the first one adds a comment
UNFOLD = "xpath=(//*[text()='#verdict'])[last()]/following::button[2]"
Step = tuple[str, ...]
Shoot = Callable[..., None]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Followed:
    """A page that is followed in a copy of the repository, with ports of its own in place of those
    it names.
    """

    def __init__(self, name: str, folder: Path, *ports: int) -> None:
        self.commands = re.findall(r"^```sh\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)[
            0
        ].splitlines()
        self.clone, self.ports = folder / "clone", {port: free_port() for port in ports}
        self.clone.mkdir()
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, self.clone / part)
        for path in [
            *self.clone.glob("examples/*.y*ml"),
            *self.clone.glob("collector_config/**/*.y*ml"),
        ]:
            path.write_text(self.replaced(path.read_text(encoding="utf-8")), encoding="utf-8")

    def replaced(self, text: str) -> str:
        """The text with the ports of this test."""
        for port, own in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(own), text)
        return text

    def follow(self, stack: ExitStack, environment: dict[str, str]) -> None:
        """Run each command; one that ends in `&` until the stack is closed, once it listens at the
        next of the ports.
        """
        ports = iter(self.ports.values())
        for number, command in enumerate(self.commands):
            words = ["bash", "-c", self.replaced(command).removesuffix("&")]
            if command.endswith("&"):
                port, folder = next(ports), self.clone.parent / f"command-{number}"
                server = Server(
                    words,
                    folder,
                    ready=lambda port=port: _listens(port),
                    environment=environment,
                    cwd=self.clone,
                )
                stack.enter_context(server)
            else:
                done = subprocess.run(
                    words,
                    cwd=self.clone,
                    env=os.environ | environment,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_S,
                    check=False,
                )
                assert done.returncode == 0, done.stdout + done.stderr


def _first_on_path(program: Path) -> dict[str, str]:
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module")
def phoenix_page(phoenix_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the Phoenix that phoenix.md starts."""
    folder = tmp_path_factory.mktemp("phoenix-page")
    followed = Followed("phoenix", folder, 6006, 4318)
    own = products.phoenix_environment(folder / "data", followed.ports[6006])
    del own["PHOENIX_HOST"]  # the page sets it
    (folder / "data").mkdir()
    with ExitStack() as stack:
        followed.follow(stack, _first_on_path(phoenix_path) | own)
        yield f"http://127.0.0.1:{followed.ports[6006]}"


@pytest.fixture(scope="module")
def mlflow_page(mlflow_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the MLflow that mlflow.md starts."""
    followed = Followed("mlflow", tmp_path_factory.mktemp("mlflow-page"), 5000, 4318)
    with ExitStack() as stack:
        followed.follow(stack, _first_on_path(mlflow_path) | products.MLFLOW_QUIET)
        yield f"http://127.0.0.1:{followed.ports[5000]}"


@pytest.fixture(scope="module")
def prometheus_page(
    prometheus_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of the Prometheus that prometheus.md starts."""
    folder = tmp_path_factory.mktemp("prometheus-page")
    venv.create(folder / "venv", with_pip=True)
    followed = Followed("prometheus", folder, 9464, 9090, 4318)
    with ExitStack() as stack:
        followed.follow(stack, _first_on_path(folder / "venv" / "bin" / "python"))
        yield f"http://127.0.0.1:{followed.ports[9090]}"


@pytest.fixture
def shoot(browser_path: Path, chromium_path: Path, tmp_path: Path) -> Shoot:
    """Takes a picture at the end of steps in a browser, and checks the number of clicks that the
    page promises.
    """

    def take(
        name: str, before: list[Step], steps: list[Step], most_clicks: int = 2, height: int = 1000
    ) -> None:
        assert sum(step[0] == "click" for step in steps) <= most_clicks
        picture = tmp_path / name
        command = [browser_path, drive_browser.__file__, chromium_path, "1600", str(height)]
        done = subprocess.run(
            list(map(str, command)),
            input=json.dumps([*before, *steps, ("shot", str(picture))]),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert 10_000 < picture.stat().st_size <= MOST_BYTES
        if folder := os.environ.get("OTEL_EVAL_PICTURES"):
            shutil.copy(picture, ROOT / folder / name)

    return take


def _scored_runs(url: str) -> int:
    project = Project(url, "shop")
    spans = project.span_ids("parent_id is None")
    names = [(each["span_id"], each["name"]) for each in project.annotations(*sorted(spans))]
    return len({span for span, _ in names}) if {name for _, name in names} == SCORERS else 0


def test_the_commands_put_scores_into_phoenix(phoenix_page: str) -> None:
    """Each of the runs has all three and the verdict, by which the page filters."""
    wait_until(lambda: _scored_runs(phoenix_page) == RUNS, interval_s=1)
    project = Project(phoenix_page, "shop")
    assert len(project.span_ids("annotations['#verdict'].label == 'not_passed'")) == NOT_PASSED


def test_pictures_of_phoenix(phoenix_page: str, shoot: Shoot) -> None:
    """One click to the runs that did not pass, another to the reasons of one; two to a run with its
    scores, none to the charts of a tab.
    """
    wait_until(lambda: _scored_runs(phoenix_page) == RUNS, interval_s=1)
    listed = [
        ("open", f"{phoenix_page}/projects"),
        ("click", "text=shop"),
        ("wait", "text=invoke_agent"),
    ]
    verdict = "role=button[name=/#verdict/]"
    filtered = [
        ("click", ".cm-content"),
        ("press", "Control+a"),
        ("type", "annotations['#verdict'].label == 'not_passed'"),
        ("wait", ".cm-content:has-text('not_passed')"),
        ("press", "Enter"),
        ("gone", "text=invoke_agent search >> nth=2"),
    ]
    shoot("phoenix-list.png", listed, [("scroll", verdict), ("wait", verdict)])
    shoot(
        "phoenix-reason.png",
        listed,
        [*filtered, ("scroll", verdict), ("click", verdict), ("wait", "text=calls failed")],
    )
    shoot(
        "phoenix-run.png",
        listed,
        [("click", "text=invoke_agent refunds"), ("click", "role=button[name=/^Annotations/]")],
    )
    # a week is one point for runs of an hour
    hour = [("click", "text=Last 7 Days"), ("click", "text=Last Hour")]
    charts = [*listed, ("click", "role=tab[name=Metrics]"), *hour]
    shoot(
        "phoenix-metrics.png",
        charts,
        [("scroll", "text=tool_errors"), ("wait", "text=mean score >> nth=2")],
    )


def _assessed(url: str) -> int:
    listed = Experiment(url, "0").assessments().values()
    return sum(
        {each["assessment_name"] for each in assessments} == SCORERS for assessments in listed
    )


def test_the_commands_put_scores_into_mlflow(mlflow_page: str) -> None:
    """Each of the runs has all three and the verdict, by which the page filters."""
    wait_until(lambda: _assessed(mlflow_page) == RUNS, interval_s=1)
    assert len(Experiment(mlflow_page, "0").traces("feedback.`#verdict` = 'fail'")) == NOT_PASSED


def test_pictures_of_mlflow(mlflow_page: str, shoot: Shoot) -> None:
    """Without a click the verdicts and the reason of one; seven, with that on the last button, to
    the runs that did not pass. First the two hints of a first visit are closed.

    The reason of one score that is a number is folded, which makes three.
    """
    wait_until(lambda: _assessed(mlflow_page) == RUNS, interval_s=1)
    visited = [("open", f"{mlflow_page}/#/experiments/0/traces"), ("wait", "text=tool_errors")]
    visited += [("click", "role=button[name='Got it']"), ("click", "[aria-label*=lose] >> nth=-1")]
    shoot(
        "mlflow-list.png",
        visited,
        [("scroll", "text=tool_errors"), ("hover", "text=/^Fail$/"), ("wait", "text=Rationale")],
    )
    chosen = [
        ("click", "[aria-label=Filters]"),
        ("click", "[aria-label='Filter field']"),
        ("click", "text=/^Feedback$/"),
        ("click", "[aria-label='Filter key']"),
        ("click", "text=/^#verdict$/ >> nth=-1"),
        ("click", "[aria-label='Filter value']"),
        ("type", "fail"),
    ]
    shoot("mlflow-filter.png", visited, chosen, most_clicks=6)
    run = [
        ("click", "text=What about order 1009"),
        ("click", "role=button[name=/^Assess/]"),
        ("wait", "text=Feedback (4)"),
    ]
    reason = [("click", UNFOLD), ("wait", "text=Rationale")]
    shoot("mlflow-run.png", visited, [*run, *reason], most_clicks=3)
    shoot(
        "mlflow-quality.png",
        visited,
        [("click", "text=Overview"), ("click", "text=Quality"), ("wait", "text=tool_errors")],
    )


def test_the_commands_put_scores_and_an_alert_into_prometheus(prometheus_page: str) -> None:
    """Every expression of the page has data, and the agent that never passes raises the alert."""
    for expression in _expressions():
        assert get(f"{prometheus_page}/api/v1/query?query={quote(expression)}")["data"]["result"], (
            expression
        )
    wait_until(lambda: _firing(prometheus_page) == [("archive", "tool_errors")], interval_s=1)


def test_pictures_of_prometheus(prometheus_page: str, shoot: Shoot) -> None:
    """Without a click."""
    wait_until(lambda: bool(_firing(prometheus_page)), interval_s=1)
    panels = "&".join(
        f"g{number}.expr={quote(expression)}&g{number}.tab=0&g{number}.range_input=5m"
        for number, expression in enumerate(_expressions())
    )
    shoot(
        "prometheus-charts.png",
        [],
        [("open", f"{prometheus_page}/classic/graph?{panels}"), ("wait", "text=archive")],
        height=2250,
    )
    alerts = [("open", f"{prometheus_page}/classic/alerts"), ("wait", "text=AgentNeverPasses")]
    shoot(
        "prometheus-alert.png",
        [],
        [*alerts, ("click", "text=AgentNeverPasses"), ("wait", "text=archive")],
    )


def _expressions() -> list[str]:
    return re.findall(r"^```promql\n(.*?)^```", page("prometheus"), re.MULTILINE | re.DOTALL)[
        0
    ].splitlines()


def _firing(url: str) -> list[tuple[str, str]]:
    alerts = get(f"{url}/api/v1/alerts")["data"]["alerts"]
    labels = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    return [(each["gen_ai_agent_name"], each["gen_ai_evaluation_name"]) for each in labels]
