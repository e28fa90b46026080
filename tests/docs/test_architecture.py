"""The page on the architecture names the layers of the import contracts and every module and
package of the top level.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.support.doc_pages import ROOT, document

PAGE = document("architecture.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([a-z_]\w*)`")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return found


def layers_on_the_page() -> list[str]:
    numbered = re.findall(r"^\d+\. (.*)$", section("What may import what"), re.MULTILINE)
    # Behind a colon or in brackets stand remarks.
    return [name for line in numbered for name in NAME.findall(line.split(":")[0].split("(")[0])]


def test_the_page_has_the_layers_of_the_contract():
    """From top to bottom."""
    layers = [name for layer in contracts()[0]["layers"] for name in layer.split(" | ")]
    assert layers_on_the_page() == layers[layers.index("__main__") + 1 :]


def test_the_page_names_every_module_of_the_top_level():
    """Among its paragraphs on packages."""
    top = {
        path.stem
        for path in (ROOT / "otel_eval").iterdir()
        if Path(path, "__init__.py").exists() or path.suffix == ".py"
    }
    assert top - {"__init__", "__main__"} == top & set(NAME.findall(section("Packages")))
