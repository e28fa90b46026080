"""Tell what has to be waited for, and run it to its end from code that does not wait.

Knows coroutines and event loops; starts no thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

__all__ = ["completed", "is_awaited"]


def is_awaited(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(type(function), "__call__", None))  # noqa: B004 - not whether, but how


def completed(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns.

    Raises:
        RuntimeError: an event loop runs in this thread; then the coroutine was not begun.
    """
    # Loaded only where a scorer is a coroutine: asyncio costs more to import than this package.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError("an event loop is running in this thread; await scorer.evaluate(trajectory) instead")
