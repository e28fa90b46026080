"""State of an endpoint that its requests share: rate limit, cached answers, requests in flight, and
accepted response formats.

There is no lock: at worst, two threads that start a request in the same moment make one attempt too
many.
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

_MINUTE_S: Final = 60.0
# between attempts, unless the endpoint sets a delay
_POLICY: Final = RetryPolicy(first_s=0.5, factor=2.0, longest_s=_MINUTE_S)
# upper limit of a pause: some endpoints send the time of day instead of a delay
_LONGEST_PAUSE_S: Final = 3600.0


class RetryableJudgeError(JudgeError):
    """An attempt failed, and a retry may succeed.

    Attributes:
        after_s: the delay in seconds that the endpoint asked for, or None.
    """

    def __init__(
        self, kind: str, message: str, after_s: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(kind, message, status)
        self.after_s = after_s


class RateLimiter:
    """Limits the rate of attempts, and retries them with backoff.

    Args:
        per_minute: attempts in any minute, or None for no limit.
        retries: attempts after the first one.
    """

    def __init__(self, per_minute: int | None = None, retries: int = 2) -> None:
        self._retries: Final = retries
        # the times of the latest attempts
        self._begun: Final[deque[float] | None] = deque(maxlen=per_minute) if per_minute else None
        self._paused_until = 0.0  # from `Retry-After`

    async def repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first attempt that succeeds.

        Raises:
            JudgeError: the error of the last attempt.
        """
        waits = delays(_POLICY)
        for number in range(self._retries + 1):
            await self._turn()
            try:
                return await attempt()
            except RetryableJudgeError as again:
                wait_s = again.after_s if again.after_s is not None else min(next(waits), _MINUTE_S)
                if again.after_s is not None:
                    self._paused_until = max(
                        self._paused_until, time.monotonic() + min(again.after_s, _LONGEST_PAUSE_S)
                    )
                if number == self._retries or wait_s > _MINUTE_S:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    async def _turn(self) -> None:
        """Wait until the rate limit allows an attempt, and count it. A cancelled wait is not
        counted.
        """
        while (wait_s := self._pause_s()) > 0:
            await asyncio.sleep(wait_s)
        if self._begun is not None:
            self._begun.append(time.monotonic())

    def _pause_s(self) -> float:
        now = time.monotonic()
        pause_s = self._paused_until - now
        if pause_s > _MINUTE_S:
            raise JudgeError(
                "judge_rate_limited", "the endpoint asked for a delay of more than a minute"
            )
        if self._begun is None or len(self._begun) < (self._begun.maxlen or 0):
            return pause_s
        return max(pause_s, self._begun[0] + _MINUTE_S - now)


class AnswerCache:
    """An LRU cache of `size` answers."""

    def __init__(self, size: int) -> None:
        self._size: Final = size
        # the most recently used is last
        self._answers: Final[OrderedDict[bytes, str]] = OrderedDict()

    def get(self, key: bytes) -> str | None:
        """Return the answer, or None."""
        answer = self._answers.pop(key, None)
        if answer is not None:
            self._answers[key] = answer
        return answer

    def put(self, key: bytes, answer: str) -> None:
        """Add an answer, and evict the least recently used ones beyond `size`."""
        self._answers[key] = answer
        with suppress(KeyError):  # another thread removes answers at the same moment
            while len(self._answers) > self._size:
                self._answers.popitem(last=False)


