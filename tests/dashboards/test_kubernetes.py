"""The manifests are valid by the published schemas of the oldest and the newest Kubernetes that the
README of collector_config names.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MANIFESTS = sorted(
    (Path(__file__).parents[2] / "collector_config" / "kubernetes").glob("*.yaml"),
    key=lambda path: path.name,
)


def problems(program: Path, version: str, *manifests: Path) -> str:
    """What the schemas of this version forbid; nothing of what is valid."""
    done = subprocess.run(
        [program, "--strict", "--kubernetes-version", version, "--quiet", *manifests],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_the_manifests_are_valid(kubernetes_path: Path, version: str, tmp_path: Path) -> None:
    assert problems(kubernetes_path, version, *MANIFESTS) == ""
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFESTS[0].read_text(encoding="utf-8").replace("replicas:", "replica:"))
    assert "replica" in problems(kubernetes_path, version, wrong)
