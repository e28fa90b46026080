"""The real Collector as a process: start it with a configuration, read its metrics, stop it, kill
it.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import pytest

from tests.faults.fault_rig.service import free_port
from tests.support.child_process import ChildProcess
from tests.support.collector_build import built
from tests.support.waiting import LIMIT_S

__all__ = ["CollectorProcess", "program"]

START_S: Final = LIMIT_S
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def program() -> Path:
    """The Collector, or another that OTELCOL names; where there is none, the test is reported as
    not run.
    """
    found = Path(os.environ["OTELCOL"]) if "OTELCOL" in os.environ else built()
    if found is None:
        pytest.skip(
            "not run: there is no Collector; make collector builds it, OTELCOL=PATH names another"
        )
    return found


class CollectorProcess(ChildProcess):
    """A Collector with the components of tests/collector/manifest.yaml.

    Args:
        config: its file; `collector.log` is written beside it.
        env: variables beside those of this process.
    """

    def __init__(self, config: Path, env: Mapping[str, str] | None = None) -> None:
        self._config, self._env = config, {**os.environ, **(env or {})}
        self._port = free_port()
        self.log = config.parent / f"{config.stem}.log"

    def start(self) -> Self:
        """Start, and wait until it accepts data.

        Raises:
            AssertionError: it ended, or is not ready in time.
        """
        reader = f"{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {self._port}}}}}}}}}"
        metrics = f"yaml:service::telemetry::metrics: {{level: normal, readers: [{reader}]}}"
        said = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [program(), "--config", str(self._config), "--config", metrics],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._config.parent,
                env=self._env,
            )
        deadline = time.monotonic() + START_S
        while b"Everything is ready" not in (text := self.log.read_bytes()[said:]):
            assert self.process.poll() is None, text.decode(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(0.02)
        return self

    def metric(self, name: str, **labels: str) -> int:
        """The sum of one of its metrics, without `otelcol_`, over the series with these labels; 0
        if there is none yet.
        """
        with _OPENER.open(f"http://127.0.0.1:{self._port}/metrics", timeout=300) as answer:
            text = answer.read().decode()
        series = re.findall(rf"^otelcol_{name}(?:_total)?(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return int(
            sum(float(value) for found, value in series if all(each in found for each in wanted))
        )
