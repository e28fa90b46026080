"""A judge that is an OpenAI-compatible chat endpoint, asked through the `openai` package.

Knows the protocol's requests, answers and errors; knows nothing of what is asked. Of what an endpoint says when it
refuses, nothing but the status is read: it may quote the key or the prompt. Nothing of it is traced.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from time import time
from typing import Any, Final
from weakref import WeakKeyDictionary

from otel_eval.judges.cache import Cache
from otel_eval.judges.endpoint import Endpoint
from otel_eval.judges.limits import Again, Limits
from otel_eval.quiet import unseen
from otel_eval.scorers.judging import JudgeError, reply_of

__all__ = ["Client"]

_MOST_BYTES: Final = 2**20  # of a response
_MOST_TEXT: Final = 2**16  # of an answer
_FORMS: Final = ("json_schema", "json_object", "text")  # how an answer is held to its schema, best first
_FORM_UNKNOWN: Final = (400, 422)  # what endpoints say to a form they do not know
_COME_AGAIN: Final = (408, 409, 425, 429)


class Client:
    """Asks an endpoint; one that everybody shares, with one budget and one cache.

    Connections belong to the event loop on which they are made and end with it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint: Final = endpoint
        self._limits: Final = Limits(endpoint.per_minute, endpoint.retries)
        self._cache: Final = Cache(endpoint.cache)
        self._form = 0  # the best of the forms that the endpoint is not known to refuse
        self._held: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]]] = (
            WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"Client({self._endpoint.base_url!r}, {self._endpoint.model!r})"

    async def __call__(self, prompt: str) -> str:
        """The answer as the model wrote it.

        Raises:
            JudgeError: there is none.
        """
        return await self._limits.repeat(lambda: self._attempt(prompt, {}))

    async def structured(self, prompt: str, schema: Mapping[str, Any]) -> str:
        """The answer as JSON, held to the schema as well as the endpoint can; the same question is asked once.

        Raises:
            JudgeError: there is none.
        """
        asked = json.dumps([self._endpoint.model, schema, prompt], sort_keys=True)
        key = blake2b(asked.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        answer = self._cache.get(key)
        if answer is None:
            answer = await self._formed(prompt, schema)
            reply_of(answer, schema)  # another time a better one may come
            self._cache.put(key, answer)
        return answer

    async def _formed(self, prompt: str, schema: Mapping[str, Any]) -> str:
        for form in range(self._form, len(_FORMS)):
            try:
                answer = await self._limits.repeat(lambda: self._attempt(prompt, _format(_FORMS[form], schema)))  # noqa: B023
            except _Refused as refused:
                if refused.status not in _FORM_UNKNOWN or form == len(_FORMS) - 1:
                    raise
            else:
                self._form = max(self._form, form)
                return _unfenced(answer)  # in any form: some endpoints take no notice of it and say nothing
        raise AssertionError("unreachable")

    async def _attempt(self, prompt: str, more: Mapping[str, Any]) -> str:
        import openai

        with unseen():
            try:
                async with asyncio.timeout(self._endpoint.timeout_s):
                    return _text(await self._body(prompt, more))
            except (TimeoutError, openai.APITimeoutError):
                raise Again("judge_timeout", f"the judge did not answer within {self._endpoint.timeout_s:g} s") from None
            except openai.APIStatusError as error:
                raise _problem(error.status_code, error.response.headers) from None
            except JudgeError:
                raise
            except Exception as error:  # noqa: BLE001 - the client has many layers, each with errors of its own
                raise Again("judge_unavailable", f"the judge cannot be reached: {type(error).__name__}") from None

    async def _body(self, prompt: str, more: Mapping[str, Any]) -> bytes:
        client = await self._client()
        fields = {**self._endpoint.parameters, **more}
        messages = [{"role": "user", "content": prompt}]
        asking = client.chat.completions.with_streaming_response.create(
            model=self._endpoint.model, messages=messages, extra_body=fields, extra_headers=_headers(self._endpoint.key)
        )
        body = bytearray()
        async with asking as response:
            async for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise JudgeError("judge_malformed", "the judge's response is longer than 1 MiB")
        return bytes(body)

    async def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._held:
            holding = _opened(self._endpoint)  # ends with the loop, which closes what is left of it
            self._held[loop] = (await anext(holding), holding)
        return self._held[loop][0]


class _Refused(JudgeError):
    def __init__(self, status: int) -> None:
        super().__init__("judge_refused", f"the judge refused: HTTP status {status}", status)


async def _opened(endpoint: Endpoint) -> AsyncGenerator[Any, None]:
    import openai

    client = openai.AsyncOpenAI(
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        timeout=endpoint.timeout_s,
        max_retries=0,  # ours share a budget
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [_without_complaints]}),
    )
    client._platform = "Unknown"  # else a thread is started to find out, which an interpreter that ends cannot
    try:
        yield client
    finally:
        await client.close()


def _headers(key: str | None) -> dict[str, Any]:
    """Who asks; what the environment says of another account is not for this endpoint."""
    from openai import Omit

    return {
        "Authorization": f"Bearer {key}" if key else Omit(),
        "OpenAI-Organization": Omit(),
        "OpenAI-Project": Omit(),
    }


async def _without_complaints(response: Any) -> None:
    if response.status_code >= 300:
        await response.aclose()


def _problem(status: int, headers: Mapping[str, str]) -> JudgeError:
    if status not in _COME_AGAIN and status < 500:
        return _Refused(status)
    kind = "judge_rate_limited" if status == 429 else "judge_unavailable"
    return Again(kind, f"the judge answered with HTTP status {status}", _seconds(headers.get("retry-after", "")), status)


def _seconds(told: str) -> float | None:
    """What `Retry-After` says: seconds, or a date."""
    try:
        return max(0.0, float(told) if told.replace(".", "", 1).isdigit() else parsedate_to_datetime(told).timestamp() - time())
    except (ValueError, OverflowError):
        return None


def _format(form: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    if form == "text":
        return {}
    if form == "json_object":
        return {"response_format": {"type": form}}
    whole = {**schema, "type": "object", "required": [*schema["properties"]], "additionalProperties": False}
    return {"response_format": {"type": form, "json_schema": {"name": "answer", "strict": True, "schema": whole}}}


def _text(body: bytes) -> str:
    """What the model wrote."""
    try:
        message = json.loads(body)["choices"][0]["message"]
        text, refusal = message["content"], message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise JudgeError("judge_malformed", "the judge's response is no chat completion") from None
    if refusal:
        raise JudgeError("judge_refused", "the model refused to judge")
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        raise JudgeError("judge_malformed", "the judge's response has no text, or one that is too long")
    return text


def _unfenced(text: str) -> str:
    """Without the fence that models put around JSON where nothing holds them to a form."""
    lines = text.strip().splitlines()
    fenced = len(lines) > 2 and lines[0] in ("```", "```json") and lines[-1] == "```"
    return "\n".join(lines[1:-1]) if fenced else text
