"""The Collector accepts the configurations of the manifests and of the compose file."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.collector_process import program
from tests.support.manifests import configurations


@pytest.mark.parametrize("place", configurations("collector.yaml"))
def test_the_collector_accepts_the_configuration(place: str, tmp_path: Path) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text(configurations("collector.yaml")[place], encoding="utf-8")
    done = subprocess.run(
        [program(), "validate", f"--config={path}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
