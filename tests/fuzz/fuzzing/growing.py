"""Inputs of any size, grown by repeating an element of a small one: a field of protobuf, a value of
JSON, or a few bytes.

The copies are equal or numbered, and a second number can be that of the copy before: so ids are
equal or distinct, and parents form chains and stars.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from otel_eval.wire import read_varint, sized, varint

__all__ = ["Grow", "growth_of"]

Grow = Callable[[int], bytes]
"""Makes an input of about so many bytes."""

_FIXED: Final = {1: 8, 5: 4}
_NUMBER: Final = 3  # bytes of a copy's number, which are letters and digits: so a text stays one
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
_HERE: Final = "\x02HERE\x03"


def growth_of(data: bytes, rng: random.Random) -> Grow:
    """A random way to grow an input; the same for the same state of `rng`."""
    document = _json(data)
    if document is not None and rng.random() < 0.9:
        return _grown_json(document, rng)
    fields = _fields(data)
    if fields and rng.random() < 0.9:
        return _grown_message(fields, rng)
    return _grown_bytes(data, rng)


def _grown_bytes(data: bytes, rng: random.Random) -> Grow:
    start = rng.randrange(len(data) + 1)
    element = data[start : start + rng.choice((1, 2, 4, 8, 16, 64, 1024, len(data)))] or b"\x00"
    end = start + len(element)
    return lambda size: (
        data[:end] + element * max(0, (size - len(data)) // len(element)) + data[end:]
    )


# --------------------------------------------------------------------------------------------------
# protobuf

Field = tuple[int, bytes]
"""Tag, and what follows it; of a field with a length the content."""


def _fields(data: bytes) -> list[Field] | None:
    """The fields of a message; None if the bytes are none."""
    found: list[Field] = []
    at = 0
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            kind = tag & 7
            if kind == 2:
                size, at = read_varint(data, at)
                end = at + size
            elif kind == 0:
                end = read_varint(data, at)[1]
            else:
                end = at + _FIXED[kind]
            if end > len(data) or tag < 8:
                return None
            found.append((tag, data[at:end]))
            at = end
    except (IndexError, KeyError, ValueError):
        return None
    return found


def _written(field: Field) -> bytes:
    tag, content = field
    return sized(tag >> 3, content) if tag & 7 == 2 else varint(tag) + content


def _grown_message(fields: list[Field], rng: random.Random) -> Grow:
    place = rng.randrange(len(fields))
    before, after = (
        b"".join(map(_written, part)) for part in (fields[:place], fields[place + 1 :])
    )
    tag, content = fields[place]
    inner = _fields(content) if tag & 7 == 2 else None
    if inner and rng.random() < 0.7:
        grow = _grown_message(inner, rng)
        return lambda size: before + sized(tag >> 3, grow(size)) + after
    if tag & 7 == 2 and content and rng.random() < 0.3:
        text = growth_of(content, rng) if rng.random() < 0.5 else _grown_bytes(content, rng)
        return lambda size: before + sized(tag >> 3, text(size)) + after
    copies = _copies(_written(fields[place]), rng)
    return lambda size: before + copies(size) + after


def _copies(element: bytes, rng: random.Random) -> Grow:
    """Copies one after the other: equal, or numbered at one or two places."""
    kind = rng.choice(("equal", "numbered", "numbered", "linked"))
    places = _leaves(element) if kind != "equal" else []
    if not places:
        return lambda size: element * max(1, size // len(element))
    first, second = rng.choice(places), rng.choice(places)

    def copies(size: int) -> bytes:
        made = []
        for number in range(1, max(1, size // len(element)) + 1):
            copy = bytearray(element)
            copy[first : first + _NUMBER] = _digits(number)
            if kind == "linked":
                copy[second : second + _NUMBER] = _digits(number - 1)
            made.append(copy)
        return b"".join(made)

    return copies


def _digits(number: int) -> bytes:
    return bytes(_DIGITS[number >> 6 * place & 63] for place in reversed(range(_NUMBER)))


def _leaves(element: bytes) -> list[int]:
    """Where a number can be written without breaking the structure: the ends of texts, ids and
    times.
    """
    fields = _fields(element)
    found: list[int] = []
    at = 0
    for field in fields or []:
        written, content = _written(field), field[1]
        start = at + len(written) - len(content)
        inner = _leaves(content) if field[0] & 7 == 2 else []
        if inner:
            found += [start + each for each in inner]
        elif len(content) >= _NUMBER and field[0] & 7:
            found.append(start + len(content) - _NUMBER)
        at += len(written)
    return found


# --------------------------------------------------------------------------------------------------
# JSON


def _json(data: bytes) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) and found else None


def _grown_json(document: Any, rng: random.Random) -> Grow:
    """One place in the document holds many in the place of one: members of a list, members of an
    object, or a text.
    """
    places = list(_places(document))
    path = rng.choice(places)
    value = document
    for step in path:
        value = value[step]
    many = _many(value, rng)
    head, tail = json.dumps(_replaced(document, path), ensure_ascii=False).split(
        json.dumps(_HERE), 1
    )
    return lambda size: (head + many(size) + tail).encode("utf-8", "surrogatepass")


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where lists, objects and texts stand."""
    if isinstance(value, (dict, list, str)):
        yield path
    for step in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield from _places(value[step], (*path, step))


