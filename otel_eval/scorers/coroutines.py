"""Run a coroutine to its end from code that does not wait.

Knows event loops; starts no thread.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

__all__ = ["completed"]


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