class SharedRequests:
    """Requests in flight on one event loop, which equal requests share."""

    def __init__(self) -> None:
        self._open: Final[dict[bytes, asyncio.Future[str | JudgeError]]] = {}

    async def once(
        self, key: bytes, ask: Callable[[], Awaitable[str]], on_joined: Callable[[], None]
    ) -> str:
        """Return the answer of `ask`, or of an equal request in flight; in that case call `joined`
        first.

        Raises:
            JudgeError: there is no answer.
        """
        while (other := self._open.get(key)) is not None:
            await asyncio.wait([other])  # does not cancel the future if this task is cancelled
            if not other.cancelled():
                on_joined()
                answer = other.result()
                if isinstance(answer, JudgeError):
                    raise JudgeError(answer.kind, str(answer), answer.status)
                return answer
        return await self._lead(key, ask)

    async def _lead(self, key: bytes, ask: Callable[[], Awaitable[str]]) -> str:
        future = self._open[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
            future.set_result(answer)
        except JudgeError as error:
            future.set_result(error)
            raise
        finally:
            future.cancel()  # if no result was set, one of the waiting tasks makes the request
            del self._open[key]
        return answer


_MOST_TEXT: Final = 2**16  # characters of an answer
_BEGIN: Final = re.compile(r'\{\s*["}]')  # the beginning of an object
_DECODER: Final = json.JSONDecoder()
_USAGE: Final = {"input": "prompt_tokens", "output": "completion_tokens"}


def completion_of(body: bytes) -> Mapping[str, Any]:
    """Decode the body of a response.

    Raises:
        JudgeError: it is not a JSON object.
    """
    with suppress(ValueError, RecursionError):
        completion = json.loads(body)
        if isinstance(completion, dict):
            return completion
    raise _no_completion()


def text_of(completion: Mapping[str, Any]) -> str:
    """Return the text that the model wrote.

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
        raise JudgeError(
            "judge_truncated", "the judge's answer was cut off (finish_reason: length)"
        )
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        raise JudgeError(
            "judge_malformed", "the judge's response has no text, or one that is too long"
        )
    return text


def tokens_of(completion: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens that the request used, by `input` and `output`, without those that the
    endpoint does not report.
    """
    usage = completion.get("usage")
    if not isinstance(usage, Mapping):
        return {}
    counts = {kind: usage.get(key) for kind, key in _USAGE.items()}
    return {kind: count for kind, count in counts.items() if type(count) is int and count >= 0}


def last_object(text: str, schema: Mapping[str, Any]) -> str | None:
    """Return the last JSON object outside of `<think>` blocks, or None. If the whole text is JSON,
    it must be an object.

    Takes linear time: the parsed part of a malformed object is not parsed again.

    Args:
        schema: of an answer.

    Raises:
        JudgeError: two objects differ in a property other than free text. One of them may quote
            what is judged.

    >>> score = {"properties": {"score": {"type": "number"}}}
    >>> last_object('<think>{"score": 1}</think> So it is {"score": 0.5}.', score)
    '{"score": 0.5}'
    """
    decisive = [
        key
        for key, rule in schema["properties"].items()
        if rule.get("type") != "string" or "enum" in rule
    ]
    decided: dict[str, Any] = {}
    text = text.strip()
    try:
        return text if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        visible = text.rpartition("</think>")[2].partition("<think>")[0]
    last, end = None, 0
    while (begin := _BEGIN.search(visible, end)) is not None:
        at = begin.start()
        try:
            value, end = _DECODER.raw_decode(visible, at)
            last = visible[at:end]
            for key in decisive:
                if key in value and decided.setdefault(key, value[key]) != value[key]:
                    raise JudgeError(
                        "judge_malformed", f"the judge's answer has two different values of {key}"
                    )
        except json.JSONDecodeError as error:
            end, last = max(error.pos, at + 1), None
        except (ValueError, RecursionError):  # a number is too long, or the nesting too deep
            return None
    return last


def _no_completion() -> JudgeError:
    return JudgeError("judge_malformed", "the judge's response is no chat completion")


FORMS: Final = ("json_schema", "json_object", "text")  # best first
_ENOUGH: Final = 2  # distinct prompts
_PAUSE_S: Final = 60.0


class ResponseFormats:
    """Chooses the response format. A refusal may be caused by the format or by the prompt; the
    status does not tell which.

    If the same prompt is accepted in a weaker format, the format was the cause. After two such
    prompts the weaker format is used. Weaker formats are tried if the preferred one was never
    accepted, or if two distinct prompts were refused since it was; after two prompts that were
    refused in every format, they are tried for one prompt a minute.
    """

    def __init__(self) -> None:
        self.best = 0  # index in `FORMS` of the preferred format
        self._accepted = False
        # refused in the preferred format since it was last accepted
        self._refused: Final[set[bytes]] = set()
        # prompt refused in the preferred format → format that accepted it
        self._weaker: Final[dict[bytes, int]] = {}
        self._in_vain = 0  # number of prompts that were refused in every format
        self._tried_at = 0.0

    def note_acceptance(self, prompt: bytes, form: int) -> None:
        """Record that the endpoint accepted a prompt in this format."""
        if form > self.best:
            self._weaker[prompt] = form
            if len(self._weaker) < _ENOUGH:
                return
            self.best = min(self._weaker.values())
        elif form < self.best:  # the request was sent before `best` changed
            return
        self._accepted, self._in_vain = True, 0
        self._refused.clear()
        self._weaker.clear()

    def weaker(self, prompt: bytes) -> range:
        """Return the formats to try for a prompt that was refused in the preferred one; the range
        may be empty.
        """
        if len(self._refused) < _ENOUGH:
            self._refused.add(prompt)
        now = time.monotonic()
        if self._accepted and len(self._refused) < _ENOUGH:
            return range(0)
        if self._in_vain >= _ENOUGH and now - self._tried_at < _PAUSE_S:
            return range(0)
        self._tried_at = now
        return range(self.best + 1, len(FORMS))

    def note_failure(self) -> None:
        """Record that a prompt was refused in every format."""
        self._in_vain += 1


def form_fields(form: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request for an answer of this schema in this format."""
    kind = FORMS[form]
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": kind}}
    whole = {
        **schema,
        "type": "object",
        "required": [*schema["properties"]],
        "additionalProperties": False,
    }
    return {
        "response_format": {
            "type": kind,
            "json_schema": {"name": "answer", "strict": True, "schema": whole},
        }
    }
