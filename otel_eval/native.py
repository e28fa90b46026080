"""The version of the package, and loading of the optional C extension."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from types import ModuleType
from typing import Final

VERSION: Final = "0.1.0"


def extension(name: str) -> ModuleType | None:
    """The extension of that name; None if the package was installed without a compiler, or
    `OTEL_EVAL_PURE=1` is set.

    Functions of an extension return the same as their counterparts in Python.
    """
    if os.environ.get("OTEL_EVAL_PURE") == "1":
        return None
    try:
        return import_module(f"otel_eval.{name}")
    # Also raised for an extension that was built for another version of Python.
    except ImportError:
        return None


def build_info() -> dict[str, str]:
    """The version of the package, whether its extension is used (`compiled` or `pure`), and the
    version of Python.
    """
    kind = "pure" if extension("_native") is None else "compiled"
    return {"version": VERSION, "extension": kind, "python": platform.python_version()}
