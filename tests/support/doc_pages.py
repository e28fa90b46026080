"""Find the pages of the documentation by name, in whichever folder of `docs` they are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("collector_config/*.md")),
]


def document(name: str) -> Path:
    """The only file with this name under `docs`, apart from the records of decisions."""
    (path,) = (path for path in (ROOT / "docs").rglob(name) if path.parent.name != "decisions")
    return path


def page(name: str) -> str:
    """The text of a page: `page("receiver")`."""
    return document(f"{name}.md").read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    """A page relative to the root of the repository, as the name of a test case."""
    return path.relative_to(ROOT).as_posix()
