"""Rules, alerts and the Grafana dashboard in real Prometheus: by a scrape of the receiver, and
pushed by OTLP.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.dashboards.dashboard_rig import products, revised_run
from tests.dashboards.dashboard_rig.recorded_runs import FILES, exporting, play, send
from tests.dashboards.dashboard_rig.rest import get
from tests.dashboards.dashboard_rig.ways import SCORERS
from tests.support.otlp_backend import ANYWHERE
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "collector_config"
TIMEOUT_S = 60
# how metrics arrive, and the tool that it needs
WAYS = {"scraping": "prometheus", "receiving": "prometheus3"}
RULES = ("rules.yml", "alerts.yml")


@contextmanager
def serving(**given: Any) -> Iterator[tuple[Server, str]]:
    """A receiver, and where it takes spans."""
    traces = {"decision_wait": "300ms", "decision_wait_partial": "500ms"}
    evaluations = [{"name": "policy", "scorers": list(SCORERS)}]
    server = Server(
        load({"receivers": ANYWHERE, "traces": traces, "evaluations": evaluations} | given)
    )
    try:
        yield server, f"http://{server.start().http}/v1/traces"
    finally:
        server.stop(10)


def configuration(folder: Path, target: str = "") -> str:
    """Of Prometheus: our rules, evaluated every second, and the receiver to scrape."""
    for name in RULES:
        rules = (MONITORING / "prometheus" / name).read_text(encoding="utf-8")
        # soon, and not after the next full five minutes: what they amount to, promtool tests
        for ours, quick in (("interval: 30s", "interval: 1s"), ("[30m:5m]", "[30m:5s]")):
            rules = rules.replace(ours, quick)
        (folder / name).write_text(rules, encoding="utf-8")
    jobs = [{"job_name": "otel-eval", "static_configs": [{"targets": [target]}]}] if target else []
    intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return json.dumps(
        {
            "global": intervals,
            "rule_files": [str(folder / each) for each in RULES],
            "scrape_configs": jobs,
        }
    )


@pytest.fixture(scope="module")
def scraping(prometheus_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's Prometheus, which scrapes a receiver to which runs were sent."""
    folder = tmp_path_factory.mktemp("scrape")
    with serving(
        telemetry={"endpoint": "127.0.0.1:0"},
        exporters={"jsonl": {"path": str(folder / "out.jsonl")}},
    ) as (server, to):
        program, url = products.prometheus(
            prometheus_path, folder, configuration(folder, str(server.admin.address))
        )
        with program:
            send_runs(server, to)
            yield url


