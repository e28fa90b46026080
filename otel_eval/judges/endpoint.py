"""What is shared by all that ask one endpoint: its rate limit, answers by question, and the response formats that it accepts.

There is no lock: two threads that ask at the very same moment may at worst make one attempt too many.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from otel_eval.retry import RetryPolicy, delays
from otel_eval.scorers.judge import JudgeError

T = TypeVar("T")

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3600.0  # then it is tried once more: some endpoints send the time of day


class RetryableJudgeError(JudgeError):
    """There was no answer, but there may be one later.

    Attributes:
        after_s: how many seconds later, if the judge gave it.
    """

    def __init__(self, kind: str, message: str, after_s: float | None = None, status: int | None = None) -> None:
        super().__init__(kind, message, status)
        self.after_s = after_s


class RateLimiter:
    """A budget of attempts, and their repetition.

    Args:
        per_minute: attempts in any `window_s` seconds, or None for any number.
        retries: attempts after the first one.
        first_s: the wait before the first of them, doubled each time, where the judge does not say how long.
    """

    def __init__(
        self, per_minute: int | None = None, retries: int = 2, *, window_s: float = 60.0, first_s: float = _FIRST_S
    ) -> None:
        self._retries, self._window_s = retries, window_s
        self._policy: Final = RetryPolicy(first_s=first_s, factor=2.0, longest_s=_LONGEST_S)
        self._begun: Final[deque[float] | None] = deque(maxlen=per_minute) if per_minute else None
        self._paused_until = 0.0  # from `Retry-After`

    async def repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt returns.

        Raises:
            JudgeError: no attempt gave an answer; that of the last one.
        """
        waits = delays(self._policy)
        for number in range(self._retries + 1):
            await self._turn()
            try:
                return await attempt()
            except RetryableJudgeError as again:
                wait_s = again.after_s if again.after_s is not None else min(next(waits), _LONGEST_S)
                if again.after_s is not None:
                    self._paused_until = max(self._paused_until, time.monotonic() + min(again.after_s, _LONGEST_PAUSE_S))
                if number == self._retries or wait_s > _LONGEST_S:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _turn(self) -> None:
        """Wait until the judge may be asked. A cancelled wait takes nothing from the budget."""
        while (wait_s := self._to_wait()) > 0:
            await asyncio.sleep(wait_s)
        if self._begun is not None:
            self._begun.append(time.monotonic())

    def _to_wait(self) -> float:
        now = time.monotonic()
        pause_s = self._paused_until - now
        if pause_s > _LONGEST_S:
            raise JudgeError("judge_rate_limited", "the endpoint asked for a delay of more than a minute")
        if self._begun is None or len(self._begun) < (self._begun.maxlen or 0):
            return pause_s
        return max(pause_s, self._begun[0] + self._window_s - now)


class AnswerCache:
    """Remembers the `size` answers that were put or looked up last."""

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._answers: Final[OrderedDict[bytes, str]] = OrderedDict()  # the one that was used last is at the end

    def get(self, key: bytes) -> str | None:
        """The answer, or None."""
        found = self._answers.pop(key, None)
        if found is not None:
            self._answers[key] = found
        return found

    def put(self, key: bytes, answer: str) -> None:
        """Remember an answer."""
        self._answers[key] = answer
        with suppress(KeyError):  # another thread removes answers at the same moment
            while len(self._answers) > self._size:
                self._answers.popitem(last=False)


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


_MOST_TEXT: Final = 2**16  # of an answer
_BEGIN: Final = re.compile(r'\{\s*["}]')  # of an object
_DECODER: Final = json.JSONDecoder()
_USAGE: Final = {"input": "prompt_tokens", "output": "completion_tokens"}


