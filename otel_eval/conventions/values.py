"""Decode the values of attributes, and take arguments and results out of the envelopes around them.

Decoding reads JSON, JSON within JSON and Python literals. It never raises: text that cannot be
read, or that nests deeper than `MAX_DEPTH`, stays text. An envelope is recognised by its keys
alone, so a table names those that its instrumentation uses, and a tool whose real argument is
called `kwargs` is safe everywhere else.
"""

from __future__ import annotations

import ast
import json
import math
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import methodcaller
from typing import Any, Final

from otel_eval.conventions.message_formats import ANY, WRAPPERS, Wrapper
from otel_eval.errors import MOST_BITS
from otel_eval.interfaces import all_but
from otel_eval.model import UNRECORDED

MAX_DEPTH: Final = 64
# Longer literals, and those with more parts, stay text: Python's parser allocates half a kilobyte
# for each part.
_MAX_LITERAL: Final = 262_144
_MAX_PARTS: Final = 4096
_OPENING: Final = ("{", "[", "(")
_NO_PARTS: Final = all_but(b"{[(,:")
_NO_BRACKETS: Final = all_but(b"{[()]}")
# as signed bytes: one level down, one level up
_LEVELS: Final = bytes.maketrans(b"{[()]}", b"\1\1\1\xff\xff\xff")
SPACES: Final = " \t\n\r"  # JSON's
# what a JSON value begins with; NaN and Infinity are Python's additions
_FIRST: Final = frozenset('{["-0123456789tfnNI')
# Python's parser warns about an unknown escape, and about a number that a keyword follows without a
# space (`5in`); a library must not print warnings about recorded content. What stands in a string
# is matched first, so that no number is found in it.
_ODD_ESCAPE: Final = re.compile(r"\\[^\n\\'\"abfnrtv0-7xNuU]")
_ODD_NUMBER: Final = re.compile(
    r"""(?s:'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?)|([\w.](?:and|else|for|i[fns]|not|or))"""
)


def decode(value: Any, *, literals: bool = True) -> Any:
    """The JSON value that a recorded value represents.

    Text that is JSON is parsed, and once more if the result is text with an object or array in it;
    text that is no JSON is parsed as a Python literal of a container (as `repr` writes it); else
    the text is the value. NaN and infinities become their names, since JSON has no such numbers.

    Args:
        value: anything an attribute can hold.
        literals: whether to try Python literals.
    """
    if not isinstance(value, str):
        return plain(value)
    read = parse_json(value)
    if read is value:
        return _literal(value) if literals else value
    # Some serialise twice: JSON text with JSON in it. Other text in JSON stays as it is: "1" is a
    # string, not a number.
    if isinstance(read, str) and read.lstrip()[:1] in ("{", "["):
        inner = parse_json(read)
        if inner is read and literals:
            inner = _literal(read)
        return inner if isinstance(inner, (dict, list)) else read
    return read


def decode_text(part: Any) -> Any:
    """Decode a part of a decoded value: only text can hold more JSON."""
    return decode(part) if isinstance(part, str) else part


def parse_json(text: str) -> Any:
    """The JSON value of the text; the same text object if it is not JSON, or nests too deep."""
    stripped = text.strip(SPACES)
    if stripped[:1] not in _FIRST or (len(text) > MAX_DEPTH and _is_too_deep(text)):
        return text
    try:
        value, end = _DECODER.raw_decode(stripped)
    except (ValueError, RecursionError):
        return text
    return value if end == len(stripped) else text


def _finite(text: str) -> float | str:
    """Read a JSON number; one that overflows to infinity, such as 1e999, stays text."""
    number = float(text)
    return number if math.isfinite(number) else text


_DECODER: Final = json.JSONDecoder(parse_constant=str, parse_float=_finite)


def _literal(text: str) -> Any:
    """The value of a Python literal of a list or object; else the same text object."""
    stripped = text.strip()
    if not stripped.startswith(_OPENING):
        return text
    value = _parsed(stripped)
    return value if isinstance(value, (dict, list)) else text


