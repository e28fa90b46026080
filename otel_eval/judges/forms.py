"""How an endpoint is held to the schema of an answer, and what is known of the forms it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["FORMS", "Forms", "form_fields"]

FORMS: Final = ("json_schema", "json_object", "text")  # best first
_ENOUGH: Final = 2  # different prompts
_PAUSE_S: Final = 60.0


class Forms:
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
