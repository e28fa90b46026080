"""Chat completions: the text of a response with its tokens and JSON object, and the formats that an endpoint accepts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.scorers.judge import JudgeError

__all__ = ["FORMS", "ResponseFormats", "completion_of", "form_fields", "last_object", "text_of", "tokens_of"]

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
        raise JudgeError("judge_truncated", "the judge's answer was cut off at its longest (finish_reason: length)")
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
        said = text.rpartition("</think>")[2].partition("<think>")[0]
    found, end = None, 0
    while (begin := _BEGIN.search(said, end)) is not None:
        at = begin.start()
        try:
            end = _DECODER.raw_decode(said, at)[1]
            found = said[at:end]
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
