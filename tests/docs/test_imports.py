"""What importing the package offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).parents[2]


def test_importing_the_package_loads_nothing_heavy_and_every_public_name_is_there() -> None:
    """An agent that adds a processor pays for what it uses."""
    script = (
        "import sys, otel_eval\n"
        "heavy = ('grpc', 'google.protobuf', 'pydantic', 'yaml', 'click')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "from otel_eval import ConfigError, EvalSpanProcessor, Failed, Scored, Skipped,"
        " create_scorer, trajectories\n"
        "from otel_eval.testing import call, trajectory"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