def _parsed(text: str) -> Any:
    """The value of a Python literal; the same text object if it is none."""
    if (
        len(text) > _MAX_LITERAL
        or len(text.encode("utf-8", "surrogatepass").translate(None, _NO_PARTS)) > _MAX_PARTS
    ):
        return text
    if (
        _is_too_deep(text)
        or _ODD_ESCAPE.search(text)
        or any(match[1] for match in _ODD_NUMBER.finditer(text))
    ):
        return text
    try:
        value = ast.literal_eval(text)
        return text if isinstance(value, set) else plain(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _is_too_deep(text: str) -> bool:
    """Whether brackets nest deeper than `MAX_DEPTH`; those inside strings count too, so that the
    answer is on the safe side.
    """
    if len(text) <= MAX_DEPTH:
        return False
    levels = text.encode("utf-8", "surrogatepass").translate(_LEVELS, _NO_BRACKETS)
    # Most texts have few brackets: to count those that open is much faster than to add up the
    # levels.
    return levels.count(1) > MAX_DEPTH and max(accumulate(array("b", levels))) > MAX_DEPTH


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON types: dicts with text keys, lists, text, finite numbers, booleans and
    None.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return writable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    # in an order that does not depend on hashes, which differ from process to process
    if isinstance(value, set):
        return [plain(item, depth + 1) for item in sorted(value, key=repr)]
    return str(value)


def writable(value: int) -> int | str:
    """The integer, or its hexadecimal text if it has more digits than Python writes."""
    return value if value.bit_length() < MOST_BITS else hex(value)


def frozen(value: Any) -> Any:
    """A hashable stand-in: two are equal if the JSON values are, and otherwise only where Python's
    are, as 1 and true.
    """
    if isinstance(value, Mapping):
        return "object", frozenset((key, frozen(below)) for key, below in value.items())
    if isinstance(value, list | tuple):
        return "array", tuple(frozen(below) for below in value)
    return value


def text_of(value: Any) -> str:
    """An attribute's value as the text that rules compare: booleans as `true` and `false`, "" for
    containers.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else ""


@dataclass(slots=True)
class Unwrapped:
    """A value taken out of its envelopes, with what they recorded beside it.

    Attributes:
        value: the decoded value.
        call_id: the id of the call, or "".
        failed: whether an envelope marks the call as failed.
        marked: whether an envelope has a mark that shows whether the call failed.
        positional: arguments of a Python call that were given by position.
    """

    value: Any
    call_id: str = ""
    failed: bool = False
    positional: tuple[Any, ...] = ()
    marked: bool = False


_BEFORE_ID: Final = re.compile(r"(?:,? name='[^']*')?(?:,? id='[^']*')?,?$")


def _tool_message(text: str) -> Unwrapped | None:
    """A LangChain ToolMessage as `str` writes it: `content='…' name='…' tool_call_id='…'
    status='error'`.

    Or as `repr` writes it, with commas, where it is all that a tool node of LangGraph returned.
    """
    text = text.removeprefix("{'messages': [ToolMessage(").removesuffix(")]}")
    head, mark, tail = text.rpartition(" tool_call_id='")
    if not mark or not head.startswith("content="):
        return None
    content = _BEFORE_ID.sub("", head).removeprefix("content=")
    value = _parsed(content)
    call_id, _, after_id = tail.partition("'")
    return (
        None
        if value is content
        else Unwrapped(value, call_id, after_id.endswith(" status='error'"))
    )


_TOOL_RESPONSE: Final = re.compile(
    r"ToolResponse\(content=\[(.*)\], (?:state=<ToolResultState\.(\w+): '\w+'>, )?metadata=.*\)",
    re.DOTALL,
)
_STRING: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_TEXT_BLOCK: Final = re.compile(
    rf"TextBlock\(type='text', text=({_STRING}), id='\w+', created_at='[^']*',"
    r" finished_at=[^()]*\)",
    re.DOTALL,
)


def _tool_response(text: str) -> Unwrapped | None:
    """A ToolResponse of AgentScope as `repr` writes it: dictionaries of content blocks in 1,
    objects and a state in 2.
    """
    # Of a text that was cut, each `], ` would be tried with all that follows it.
    match = _TOOL_RESPONSE.fullmatch(text) if text.endswith(")") else None
    if match is None:
        return None
    content, state = match.groups()
    blocks = [*_TEXT_BLOCK.finditer(content)]
    if blocks and ", ".join(block[0] for block in blocks) == content:
        content = ", ".join(block[1] for block in blocks)
    value = _parsed(f"[{content}]")
    if not isinstance(value, list):
        return None
    return Unwrapped(value[0] if len(value) == 1 else value, failed=state == "ERROR")


TEXT_WRAPPERS: Final[Mapping[str, Callable[[str], Unwrapped | None]]] = {
    "langchain_text": _tool_message,
    "agentscope_text": _tool_response,
}

_BLOCK_KEYS: Final = ("text", "json")
# most values have none of them
_FIRST_KEYS: Final = frozenset(wrapper.needs[0][0] for wrapper in WRAPPERS.values())


def unwrap(value: Any, wrappers: tuple[str | Wrapper, ...]) -> Unwrapped:
    """Take a value out of the given wrappers and of content blocks, decoding it again after each of
    them.

    Args:
        value: a recorded value.
        wrappers: names of `WRAPPERS` and `TEXT_WRAPPERS`, or wrappers; the first that matches is
            opened.
    """
    return unwrap_decoded(decode(value), wrappers)


def unwrap_decoded(value: Any, wrappers: tuple[str | Wrapper, ...]) -> Unwrapped:
    """Unwrap a value that is already decoded."""
    unwrapped = Unwrapped(value)
    for _ in range(MAX_DEPTH):  # envelopes can be nested to any depth
        inner = _unwrap_once(unwrapped, wrappers)
        if inner is unwrapped.value:
            break
        unwrapped.value = decode_text(inner)
    return unwrapped


def named_arguments(unwrapped: Unwrapped, parameters: Any) -> Any:
    """The arguments of a call, those given by position under the names of the tool's parameters.

    Args:
        unwrapped: the result of `unwrap` for a recorded Python call.
        parameters: the tool's parameters, in order, by name, or a JSON schema of them.

    Returns:
        the arguments; `UNRECORDED` if only some of them have or can be given names.
    """
    schema = decode(parameters)
    names = schema.get("properties", schema) if isinstance(schema, dict) else ()
    if not unwrapped.positional:
        return unwrapped.value
    if not isinstance(names, dict) or len(names) < len(unwrapped.positional):
        # Some arguments have names and the others cannot be named: the named ones alone would pass
        # for all of them.
        partial = isinstance(unwrapped.value, dict) and unwrapped.value not in unwrapped.positional
        return UNRECORDED if partial else unwrapped.value
    arguments = dict(zip(names, unwrapped.positional, strict=False))
    return (
        {**arguments, **unwrapped.value}
        if isinstance(unwrapped.value, dict) and unwrapped.value.keys().isdisjoint(arguments)
        else arguments
    )


def _unwrap_once(unwrapped: Unwrapped, wrappers: tuple[str | Wrapper, ...]) -> Any:
    """The value inside the first wrapper that matches; the same object if none does."""
    value = unwrapped.value
    if isinstance(value, str):
        return _from_text(unwrapped, value, wrappers)
    if isinstance(value, list):
        return _blocks(value)
    if not isinstance(value, dict):
        return value
    is_named = not _FIRST_KEYS.isdisjoint(value)
    for name in wrappers:
        wrapper = name if not isinstance(name, str) else WRAPPERS.get(name) if is_named else None
        if wrapper is not None and _matches(value, wrapper):
            return _take_out(unwrapped, value, wrapper)
    return value


def _from_text(unwrapped: Unwrapped, text: str, wrappers: tuple[str | Wrapper, ...]) -> Any:
    """The value inside a wrapper that is text."""
    for name, read in TEXT_WRAPPERS.items():
        inner = read(text) if name in wrappers else None
        if inner is not None:
            unwrapped.call_id = unwrapped.call_id or inner.call_id
            unwrapped.failed = unwrapped.failed or inner.failed
            return inner.value
    return text


def _matches(value: dict[str, Any], wrapper: Wrapper) -> bool:
    """Whether an object has the keys of a wrapper, with values as needed."""
    for key, needed in wrapper.needs:
        if key not in value:
            return False
        if isinstance(needed, type):
            if not isinstance(value[key], needed):
                return False
        elif needed != ANY and text_of(value[key]) not in needed.split("|"):
            return False
    return wrapper.only is None or wrapper.only.issuperset(value)


def _take_out(unwrapped: Unwrapped, value: dict[str, Any], wrapper: Wrapper) -> Any:
    """The value in the envelope; `unwrapped` gets call id, failure and positional arguments."""
    if wrapper.call_id and not unwrapped.call_id:
        unwrapped.call_id = str(value_at(value, _path(wrapper.call_id)) or "")
    status = value_at(value, _path(wrapper.error)) if wrapper.error else None
    unwrapped.marked = unwrapped.marked or status is not None
    if str(status).lower() == wrapper.failed:
        unwrapped.failed = True
    positional = value.get("args") if wrapper.take == ("kwargs",) else None
    if isinstance(positional, list) and positional:
        unwrapped.positional = tuple(positional)
        if not value.get("kwargs"):
            return positional[0] if len(positional) == 1 else positional
    for path in wrapper.take:
        inner = value_at(value, _path(path))
        if inner is not None:
            return inner
    return None


@cache  # bounded: the paths are those of tables
def _path(path: str) -> tuple[str, ...]:
    """The parts of a dotted path."""
    return tuple(path.split("."))


def value_at(value: Any, parts: tuple[str, ...]) -> Any:
    """The value at the parts of a path (`0` is the first of a list, `-1` the last), or None."""
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and value and part in ("0", "-1"):
            value = value[int(part)]
        else:
            return None
    return value


def first_of(*paths: str) -> Callable[[dict[str, Any]], Any]:
    """A function that returns the value at the first of the dotted paths where an object has one,
    or None.
    """
    if len(paths) == 1 and "." not in paths[0]:
        return methodcaller("get", paths[0])
    parts_of_paths = tuple(map(_path, paths))

    def first(value: dict[str, Any]) -> Any:
        for parts in parts_of_paths:
            inner = value_at(value, parts)
            if inner is not None:
                return inner
        return None

    return first


def _blocks(blocks: list[Any]) -> Any:
    """The value of a list of content blocks (`{"text": …}`, `{"json": …}`, `{"type": "text",
    "text": …}`), else the list.
    """
    values = [
        block[key] for block in blocks if isinstance(block, dict) and (key := _block_key(block))
    ]
    if not values or len(values) < len(blocks):
        return blocks
    return values[0] if len(values) == 1 else [decode_text(value) for value in values]


def _block_key(block: dict[str, Any]) -> str:
    """The key that holds the value of a content block, or ""."""
    if block.get("type") in ("text", "input_text") and isinstance(block.get("text"), str):
        return "text"
    return next((key for key in _BLOCK_KEYS if key in block), "") if len(block) == 1 else ""
