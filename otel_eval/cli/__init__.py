"""The command `otel-eval`."""

from __future__ import annotations

from otel_eval.cli.commands import main

__all__ = ["main"]
