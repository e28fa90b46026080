"""The files for deployment say what the package does."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from otel_eval.app.server import Server
from otel_eval.cli import cli
from otel_eval.cli.serving import STOP_S
from otel_eval.config import load
from tests.support.doc_pages import ROOT, document
from tests.support.otlp_backend import ANYWHERE
from tests.support.waiting import LIMIT_S

DEPLOY = document("Dockerfile").parent


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "otel-eval.service", encoding="utf-8")
    return parser


def test_the_unit_runs_commands_that_exist(unit: configparser.ConfigParser) -> None:
    """With the options they have, and with time enough to end."""
    service = unit["Service"]
    for key in ("ExecStartPre", "ExecStart"):
        program, command, *_ = service[key].split()
        assert (Path(program).name, command in cli.commands) == ("otel-eval", True)
    assert float(service["TimeoutStopSec"].removesuffix("s")) > STOP_S + 2


def test_the_unit_gives_nothing_away(unit: configparser.ConfigParser) -> None:
    """No root, no capability, nothing to write to but its state."""
    service = unit["Service"]
    assert (
        service["DynamicUser"],
        service["CapabilityBoundingSet"],
        service["NoNewPrivileges"],
    ) == ("yes", "", "yes")
    assert (service["ProtectSystem"], service["ProtectHome"]) == ("strict", "yes")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify`, with a program that is there in the place of ours; where there is
    systemd.
    """
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("not run: systemd-analyze is not installed")
    text = (DEPLOY / "otel-eval.service").read_text(encoding="utf-8")
    copy = tmp_path / "otel-eval.service"
    copy.write_text(
        text.replace("/opt/otel-eval/bin/otel-eval", shutil.which("true") or "/bin/true"),
        encoding="utf-8",
    )
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=300
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"not run: {done.stderr.strip()}")
    ours = [line for line in done.stderr.splitlines() if "otel-eval.service" in line]
    assert (ours, done.returncode) == ([], 0)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, lines that go on joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def test_the_image_does_not_run_as_root() -> None:
    """By number, so that an orchestrator can see it; and the stage that compiles is not what
    runs.
    """
    stages = [index for index, (word, _) in enumerate(instructions()) if word == "FROM"]
    last = instructions()[stages[-1] :]
    assert len(stages) == 2
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", dict(last)["USER"])
    assert not any("gcc" in rest for _, rest in last)


def test_the_image_copies_what_is_there_and_runs_what_exists() -> None:
    """Each source of a COPY, each command."""
    found = instructions()
    copied = [
        part
        for word, rest in found
        if word == "COPY" and "--from" not in rest
        for part in rest.split()[:-1]
    ]
    assert "constraints.txt" in copied
    assert [part for part in copied if not (ROOT / part).exists()] == []
    assert json.loads(dict(found)["ENTRYPOINT"]) == ["otel-eval"]
    command, option, _ = json.loads(dict(found)["CMD"])
    assert option in [name for each in cli.commands[command].params for name in each.opts]


def test_the_image_has_extras_that_exist() -> None:
    """Those of `pyproject.toml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = dict(instructions())["ARG"].removeprefix("EXTRAS=").split(",")
    assert {"cel", "kafka"} <= set(extras) <= project["optional-dependencies"].keys()


def test_the_health_check_of_the_image_follows_the_server() -> None:
    """It succeeds while the server responds, and fails when nothing listens."""
    check = dict(instructions())["HEALTHCHECK"].partition("CMD ")[2]
    command = [sys.executable, *json.loads(check)[1:]]
    server = Server(
        load(
            {
                "receivers": ANYWHERE,
                "telemetry": {"endpoint": "127.0.0.1:0"},
                "exporters": {"jsonl": {"path": "-"}},
            }
        )
    )
    try:
        server.start()
        url = f"http://{server.admin.address}/healthz"
        environment = {**os.environ, "OTEL_EVAL_HEALTH_URL": url}
        assert subprocess.run(command, env=environment, timeout=LIMIT_S).returncode == 0
    finally:
        server.stop(1)
    done = subprocess.run(command, env=environment, timeout=LIMIT_S, stderr=subprocess.DEVNULL)
    assert done.returncode == 1
