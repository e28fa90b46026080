"""Find the optional extension in C."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

__all__ = ["extension"]


def extension(name: str) -> ModuleType | None:
    """The extension of that name; None if the package was installed without a compiler, or `OTEL_EVAL_PURE=1` is set.

    What an extension returns equals what Python returns without it.
    """
    if os.environ.get("OTEL_EVAL_PURE") == "1":
        return None
    try:
        return import_module(f"otel_eval.{name}")
    except ImportError:
        return None
