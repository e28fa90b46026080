"""The command `otel-eval`: what a person types, and the exit code a script reads.

Knows words, tables and exit codes; the work itself is done by the application beneath.
"""

from __future__ import annotations

from otel_eval.cli.door import main

__all__ = ["main"]
