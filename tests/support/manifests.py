"""The configurations in the manifests for Kubernetes and beside the compose file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parents[2] / "collector_config"


def objects_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def configurations(name: str) -> dict[str, str]:
    """The texts of all files called `name`, by where they are."""
    found = {
        f"{path.name} {each['metadata']['name']}": each["data"][name]
        for path in sorted(FOLDER.glob("kubernetes/*.yaml"))
        for each in objects_of(path)
        if each["kind"] == "ConfigMap" and name in each["data"]
    }
    return found | {"compose": (FOLDER / "compose" / name).read_text(encoding="utf-8")}
