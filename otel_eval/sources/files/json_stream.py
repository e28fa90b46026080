"""Read JSON documents of traces of any size. Their keys show whether they are OTLP, Tempo or
Jaeger.

A cursor holds a part of the text, and a few hundred spans are decoded at a time. Every known writer
puts what the spans of a group share (resource, scope) before the spans; a group in another order is
held in memory as a whole. Each group is read separately, so that the others can be used if one is
broken.
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
from otel_eval.sources.files import FORMATS, MAX_DOCUMENT, Notify, with_prefix
from otel_eval.sources.files.translation import MEMBERS, SCOPES, jaeger_groups, with_hex_ids

_GROUPS: Final = {
    **dict.fromkeys(("resourceSpans", "resource_spans", "batches"), "resourceSpans"),
    **dict.fromkeys(("resourceLogs", "resource_logs"), "resourceLogs"),
}
"""The keys of lists of groups, and the name of each in OTLP/JSON."""

_METRIC_GROUPS: Final = ("resourceMetrics", "resource_metrics")
# keys of each line of `exporters: jsonl`
_OF_RESULTS: Final = frozenset({"evaluation", "scorer", "outcome"})
Read = Callable[[Notify], Iterator[SpanBatch]]
"""Reads the value at a cursor; its argument receives the problems."""

_BLANK: Final = re.compile(r"[ \t\n\r]*")
# characters: an error this close to the end of the text may come from a value that is not read
# completely
_NEAR: Final = 16
_MARK: Final = "\ufeff"


class BrokenJson(InputError):
    """The text is not JSON from some place on. What came before it can be used."""


def _read_elements(key: str, cursor: Cursor, read: Read, on_problem: Notify) -> Iterator[SpanBatch]:
    """Read each element of the list at the cursor. A problem is reported with the place of
    its element, such as `key[3]`, and the elements after it are still read.
    """
    for number in cursor.elements():
        inside = with_prefix(on_problem, f"{key}[{number}]")
        yield from _report_unusable(read(inside), inside)


def _report_unusable(batches: Iterator[SpanBatch], on_problem: Notify) -> Iterator[SpanBatch]:
    """Yield batches until one cannot be used, which is reported and not raised, so that the parts
    after it are still read.
    """
    try:
        yield from batches
    except BrokenJson:
        raise
    except InputError as error:
        on_problem(str(error))


def _read_group(name: str, group: Any) -> Iterator[SpanBatch]:
    yield read_document({name: [with_hex_ids(group)]})


def _read_within(
    read: ReadGroup, group: dict[str, Any], key: str, *parts: Any
) -> Iterator[SpanBatch]:
    return read({**group, key: [*parts]})


def _read_jaeger(trace: Any) -> Iterator[SpanBatch]:
    yield read_document({"resourceSpans": jaeger_groups(trace)})


class Cursor:
    """A position in a JSON text that is read in pieces.

    After each key of `members` and each number of `elements` the caller reads the value before it
    asks for the next.

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
        self._read_more()
        self._at = len(_MARK) if self._text.startswith(_MARK) else 0

    def peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                return ""

    def value(self) -> Any:
        """Decode the value at this position.

        Raises:
            BrokenJson: there is no valid value.
        """
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos + _NEAR >= len(self._text) or error.msg.startswith("Unterminated")
                if not cut or not self._read_more():
                    self._at = max(self._at, error.pos)
                    raise self._broken(error.msg) from None
                continue
            except RecursionError:
                raise self._broken("nested too deeply") from None
            except ValueError:
                raise self._broken("a number is too long") from None
            is_number = self._text[self._at] in "-0123456789"
            # "1" may become "1.5"
            if end + _NEAR < len(self._text) or not is_number or not self._read_more():
                self._at = end
                return value

    def members(self) -> Iterator[str]:
        """Yield the keys of the object at this position, each before its value."""
        for _ in self._inside("{", "}"):
            if self.peek() != '"':
                raise self._broken("Expecting property name enclosed in double quotes")
            key = self.value()
            self._expect(":", "Expecting ':' delimiter")
            yield key

    def elements(self) -> Iterator[int]:
        """Yield the numbers of the elements of the list at this position, each before its
        element.
        """
        return self._inside("[", "]")

    def _inside(self, begin: str, end: str) -> Iterator[int]:
        """Yield the number of each member between two brackets, before the member is read."""
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
        """Return an error that names this position."""
        before = self._text[: self._at]
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else self._column + len(before) + 1
        return BrokenJson(f"line {self._line + lines}, column {column}: not JSON: {message}")

    def _read_more(self) -> bool:
        """Read more of the text and drop what was parsed; False at the end."""
        if self._ended:
            return False
        parsed, unparsed = self._text[: self._at], self._text[self._at :]
        if len(unparsed) > MAX_DOCUMENT:
            raise BrokenJson(f"a part of it is greater than {MAX_DOCUMENT} bytes")
        lines = parsed.count("\n")
        self._column = len(parsed) - parsed.rfind("\n") - 1 if lines else self._column + len(parsed)
        self._line += lines
        pieces, size = list[bytes](), 0
        for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            # at least as much as is left to parse, so that a long value is not scanned too often
            if size >= len(unparsed):
                break
        self._ended = not pieces
        try:
            self._text = unparsed + self._decoder.decode(b"".join(pieces), final=not pieces)
            self._at = 0
        except UnicodeDecodeError:
            raise BrokenJson("not UTF-8") from None
        return True


