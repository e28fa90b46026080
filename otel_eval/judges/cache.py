"""Answers by question, so that equal questions are asked once, also at the same time. One dict operation a step; no lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from otel_eval.scorers.judge import JudgeError

__all__ = ["AnswerCache", "SharedRequests"]


class AnswerCache:
    """Remembers the answers that were put or looked up last: at least half of `size`, at most `size`; 0 none at all."""

    def __init__(self, size: int) -> None:
        self._half: Final = (size + 1) // 2
        self._new: dict[bytes, str] = {}
        self._old: dict[bytes, str] = {}

    def get(self, key: bytes) -> str | None:
        """The answer, or None."""
        found = self._new.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: bytes, answer: str) -> None:
        """Remember an answer."""
        if self._half == 0:
            return
        if len(self._new) >= self._half:
            self._new, self._old = {}, self._new
        self._new[key] = answer


class SharedRequests:
    """Questions that wait for their answers on one event loop."""

    def __init__(self) -> None:
        self._open: Final[dict[bytes, asyncio.Future[str | JudgeError]]] = {}

    async def once(self, key: bytes, ask: Callable[[], Awaitable[str]], joined: Callable[[], None]) -> str:
        """The answer of `ask`, or that of an equal question that waits already, after a call of `joined`.

        Raises:
            JudgeError: there is no answer.
        """
        while (other := self._open.get(key)) is not None:
            await asyncio.wait([other])  # leaves it alone where this task is cancelled
            if not other.cancelled():
                joined()
                return _result(other.result())
        return await self._lead(key, ask)

    async def _lead(self, key: bytes, ask: Callable[[], Awaitable[str]]) -> str:
        mine = self._open[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
            mine.set_result(answer)
        except JudgeError as error:
            mine.set_result(error)
            raise
        finally:
            mine.cancel()  # where nothing was set: those that wait ask themselves
            del self._open[key]
        return answer


def _result(found: str | JudgeError) -> str:
    if isinstance(found, JudgeError):
        raise JudgeError(found.kind, str(found), found.status)
    return found
