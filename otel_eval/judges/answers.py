"""What a model wrote, read out of an endpoint's response: the text, its tokens and the JSON object in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.scorers.judging import JudgeError

__all__ = ["completion_of", "last_object", "text_of", "tokens_of"]

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
