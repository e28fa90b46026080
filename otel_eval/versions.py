"""The versions that identify a build, for the command line, the status page, the metrics and the log."""

from __future__ import annotations

import platform
from typing import Final

from otel_eval.native import extension

__all__ = ["VERSION", "build_info"]

VERSION: Final = "0.1.0"


def build_info() -> dict[str, str]:
    """The version of the package, whether its extension is used (`compiled` or `pure`), and the version of Python."""
    kind = "pure" if extension("_native") is None else "compiled"
    return {"version": VERSION, "extension": kind, "python": platform.python_version()}
