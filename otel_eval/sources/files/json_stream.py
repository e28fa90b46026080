"""JSON documents of traces, distinguished by their keys: OTLP, Tempo and Jaeger, of any size.

A text is read a few hundred spans at a time, by a cursor that holds a part of it. In the documents of every known writer, what a
group holds for all its spans comes before them. Of a group in another order all is held at once. Each group is read by itself, so
that a broken one does not cost the others.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.otlp.otlp_json import read_document
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.sources.files import FORMATS, MAX_DOCUMENT, Notify, placed
from otel_eval.sources.files.translation import MEMBERS, SCOPES, jaeger_groups, with_hex_ids

_GROUPS: Final = {
    **dict.fromkeys(("resourceSpans", "resource_spans", "batches"), "resourceSpans"),
    **dict.fromkeys(("resourceLogs", "resource_logs"), "resourceLogs"),
}
"""Keys of lists of groups, and what OTLP/JSON calls them."""

_METRIC_GROUPS: Final = ("resourceMetrics", "resource_metrics")
_OF_RESULTS: Final = frozenset({"evaluation", "scorer", "outcome"})  # keys of each line of `exporters: jsonl`
Read = Callable[[Notify], Iterator[SpanBatch]]
"""Reads what is at a cursor."""

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_NEAR: Final = 16  # characters from the end: an error there may come from a value that is not all here yet
_MARK: Final = "\ufeff"


class BrokenJson(InputError):
    """The text is no JSON from some place on. What came before it can be used."""


def _each(key: str, cursor: Cursor, read: Read, on_problem: Notify) -> Iterator[SpanBatch]:
    for number in cursor.elements():
        inside = placed(on_problem, f"{key}[{number}]")
        yield from _usable(read(inside), inside)


def _usable(batches: Iterator[SpanBatch], on_problem: Notify) -> Iterator[SpanBatch]:
    """The batches up to one that cannot be used, which is reported: parts beside this one are still read."""
    try:
        yield from batches
    except BrokenJson:
        raise
    except InputError as error:
        on_problem(str(error))


def _frame(name: str, group: Any) -> Iterator[SpanBatch]:
    yield read_document({name: [with_hex_ids(group)]})


def _frame_within(frame: Frame, group: dict[str, Any], key: str, *parts: Any) -> Iterator[SpanBatch]:
    return frame({**group, key: [*parts]})


def _frame_jaeger(trace: Any) -> Iterator[SpanBatch]:
    yield read_document({"resourceSpans": jaeger_groups(trace)})


class Cursor:
    """A place in a JSON text, which comes in pieces. After a key or an element its value is read before the next one.

    Args:
        pieces: the text.
        line: the number of its first line, for errors.
    """

    def __init__(self, pieces: Iterable[bytes], line: int = 1) -> None:
        self._pieces: Final = iter(pieces)
        self._decoder: Final = getincrementaldecoder("utf-8")()
        self._scan: Final = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0
        self._line, self._column = line, 0  # where the text begins
        self._ended = False
        self._more()
        self._at = len(_MARK) if self._text.startswith(_MARK) else 0

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> Any:
        """The value here, decoded.

        Raises:
            BrokenJson: there is none.
        """
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos + _NEAR >= len(self._text) or error.msg.startswith("Unterminated")
                if not cut or not self._more():
                    self._at = max(self._at, error.pos)
                    raise self._broken(error.msg) from None
                continue
            except RecursionError:
                raise self._broken("nested too deeply") from None
            except ValueError:
                raise self._broken("a number is too long") from None
            is_number = self._text[self._at] in "-0123456789"
            if end + _NEAR < len(self._text) or not is_number or not self._more():  # "1" may become "1.5"
                self._at = end
                return value

    def members(self) -> Iterator[str]:
        """The keys of the object here, each before its value."""
        for _ in self._inside("{", "}"):
            if self.peek() != '"':
                raise self._broken("Expecting property name enclosed in double quotes")
            key = self.value()
            self._expect(":", "Expecting ':' delimiter")
            yield key

    def elements(self) -> Iterator[int]:
        """The numbers of the elements of the list here, each before the element."""
        return self._inside("[", "]")

    def _inside(self, begin: str, end: str) -> Iterator[int]:
        self._expect(begin, f"Expecting {begin!r}")
        number = 0
        while self.peek() != end:
            if number:
                self._expect(",", "Expecting ',' delimiter")
            yield number
            number += 1
        self._expect(end, f"Expecting {end!r}")

    def _expect(self, character: str, message: str) -> None:
        if self.peek() != character:
            raise self._broken(message)
        self._at += 1

    def _broken(self, message: str) -> BrokenJson:
        """An error at this place."""
        before = self._text[: self._at]
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else self._column + len(before) + 1
        return BrokenJson(f"line {self._line + lines}, column {column}: not JSON: {message}")

    def _more(self) -> bool:
        """Read on, and forget what was passed; False at the end."""
        if self._ended:
            return False
        passed, rest = self._text[: self._at], self._text[self._at :]
        if len(rest) > MAX_DOCUMENT:
            raise BrokenJson(f"a part of it is greater than {MAX_DOCUMENT} bytes")
        lines = passed.count("\n")
        self._column = len(passed) - passed.rfind("\n") - 1 if lines else self._column + len(passed)
        self._line += lines
        pieces, size = list[bytes](), 0
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            if size >= len(rest):  # as much again, so that a long value is not scanned too often
                break
        self._ended = not pieces
        try:
            self._text, self._at = rest + self._decoder.decode(b"".join(pieces), final=not pieces), 0
        except UnicodeDecodeError:
            raise BrokenJson("not UTF-8") from None
        return True


_AT_ONCE: Final = 512  # spans, or log records
_DEEPEST: Final = 8  # lists and wrappers around a document
_LEVELS: Final = ((SCOPES, ("resource",)), (MEMBERS, ("scope", "instrumentationLibrary")))
"""Of a group, and of a scope in it: keys of its list, and of what its spans or log records share, which usually comes first."""

Frame = Callable[[Any], Iterator[SpanBatch]]
"""The spans or log records of a group, or of a scope in one that is known."""


def stream_documents(cursor: Cursor, on_problem: Notify) -> Iterator[SpanBatch]:
    """What the text holds: one document, or several one after another.

    Raises:
        BrokenJson: the text breaks off, or is no JSON; after what came before.
        InputError: the first document is none of traces.
    """
    yield from _document(cursor, on_problem, 0)
    while cursor.peek():
        yield from _usable(_document(cursor, on_problem, 0), on_problem)


def _document(cursor: Cursor, on_problem: Notify, depth: int) -> Iterator[SpanBatch]:
    """The document here. All of it is passed before it is found to be none of traces."""
    first = cursor.peek()
    if first == "[" and depth < _DEEPEST:
        yield from _each("", cursor, lambda inside: _document(cursor, inside, depth + 1), on_problem)
    elif first == "{":
        yield from _object(cursor, on_problem, depth)
    else:
        cursor.value()
        raise InputError("not a JSON object")


def _object(cursor: Cursor, on_problem: Notify, depth: int) -> Iterator[SpanBatch]:
    known, problems, rest = False, list[str](), dict[str, Any]()
    for key in cursor.members():
        first = cursor.peek()
        if key in _GROUPS and first == "[":
            yield from _each(key, cursor, partial(_group, cursor, partial(_frame, _GROUPS[key])), on_problem)
        elif key == "trace" and first == "{" and depth < _DEEPEST:
            yield from _usable(_document(cursor, on_problem, depth + 1), problems.append)
        elif key == "data" and first == "[":
            yield from _each(key, cursor, lambda _: _frame_jaeger(cursor.value()), on_problem)
        else:
            rest[key] = cursor.value()
            continue
        known = True
    if problems:
        raise InputError(problems[0])
    if not known:
        yield from _other(rest)


def _other(document: dict[str, Any]) -> Iterator[SpanBatch]:
    """A document that has no list of groups: a trace of Jaeger by itself, or metrics."""
    if isinstance(document.get("spans"), list) and "traceID" in document:
        yield from _frame_jaeger(document)
    elif wrong := next((key for key in _GROUPS if document.get(key) is not None), None):
        raise InputError(f"{wrong}: expected a list")
    elif document.keys().isdisjoint((*_GROUPS, *_METRIC_GROUPS)):
        if document.keys() >= _OF_RESULTS:
            raise InputError("results of otel-eval, not traces; `otel-eval merge` reads them")
        raise InputError(f"JSON, but not a trace; {FORMATS}")


def _group(cursor: Cursor, frame: Frame, on_problem: Notify, level: int = 0) -> Iterator[SpanBatch]:
    """The spans or log records of one resource, or of one scope, some at a time."""
    group: Any = {}
    if cursor.peek() != "{":
        yield from _usable(frame(cursor.value()), on_problem)
        return
    lists, shared = _LEVELS[level]
    for key in cursor.members():
        if key not in lists or group.keys().isdisjoint(shared) or cursor.peek() != "[":
            group[key] = cursor.value()
            continue
        within = partial(_frame_within, frame, group, key)
        if lists is MEMBERS:
            for some in _some(cursor):
                yield from _usable(within(*some), on_problem)
        else:
            for _ in cursor.elements():
                yield from _group(cursor, within, on_problem, level + 1)
    if not group.keys().isdisjoint(lists):
        yield from _usable(frame(group), on_problem)


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