@pytest.fixture(scope="module")
def receiving(prometheus3_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Prometheus 3, to which a receiver pushes."""
    folder = tmp_path_factory.mktemp("push")
    program, url = products.prometheus(
        prometheus3_path, folder, configuration(folder), "--web.enable-otlp-receiver"
    )
    to_it = {"endpoint": f"{url}/api/v1/otlp", "protocol": "http/protobuf"}
    with (
        program,
        serving(
            exporters={
                "otlp": to_it | {"signals": ["metrics"]},
                "jsonl": {"path": str(folder / "out.jsonl")},  # has a queue, which a panel shows
            },
            telemetry={"otlp": to_it | {"interval": "1s"}},
        ) as (
            server,
            to,
        ),
    ):
        send_runs(server, to)
        yield url


def send_runs(server: Server, to: str) -> None:
    """Recorded runs, and one that is evaluated again because of a late span."""
    in_time, late = revised_run.spans("")
    for number, action in enumerate(
        (lambda: play([exporting(to)]), lambda: send(in_time, to), lambda: send([late], to))
    ):
        action()
        wait_until(lambda: server.counts()["reports"] >= len(FILES) + number, TIMEOUT_S)  # noqa: B023 - it is called at once


@pytest.fixture(
    params=[pytest.param(way, marks=pytest.mark.tool(tool)) for way, tool in WAYS.items()]
)
def prometheus(request: pytest.FixtureRequest) -> str:
    """The URL of a Prometheus with data of a run, by either way."""
    return str(request.getfixturevalue(request.param))


def values(url: str, expression: str) -> list[float]:
    """The values that an expression has now."""
    answer = get(f"{url}/api/v1/query?{urlencode({'query': expression})}")
    return [float(series["value"][1]) for series in answer["data"]["result"]]


def expressions() -> dict[str, str]:
    """Of the panels of the dashboard, as Grafana sends them with the default choices."""
    dashboard = json.loads((MONITORING / "grafana/dashboard.json").read_text(encoding="utf-8"))
    found = {
        f"{panel['title']} {each['refId']}": each["expr"]
        for panel in dashboard["panels"]
        for each in panel["targets"]
    }
    variables = dict.fromkeys(("$service", "$agent", "$scorer", "$version"), ".*")
    for variable, value in (variables | {"${window}": "300"}).items():
        found = {name: expression.replace(variable, value) for name, expression in found.items()}
    return found


@pytest.mark.parametrize("panel", expressions())
def test_a_panel_has_data(prometheus: str, panel: str) -> None:
    expression = expressions()[panel]
    wait_until(lambda: bool(values(prometheus, expression)), TIMEOUT_S)
    assert all(value >= 0 for value in values(prometheus, expression))


def recorded() -> list[str]:
    return re.findall(
        r"record: (\S+)", (MONITORING / "prometheus/rules.yml").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", recorded())
def test_a_recording_rule_has_data(prometheus: str, name: str) -> None:
    wait_until(lambda: bool(values(prometheus, name)), TIMEOUT_S)
    assert all(value >= 0 for value in values(prometheus, name))


def test_an_alert_fires_for_agents_that_do_not_pass(prometheus: str) -> None:
    """All recorded runs but one have a call that failed; here the alert is pending."""
    alerts = 'ALERTS{alertname=~"OtelEvalPassRateLow|OtelEvalNeverPasses"}'
    wait_until(lambda: bool(values(prometheus, alerts)), TIMEOUT_S)


def documented() -> set[str]:
    """The names in the reference."""
    page = (ROOT / "docs/reference/signals.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `otel_eval\.\S+` +\|.*\| `(otel_eval_\w+)` \|", page, re.MULTILINE))


def test_every_metric_has_its_documented_name(prometheus: str) -> None:
    """And no other one."""

    def found() -> set[str]:
        ours = [
            f'{{__name__=~"otel_eval_.+",{label}=~".+"}}'
            for label in ("otel_eval_evaluation", "gen_ai_tool_name")
        ]
        ours.append('{__name__="otel_eval_start_time_seconds"}')
        query = urlencode([("match[]", selector) for selector in ours])
        answer = get(f"{prometheus}/api/v1/label/__name__/values?{query}")
        return {re.sub("_(bucket|sum|count)$", "", each) for each in answer["data"]}

    documented_names = {re.sub("_(bucket|sum|count)$", "", each) for each in documented()}
    wait_until(lambda: found() >= documented_names, TIMEOUT_S)
    assert found() == documented_names


def test_the_rules_and_their_tests_are_good(promtool_path: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(MONITORING / "prometheus", tmp_path / "rules")
    for command in (("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")):
        done = subprocess.run(
            [promtool_path, *command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "left_out",
    [
        " and on (job, instance) otel_eval:watched",
        "otel_eval_start_time_seconds offset 5m or ",
        " or otel_eval_start_time_seconds > time() - 300",
        " > 0",
        " or vector(0)",
        " and otel_eval:scored:count30m >= 10",
        " and otel_eval:scored:count30m >= 5",
        " and otel_eval:tool_calls:count30m >= 20",
        " and on () (count(otel_eval_start_time_seconds offset 30m) > 0)",
    ],
)
def test_the_tests_of_the_rules_notice_what_is_left_out(
    promtool_path: Path, tmp_path: Path, left_out: str
) -> None:
    folder = shutil.copytree(MONITORING / "prometheus", tmp_path / "rules")
    count = 0
    for name in RULES:
        rules = (folder / name).read_text(encoding="utf-8").replace("\n            and", " and")
        count += rules.count(left_out)
        (folder / name).write_text(rules.replace(left_out, ""), encoding="utf-8")
    assert count
    command = [promtool_path, "test", "rules", "rules_test.yml"]
    assert (
        subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False).returncode
        == 1
    )
