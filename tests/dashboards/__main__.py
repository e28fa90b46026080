"""Install the dashboards that are missing and run the tests against them.

    python -m tests.dashboards [PYTEST OPTION ...]

What cannot be installed here is reported as not run, with the reason; only a test that ran and
failed makes the exit code 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.dashboards.dashboard_rig.tools import install_all

if __name__ == "__main__":
    install_all()
    code = pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent), *sys.argv[1:]])
    sys.exit(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