_AT_ONCE: Final = 512  # spans, or log records
_DEEPEST: Final = 8  # lists and wrappers around a document
_LEVELS: Final = ((SCOPES, ("resource",)), (MEMBERS, ("scope", "instrumentationLibrary")))
"""Of a group, and of a scope in it: the keys of its list, and the keys of what its spans share,
which usually come first.
"""

ReadGroup = Callable[[Any], Iterator[SpanBatch]]
"""Reads the spans or log records of a group, or of a scope if it is bound to the scope's group."""


def stream_documents(cursor: Cursor, on_problem: Notify) -> Iterator[SpanBatch]:
    """Yield the spans and log records of a text: of one document, or of several one after another.

    Raises:
        BrokenJson: the text is cut or not JSON; raised after the batches before that place.
        InputError: the first document is not one of traces or logs.
    """
    yield from _read_document(cursor, on_problem, 0)
    while cursor.peek():
        yield from _report_unusable(_read_document(cursor, on_problem, 0), on_problem)


def _read_document(cursor: Cursor, on_problem: Notify, depth: int) -> Iterator[SpanBatch]:
    """Read the document at this position, which may also be a list of documents; `depth` counts the
    lists and wrappers around it.

    Raises:
        BrokenJson: the text is cut or not JSON.
        InputError: the document has no traces; the cursor is behind it then.
    """
    first = cursor.peek()
    if first == "[" and depth < _DEEPEST:
        yield from _read_elements(
            "", cursor, lambda inside: _read_document(cursor, inside, depth + 1), on_problem
        )
    elif first == "{":
        yield from _read_object(cursor, on_problem, depth)
    else:
        cursor.value()
        raise InputError("not a JSON object")


def _read_object(cursor: Cursor, on_problem: Notify, depth: int) -> Iterator[SpanBatch]:
    """Read the object at this position, whose keys show what it is."""
    has_groups, problems, other_members = False, list[str](), dict[str, Any]()
    for key in cursor.members():
        first = cursor.peek()
        if key in _GROUPS and first == "[":
            yield from _read_elements(
                key,
                cursor,
                partial(_stream_group, cursor, partial(_read_group, _GROUPS[key])),
                on_problem,
            )
        elif key == "trace" and first == "{" and depth < _DEEPEST:
            yield from _report_unusable(
                _read_document(cursor, on_problem, depth + 1), problems.append
            )
        elif key == "data" and first == "[":
            yield from _read_elements(
                key, cursor, lambda _: _read_jaeger(cursor.value()), on_problem
            )
        else:
            other_members[key] = cursor.value()
            continue
        has_groups = True
    if problems:
        raise InputError(problems[0])
    if not has_groups:
        _refuse_ungrouped(other_members)


def _refuse_ungrouped(document: dict[str, Any]) -> None:
    """Refuse a document without a list of groups, unless it has metrics, which are ignored."""
    if wrong := next((key for key in _GROUPS if document.get(key) is not None), None):
        raise InputError(f"{wrong}: expected a list")
    if document.keys().isdisjoint((*_GROUPS, *_METRIC_GROUPS)):
        if document.keys() >= _OF_RESULTS:
            raise InputError("results of otel-eval, not traces; `otel-eval merge` reads them")
        raise InputError(f"JSON, but not a trace; {FORMATS}")


def _stream_group(
    cursor: Cursor, read: ReadGroup, on_problem: Notify, level: int = 0
) -> Iterator[SpanBatch]:
    """Yield the spans or log records of one resource, or of one scope, in batches."""
    group: Any = {}
    if cursor.peek() != "{":
        yield from _report_unusable(read(cursor.value()), on_problem)
        return
    lists, shared = _LEVELS[level]
    for key in cursor.members():
        if key not in lists or group.keys().isdisjoint(shared) or cursor.peek() != "[":
            group[key] = cursor.value()
            continue
        within = partial(_read_within, read, group, key)
        if lists is MEMBERS:
            for chunk in _read_chunks(cursor):
                yield from _report_unusable(within(*chunk), on_problem)
        else:
            for _ in cursor.elements():
                yield from _stream_group(cursor, within, on_problem, level + 1)
    if not group.keys().isdisjoint(lists):
        yield from _report_unusable(read(group), on_problem)


def _read_chunks(cursor: Cursor) -> Iterator[list[Any]]:
    """Yield the elements of the list at this position in chunks; if the text is broken, first all
    that come before.
    """
    chunk: list[Any] = []
    try:
        for _ in cursor.elements():
            chunk.append(cursor.value())
            if len(chunk) == _AT_ONCE:
                yield chunk
                chunk = []
    except BrokenJson:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
