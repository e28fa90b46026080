"""`python -m otel_eval` is the command `otel-eval`."""

from __future__ import annotations

import sys

from otel_eval.cli import main

if __name__ == "__main__":
    sys.exit(main())
