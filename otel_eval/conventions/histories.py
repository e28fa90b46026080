"""Read the messages that came before a model call, which mostly repeat those before the previous one and add to them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.conventions.decode import decode, json_list, literal_list, rise
from otel_eval.conventions.events import read_event
from otel_eval.conventions.messages import Answered, Asked, nested, read_messages
from otel_eval.conventions.table import Side
from otel_eval.ports import SpanEvent
from otel_eval.steps import Steps, steps_of_text

__all__ = ["Histories"]

_Mentions = Sequence[Asked | Answered]
_Flat = tuple[tuple[str, Any], ...]
_SPACES: Final = " \t\n\r"  # JSON's


@dataclass(slots=True)
class _Read:
    """A list of messages as text that was read.

    Attributes:
        stem: the text without its last bracket.
        depth: how deep brackets nest at the end of `stem`, without the list's own.
        found: the calls and answers in it.
        python: whether it is a Python literal; else it is JSON.
    """

    stem: str = ""
    depth: int = 0
    found: _Mentions = ()
    python: bool = False


_NEW_JSON: Final = _Read()
_NEW_LITERAL: Final = _Read(python=True)
_LITERAL_STEPS: Final = 5  # of each character
_PART_STEPS: Final = 15  # of a part of flattened messages
_NEW_PART_STEPS: Final = 30
_NEW_EVENT_STEPS: Final = 100
_MESSAGE_STEPS: Final = 5  # for one of reading its text: each value in it is looked at


class Histories:
    """Reads the histories of one trace; what one of them repeats of another is read once.

    The calls and answers of a repeated part are the same objects each time, so they must not be changed.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps: Final = steps
        self._texts: Final[dict[Hashable, _Read]] = {}
        self._messages: Final[dict[_Flat, _Mentions]] = {}
        self._events: Final[dict[tuple[str, _Flat], Sequence[tuple[Side, _Mentions]]]] = {}

    def of_text(self, conversation: Hashable, text: str) -> _Mentions:
        """The calls and answers in messages that are one text.

        Args:
            conversation: equal for texts that are likely to continue one another.
            text: as an attribute holds it.
        """
        known = self._texts.get(conversation)
        read = self._continued(known, text) if known is not None and text.startswith(known.stem) else None
        read = read or self._continued(_NEW_JSON, text) or self._continued(_NEW_LITERAL, text)
        if read is None:  # no list, an empty one, or one in another text
            return read_messages(decode(text, literals=False))
        self._texts[conversation] = read
        return read.found

    def _continued(self, known: _Read, text: str) -> _Read | None:
        """The list that begins as a known one does; None if it does not go on as a list does."""
        tail = text[len(known.stem) :].strip(_SPACES)
        if known.stem:
            if tail == "]":
                return known
            if tail[:1] != ",":
                return None
            tail = "[" + tail[1:]
        self._steps.take(len(known.found) + _MESSAGE_STEPS * steps_of_text(tail))
        messages = self._literal(tail, known, text) if known.python else json_list(tail, known.depth)
        if not messages:
            return None
        depth = known.depth + rise(tail)
        found = [*known.found, *read_messages(messages, plain=True)]
        return _Read(text.rstrip(_SPACES)[:-1], depth, found, known.python)

    def _literal(self, tail: str, known: _Read, whole: str) -> list[Any] | None:
        if not tail.startswith("[") or not tail.endswith("]") or "#" in tail:  # a comment could hide the last bracket
            return None
        self._steps.take(_LITERAL_STEPS * len(tail))
        return literal_list(tail, known.depth, whole)

    def of_family(self, attributes: Mapping[str, Any], prefix: str) -> _Mentions:
        """The same of messages that are flattened to one attribute for each of their parts."""
        messages: dict[str, dict[str, Any]] = {}
        self._steps.take(_PART_STEPS * len(attributes))
        for key, value in attributes.items():
            if key.startswith(prefix):
                number, _, part = key[len(prefix) :].partition(".")
                if not (part and number.isdecimal() and number.isascii()):
                    return read_messages(nested(attributes, prefix))
                messages.setdefault(number, {})[part] = value
        in_order = sorted(messages, key=lambda number: (len(number), number))
        return [mention for number in in_order for mention in self._message(messages[number])]

    def _message(self, message: dict[str, Any]) -> _Mentions:
        if not _is_text(message):
            return read_messages([nested(message, "")])
        key = tuple(message.items())
        found = self._messages.get(key)
        if found is None:
            self._steps.take(_NEW_PART_STEPS * len(message))
            found = self._messages[key] = read_messages([nested(message, "")], plain=True)
        return found

    def of_event(self, event: SpanEvent) -> Sequence[tuple[Side, _Mentions]]:
        """The calls and answers in an event with the side they are on, as `read_event` gives them."""
        if event.body is not None or not _is_text(event.attributes):
            return [*read_event(event)]
        key = (event.name, tuple(event.attributes.items()))
        found = self._events.get(key)
        if found is None:
            self._steps.take(_NEW_EVENT_STEPS + _MESSAGE_STEPS * sum(map(steps_of_text, event.attributes.values())))
            found = [*read_event(event)]
            if all(side is not Side.OUTPUT for side, _ in found):  # what a model answers twice is two answers
                self._events[key] = found
        return found


def _is_text(values: Mapping[str, Any]) -> bool:
    """Whether all values are text, so that equal ones are the same: 1 and true are equal, and are not."""
    return all(type(value) is str for value in values.values())
