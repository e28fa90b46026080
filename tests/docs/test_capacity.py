"""The capacity page shows what its script computes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.doc_pages import ROOT, page


@pytest.mark.parametrize("profile", ["lean", "recorded"])
def test_the_page_has_the_rows_of_the_script(profile: str) -> None:
    """With the inputs that are checked in."""
    command = [sys.executable, str(ROOT / "tests" / "bench" / "capacity.py"), "--profile", profile]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() in page("capacity")
