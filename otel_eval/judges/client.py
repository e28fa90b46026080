"""Client for judges at an OpenAI-compatible chat endpoint: attempts, timeouts, response formats,
connections per event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from ssl import SSLContext
from typing import Any, Final

from otel_eval.counters import Counters
from otel_eval.errors import redacted
from otel_eval.judges.endpoint import (
    AnswerCache,
    RateLimiter,
    ResponseFormats,
    RetryableJudgeError,
    SharedRequests,
    completion_of,
    form_fields,
    last_object,
    text_of,
    tokens_of,
)
from otel_eval.retry import retry_after_s, suppress_tracing
from otel_eval.scorers.judge import JudgeError, parse_reply

_MOST_BYTES: Final = 2**20  # of a response
_FORM_UNKNOWN: Final = (400, 422)  # status codes of endpoints that do not support a response format
_RETRYABLE: Final = (408, 409, 425, 429)
_ONCE_MORE: Final = "\n\nYour last answer held no JSON object. Answer with the JSON object alone."


@dataclass(slots=True, eq=False)
class _OnLoop:
    """The connections and requests of one event loop, which end with it."""

    client: Any
    closer: AsyncGenerator[Any, None]
    in_flight: int = 0
    shared: SharedRequests = field(default_factory=SharedRequests)
    # held while other response formats are tried
    format_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True, eq=False)
class _JudgeRequest:
    key: bytes
    prompt: str
    schema: Mapping[str, Any]
    attempts: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class JudgeClient:
    """Client of an OpenAI-compatible chat endpoint, with a rate limit and a cache; all scorers of
    the endpoint share it.

    Connections belong to the event loop on which they are opened, and are closed with it.

    Attributes:
        base_url: the URL to which `/chat/completions` is appended.
        model: the model's name at the endpoint.
        read_key: returns the API key for each attempt, or None for no key; the key is never logged.
        timeout_s: seconds that one attempt may take.
        retries: attempts after the first one.
        per_minute: attempts in any minute, or None for no limit.
        cache: number of answers in the cache.
        parameters: further fields of each request, such as a temperature.
        tls: trusted authorities and client certificate; None for those of the system and no
            certificate.
        name: the judge's name, by which is counted.
        counters: counts `judges.attempts`, `judges.retries` (attempts after the first one for a
            prompt), `judges.cache_hits`, `judges.tokens` by `type`, and
            `judges.responses_without_usage`.
    """

    base_url: str
    model: str
    read_key: Callable[[], str | None] = lambda: None
    timeout_s: float = 60.0
    retries: int = 2
    per_minute: int | None = None
    cache: int = 1000
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tls: SSLContext | None = None
    name: str = "inline"
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self._retired = False
        self._closing: set[asyncio.Task[None]] = set()
        self._limits = RateLimiter(self.per_minute, self.retries)
        self._cache = AnswerCache(self.cache)
        self._forms = ResponseFormats()
        self._states: dict[asyncio.AbstractEventLoop, _OnLoop] = {}

    @property
    def as_given(self) -> str:
        """The model, which stands for the judge in a policy: the endpoint may move."""
        return self.model

    def __repr__(self) -> str:
        return f"Client({redacted(self.base_url)!r}, {self.model!r})"

    async def __call__(self, prompt: str) -> str:
        """Return the answer as the model wrote it.

        Raises:
            JudgeError: there is no answer.
        """
        request = _JudgeRequest(b"", prompt, {})
        return await self._limits.repeat(lambda: self._attempt(request, {}))

    async def structured(self, prompt: str, schema: Mapping[str, Any]) -> str:
        """Return the answer as JSON text, constrained to the schema as far as the endpoint supports
        it.

        Equal prompts share a request or a cached answer.

        Raises:
            JudgeError: there is no answer, or it does not conform to the schema.
        """
        asked = json.dumps([self.model, schema, prompt], sort_keys=True)
        key = blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        request = _JudgeRequest(key, prompt, schema)
        if not self.cache:
            return await self._answer(request)
        answer = self._cache.get(key)
        if answer is not None:
            self._count("judges.cache_hits")
            return answer
        shared = (await self._state_of_loop()).shared
        return await shared.once(
            key, lambda: self._answer(request), lambda: self._count("judges.cache_hits")
        )

    async def _answer(self, request: _JudgeRequest) -> str:
        """Return the answer as JSON text, and remember it in the cache. If a reply has no object of
        the schema, the judge is asked once more.

        Raises:
            JudgeError: there is no answer, or it does not conform to the schema.
        """
        reply = await self._ask(request)
        answer = last_object(reply, request.schema)
        if answer is None:
            request.prompt += _ONCE_MORE
            reply = await self._ask(request)
            answer = last_object(reply, request.schema) or reply
        parse_reply(answer, request.schema)  # raises before an unusable answer is cached
        self._cache.put(request.key, answer)
        return answer

    async def _ask(self, request: _JudgeRequest) -> str:
        """Request an answer in the preferred response format, or, if it is refused, in others that
        the endpoint may support.
        """
        form = self._forms.best
        try:
            return await self._ask_in_format(form, request)
        except _Refused as refused:
            if refused.status not in _FORM_UNKNOWN:
                raise
            async with (await self._state_of_loop()).format_lock:
                answer = await self._ask_in_other_formats(form, request)
            if answer is None:
                raise
            return answer

    async def _ask_in_other_formats(self, refused: int, request: _JudgeRequest) -> str | None:
        """Request an answer in the formats that may be tried after a refused one; return None if
        none is accepted.
        """
        best = self._forms.best
        alternatives = self._forms.weaker(request.key) if best == refused else range(best, best + 1)
        for form in alternatives:
            with suppress(_Refused):
                return await self._ask_in_format(form, request)
        if alternatives and best == refused:
            self._forms.note_failure()
        return None

    async def _ask_in_format(self, form: int, request: _JudgeRequest) -> str:
        """Request an answer in one response format, with retries, and remember that the endpoint
        accepts the format.

        Raises:
            JudgeError: there is no answer; `_Refused` if the request was refused.
        """
        answer = await self._limits.repeat(
            lambda: self._attempt(request, form_fields(form, request.schema))
        )
        self._forms.note_acceptance(request.key, form)
        return answer

    async def _attempt(self, request: _JudgeRequest, parameters: Mapping[str, Any]) -> str:
        """Make one request within `timeout_s`, and return the text of the answer.

        Raises:
            JudgeError: there is none; a `RetryableJudgeError` if it may be there the next time.
        """
        import openai

        self._count("judges.attempts")
        if request.attempts:
            self._count("judges.retries")
        request.attempts += 1
        limit_s = self.timeout_s
        with suppress_tracing():
            try:
                async with asyncio.timeout(limit_s):
                    completion = completion_of(await self._body(request.prompt, parameters))
                    self._count_tokens(completion)
                    return text_of(completion)
            except (TimeoutError, openai.APITimeoutError):
                raise RetryableJudgeError(
                    "judge_timeout", f"the judge did not answer within {limit_s:g} s"
                ) from None
            except openai.APIStatusError as error:
                raise _problem(error.status_code, error.response.headers) from None
            except JudgeError:
                raise
            except Exception as error:  # noqa: BLE001
                # the client has many layers, each with its own errors
                raise RetryableJudgeError(
                    "judge_unavailable", f"the judge cannot be reached: {type(error).__name__}"
                ) from None

    def _count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter of this judge."""
        self.counters.add(name, amount, judge=self.name, **labels)

    def _count_tokens(self, completion: Mapping[str, Any]) -> None:
        """Count the tokens of a response by kind, or that it reports none."""
        tokens = tokens_of(completion)
        for kind, amount in tokens.items():
            self._count("judges.tokens", amount, type=kind)
        if not tokens:
            self._count("judges.responses_without_usage")

    async def _body(self, prompt: str, parameters: Mapping[str, Any]) -> bytes:
        """Make a request, and return the body of the response; raises JudgeError if it is longer
        than 1 MiB.
        """
        state = await self._state_of_loop()
        state.in_flight += 1
        body = bytearray()
        try:
            async with state.client.chat.completions.with_streaming_response.create(
                model=self.model,
                messages=[{"role": "user", "content": prompt}],
                extra_body={**self.parameters, **parameters},
                extra_headers=_headers(self.read_key()),
            ) as response:
                async for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        raise JudgeError(
                            "judge_malformed", "the judge's response is longer than 1 MiB"
                        )
        finally:
            state.in_flight -= 1
            self._close_unused(asyncio.get_running_loop())
        return bytes(body)

    def retire(self) -> None:
        """Close connections as soon as no request uses them. May be called from any thread; later
        requests still work.
        """
        self._retired = True
        for loop in list(self._states):
            with suppress(RuntimeError):  # the loop has ended, and its connections with it
                loop.call_soon_threadsafe(self._close_unused, loop)

    def _close_unused(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections of an event loop if the client is retired and no request of that
        loop uses them.
        """
        state = self._states.get(loop)
        if self._retired and state is not None and not state.in_flight:
            del self._states[loop]
            task = loop.create_task(state.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _state_of_loop(self) -> _OnLoop:
        """What belongs to the running event loop, created at its first request."""
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None:
            # one for each synchronous call of a scorer
            for other in list(self._states):
                if other.is_closed():
                    self._states.pop(other, None)
            # the loop closes this generator, and so the client, when it ends
            closer = _opened(self)
            state = self._states[loop] = _OnLoop(await anext(closer), closer)
        return state


class _Refused(JudgeError):
    def __init__(self, status: int) -> None:
        super().__init__("judge_refused", f"the judge refused: HTTP status {status}", status)


async def _opened(judge: JudgeClient) -> AsyncGenerator[Any, None]:
    """Yield a client of the endpoint, and close it at the end."""
    import openai

    client = openai.AsyncOpenAI(
        api_key="none",  # each request has its own header
        base_url=judge.base_url,
        timeout=judge.timeout_s,
        max_retries=0,  # retries are made by `RateLimiter`
        http_client=openai.DefaultAsyncHttpxClient(
            follow_redirects=False,
            verify=judge.tls or True,
            event_hooks={"response": [_close_if_error]},
        ),
    )
    # otherwise a thread detects it, which cannot start during shutdown
    client._platform = "Unknown"
    try:
        yield client
    finally:
        await client.close()


def _headers(key: str | None) -> dict[str, Any]:
    """Return the authorization header, and omit account headers from the environment, which may
    belong to another endpoint.
    """
    from openai import Omit

    return {
        "Authorization": f"Bearer {key}" if key else Omit(),
        "OpenAI-Organization": Omit(),
        "OpenAI-Project": Omit(),
    }


async def _close_if_error(response: Any) -> None:
    if response.status_code >= 300:
        await response.aclose()


def _problem(status: int, headers: Mapping[str, str]) -> JudgeError:
    """The error for a status that is no success; a `RetryableJudgeError` for 5xx and those
    after which a retry can help.
    """
    if status not in _RETRYABLE and status < 500:
        return _Refused(status)
    kind = "judge_rate_limited" if status == 429 else "judge_unavailable"
    return RetryableJudgeError(
        kind,
        f"the judge answered with HTTP status {status}",
        retry_after_s(headers.get("retry-after", "")),
        status,
    )
