"""JSON documents of traces of any size: the same as `documents`, a few hundred spans at a time.

What a group says of all its spans comes before them in the documents of every known writer. Of a group in another order all is
held at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import Say, placed
from otel_eval.sources.files.cursor import BrokenJson, Cursor
from otel_eval.sources.files.documents import GROUPS, frame_document, frame_group, frame_jaeger
from otel_eval.sources.files.tempo import MEMBERS, SCOPES
from otel_eval.sources.otlp import Framed

__all__ = ["stream_documents"]

_AT_ONCE: Final = 512  # spans, or log records
_DEEPEST: Final = 8  # documents within each other that are walked; deeper ones are decoded at once
_SCOPE: Final = ("scope", "instrumentationLibrary")


def stream_documents(cursor: Cursor, say: Say) -> Iterator[Framed]:
    """What the text holds: one document, or several one after another.

    Raises:
        BrokenJson: the text breaks off, or is no JSON; after what came before.
        InputError: the first document is none of traces.
    """
    yield from _document(cursor, say, 0)
    while cursor.peek():
        yield from _apart(_document(cursor, say, 0), say)


def _apart(framed: Iterator[Framed], say: Say) -> Iterator[Framed]:
    """The same, unless it cannot be used: that costs itself, not the others."""
    try:
        yield from framed
    except BrokenJson:
        raise
    except InputError as error:
        say(str(error))


def _document(cursor: Cursor, say: Say, depth: int) -> Iterator[Framed]:
    """The document here. All of it is passed before it is found to be none of traces."""
    first = cursor.peek() if depth < _DEEPEST else ""
    if first == "[":
        for number in cursor.elements():
            inside = placed(say, f"[{number}]")
            yield from _apart(_document(cursor, inside, depth + 1), inside)
    elif first == "{":
        yield from _object(cursor, say, depth)
    else:
        yield from frame_document(cursor.value(), say)


def _object(cursor: Cursor, say: Say, depth: int) -> Iterator[Framed]:
    known, problems, rest = False, list[str](), dict[str, Any]()
    for key in cursor.members():
        first = cursor.peek()
        known = known or (key in GROUPS and first == "[") or (key in ("trace", "data") and first in ("{", "["))
        if key in GROUPS and first == "[":
            yield from _elements(cursor, key, say, partial(_group, cursor, GROUPS[key]))
        elif key == "trace" and first == "{":
            yield from _apart(_document(cursor, say, depth + 1), problems.append)
        elif key == "data" and first == "[":
            yield from _elements(cursor, key, say, lambda _: map(frame_jaeger, (cursor.value(),)))
        else:
            rest[key] = cursor.value()
    if problems:
        raise InputError(problems[0])
    if not known:
        yield from frame_document(rest, say)


def _elements(cursor: Cursor, key: str, say: Say, read: Callable[[Say], Iterator[Framed]]) -> Iterator[Framed]:
    for number in cursor.elements():
        inside = placed(say, f"{key}[{number}]")
        yield from _apart(read(inside), inside)


def _group(cursor: Cursor, name: str, say: Say) -> Iterator[Framed]:
    """The spans or log records of one resource."""
    if cursor.peek() != "{":
        yield frame_group(name, cursor.value())
        return
    group: dict[str, Any] = {}
    for key in cursor.members():
        if key in SCOPES and "resource" in group and cursor.peek() == "[":
            for _ in cursor.elements():
                yield from _scope(cursor, partial(_frame_scope, name, group, key), say)
        else:
            group[key] = cursor.value()
    if not group.keys().isdisjoint(SCOPES):
        yield frame_group(name, group)


def _frame_scope(name: str, group: dict[str, Any], key: str, scope: Any) -> Framed:
    return frame_group(name, {**group, key: [scope]})


def _scope(cursor: Cursor, frame: Callable[[Any], Framed], say: Say) -> Iterator[Framed]:
    """The spans or log records of one scope, some at a time."""
    if cursor.peek() != "{":
        yield from _apart(map(frame, (cursor.value(),)), say)
        return
    scope: dict[str, Any] = {}
    for key in cursor.members():
        if key in MEMBERS and not scope.keys().isdisjoint(_SCOPE) and cursor.peek() == "[":
            for some in _some(cursor):
                yield from _apart(map(frame, ({**scope, key: some},)), say)
        else:
            scope[key] = cursor.value()
    if not scope.keys().isdisjoint(MEMBERS):
        yield from _apart(map(frame, (scope,)), say)


def _some(cursor: Cursor) -> Iterator[list[Any]]:
    """The elements of the list here, some at a time; all that come before the text breaks off."""
    some: list[Any] = []
    try:
        for _ in cursor.elements():
            some.append(cursor.value())
            if len(some) == _AT_ONCE:
                yield some
                some = []
    except BrokenJson:
        if some:
            yield some
        raise
    if some:
        yield some