def completion_of(body: bytes) -> Mapping[str, Any]:
    """The response as JSON.

    Raises:
        JudgeError: it is no JSON object.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        raise _no_completion()
    return found


def text_of(completion: Mapping[str, Any]) -> str:
    """What the model wrote.

    Raises:
        JudgeError: there is no text, the model refused, or the answer was cut off.
    """
    try:
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message["content"], message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        raise _no_completion() from None
    if refusal:
        raise JudgeError("judge_refused", "the model refused to judge")
    if finish == "length":
        raise JudgeError("judge_truncated", "the judge's answer was cut off (finish_reason: length)")
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        raise JudgeError("judge_malformed", "the judge's response has no text, or one that is too long")
    return text


def tokens_of(completion: Mapping[str, Any]) -> dict[str, int]:
    """The tokens that the request took, by `input` and `output`; without those that the endpoint does not report."""
    usage = completion.get("usage")
    found = {kind: usage.get(key) for kind, key in _USAGE.items()} if isinstance(usage, Mapping) else {}
    return {kind: count for kind, count in found.items() if type(count) is int and count >= 0}


def last_object(text: str) -> str | None:
    """The last JSON object outside of `<think>` blocks, or None; of text that is JSON, only the whole of it counts.

    Takes time in proportion to the text: what was read of a broken object is not read again.

    >>> last_object('<think>{"score": 1}</think> So it is {"score": 0.5}.')
    '{"score": 0.5}'
    """
    text = text.strip()
    try:
        return text if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        visible = text.rpartition("</think>")[2].partition("<think>")[0]
    found, end = None, 0
    while (begin := _BEGIN.search(visible, end)) is not None:
        at = begin.start()
        try:
            end = _DECODER.raw_decode(visible, at)[1]
            found = visible[at:end]
        except json.JSONDecodeError as error:
            end, found = max(error.pos, at + 1), None
        except (ValueError, RecursionError):  # a number or a nesting that is too long
            return None
    return found


def _no_completion() -> JudgeError:
    return JudgeError("judge_malformed", "the judge's response is no chat completion")


FORMS: Final = ("json_schema", "json_object", "text")  # best first
_ENOUGH: Final = 2  # different prompts
_PAUSE_S: Final = 60.0


class ResponseFormats:
    """Chooses the form. A refusal may be caused by the form or by the prompt, which the status does not tell.

    The form was the cause if the same prompt is accepted in a weaker one. After two different prompts of that kind the weaker
    form is used. Weaker forms are tried where the best one was never accepted, or where two different prompts were refused
    since; after two prompts that were refused in every form, for one prompt a minute.
    """

    def __init__(self) -> None:
        self.best = 0  # index of the form that is used
        self._accepted = False
        self._refused: Final[set[bytes]] = set()  # in the best form, since it was accepted last
        self._weaker: Final[dict[bytes, int]] = {}  # refused in the best form and accepted in this one
        self._in_vain = 0  # prompts that were refused in every form
        self._tried_at = 0.0

    def accepted(self, prompt: bytes, form: int) -> None:
        """The endpoint took the prompt in this form."""
        if form > self.best:
            self._weaker[prompt] = form
            if len(self._weaker) < _ENOUGH:
                return
            self.best = min(self._weaker.values())
        elif form < self.best:  # begun before the change
            return
        self._accepted, self._in_vain = True, 0
        self._refused.clear()
        self._weaker.clear()

    def weaker(self, prompt: bytes) -> range:
        """The forms to try for a prompt that was refused in the best one, which may be none."""
        if len(self._refused) < _ENOUGH:
            self._refused.add(prompt)
        now = time.monotonic()
        if self._accepted and len(self._refused) < _ENOUGH:
            return range(0)
        if self._in_vain >= _ENOUGH and now - self._tried_at < _PAUSE_S:
            return range(0)
        self._tried_at = now
        return range(self.best + 1, len(FORMS))

    def in_vain(self) -> None:
        """A prompt was refused in every form."""
        self._in_vain += 1


def form_fields(form: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that ask for an answer of this schema in this form."""
    kind = FORMS[form]
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    whole = {**schema, "type": "object", "required": [*schema["properties"]], "additionalProperties": False}
    return {"response_format": {"type": kind, "json_schema": {"name": "answer", "strict": True, "schema": whole}}}
