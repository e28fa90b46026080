"""Files of conversations: messages of a model's API as JSON, of runs that were never traced.

A file is one list of messages, one object with them as `messages`, or one such object on each line.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.model import Trajectory
from otel_eval.sources.files import MAX_DOCUMENT
from otel_eval.sources.files.reader import BLANK, BROKEN_GZIP, HEAD, Input
from otel_eval.trajectory.conversation import is_conversation, trajectory_from_messages

_OF_TRACES: Final = (b'"resourceSpans"', b'"resource_spans"', b'"batches"', b'"resourceLogs"')


def conversations_in(path: str | os.PathLike[str]) -> list[Trajectory] | None:
    """The runs of a file of conversations; None if the file holds something else.

    Standard input and pipes hold traces: they can be read only once.
    """
    name = os.fspath(path)
    if name == "-" or not os.path.isfile(name):
        return None
    try:
        with Input(name).open() as stream:
            head = stream.peek(HEAD)
            if not _may_be_conversations(head):
                return None
            raw = stream.read(MAX_DOCUMENT + 1)
    except (OSError, *BROKEN_GZIP):
        return None  # the reader of traces reports that
    if len(raw) > MAX_DOCUMENT:
        return None
    values = _values_of(raw)
    if not values or not all(map(is_conversation, values)):
        return None
    try:
        return [trajectory_from_messages(value, agent=_agent_of(value)) for value in values]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _may_be_conversations(head: bytes) -> bool:
    start = head.lstrip(BLANK)[:1]
    if start == b"[":
        return b'"role"' in head or b'"type"' in head
    return start == b"{" and b'"messages"' in head and not any(key in head for key in _OF_TRACES)


def _values_of(raw: bytes) -> list[Any]:
    """The JSON values of a document, or of each line; [] if one is not JSON."""
    text = raw.decode("utf-8-sig", "replace")
    for parts in ([text], text.split("\n")):
        with suppress(ValueError, RecursionError):
            return [json.loads(part) for part in parts if part.strip()]
    return []


def _agent_of(value: Any) -> str:
    """The agent's name, where the object with the messages has one as `agent`."""
    agent = value.get("agent") if isinstance(value, dict) else ""
    return agent if isinstance(agent, str) else ""
