"""Pages stay short enough to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_pages import PAGES, README, name_of

MOST_WORDS = 2000
MOST_LINES_OF_README = 150
EXEMPT = {"scorers.md"}  # a reference with one section for each scorer, generated from docstrings


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in EXEMPT], ids=name_of)
def test_a_page_has_at_most_2000_words(page: Path) -> None:
    """Rules and bars of tables are no words."""
    words = [
        word
        for word in page.read_text(encoding="utf-8").split()
        if any(each.isalnum() for each in word)
    ]
    assert len(words) <= MOST_WORDS


def test_the_readme_has_at_most_150_lines() -> None:
    """It shows the first score and links to everything else."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_README