def _replaced(document: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return _HERE
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = _replaced(document[path[0]], path[1:])
    return copy


def _many(value: Any, rng: random.Random) -> Callable[[int], str]:
    if isinstance(value, str):
        return _many_characters(value, rng)
    if isinstance(value, dict):
        key, inner = rng.choice([*value.items(), ("k", 0)])
        member = f"{json.dumps(key + _HERE)}: {json.dumps(inner)}"
        return _joined(member, "{", "}", kind="numbered", rng=rng)
    element = rng.choice(value) if value else rng.choice(([], {}, "", None, {"key": "k"}))
    return _joined(
        json.dumps(element),
        "[",
        "]",
        kind=rng.choice(("equal", "numbered", "numbered", "linked")),
        rng=rng,
    )


def _many_characters(value: str, rng: random.Random) -> Callable[[int], str]:
    inner = _json(value.encode("utf-8", "replace"))
    if inner is not None and rng.random() < 0.7:
        grow = _grown_json(inner, rng)
        return lambda size: json.dumps(grow(size).decode("utf-8", "replace"), ensure_ascii=False)
    start = rng.randrange(len(value) + 1)
    piece = value[start : start + rng.choice((1, 2, 8, 64))] or rng.choice('x[{"\\\n9é')
    return lambda size: json.dumps(
        value[:start] + piece * max(1, size // len(piece)) + value[start:], ensure_ascii=False
    )


def _joined(
    element: str, opening: str, closing: str, *, kind: str, rng: random.Random
) -> Callable[[int], str]:
    """Elements with commas between them: equal, or with numbers in the place of the ends of one or
    two texts.
    """
    template = element.replace(json.dumps(_HERE)[1:-1], "%06x")
    if "%06x" not in template:
        ends = [
            place
            for place in range(8, len(template))
            if template[place] == '"' and template[place - 6 : place].isalnum()
        ]
        if kind == "equal" or not ends:
            return lambda size: (
                opening + ",".join([element] * max(1, size // (len(element) + 1))) + closing
            )
        first, second = rng.choice(ends), rng.choice(ends)

        def numbered(number: int) -> str:
            made = element[: first - 6] + f"{number:06x}" + element[first:]
            return (
                made[: second - 6] + f"{number - 1:06x}" + made[second:]
                if kind == "linked"
                else made
            )

    else:

        def numbered(number: int) -> str:
            return template.replace("%06x", f"{number:06x}")

    return lambda size: (
        opening
        + ",".join(map(numbered, range(1, max(1, size // (len(template) + 1)) + 1)))
        + closing
    )
