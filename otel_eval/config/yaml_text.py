"""Reads configurations in YAML, and finds the lines of what is wrong with them.

PyYAML reads YAML 1.1, where `no` is false, `1:30` is ninety and `2026-11-20` is a date. Verdicts,
tools and operators look like that, so `parse` resolves the scalars of the YAML 1.2 core schema
(https://yaml.org/spec/1.2.2/#103-core-schema): `yes`, `on`, `no` and `=` are text. Nothing builds
Python objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

from otel_eval.errors import ConfigError

MAX_DEPTH: Final = 50
MAX_DIGITS: Final = 1000
_REMEDY: Final = (
    "see that lines of one level begin below one another, indented by blanks, that a blank follows"
    " each colon, that brackets and quotes close, and that special characters are quoted"
)
# What to do about the mistakes that are made most often, by words of PyYAML's description of the
# problem.
_QUOTE_ALIAS: Final = 'a value that begins with * or & needs quotes, e.g. "*"'
_REMEDIES: Final = {
    "found character '\\t'": "indent with blanks instead of tabs",
    "cannot start any token": "put the value in quotes",
    "expected alphabetic or numeric character": _QUOTE_ALIAS,
    "found undefined alias": _QUOTE_ALIAS,
    "expected <block end>": "begin the lines of one level in the same column",
    "mapping values are not allowed here": (
        "indent the keys of one level alike, and put a value that contains a colon in quotes"
    ),
    "could not find expected ':'": "write a colon and a blank after each key",
}
# An operator that YAML takes for a folded text (`>`) or a tag (`!`): the value has to be quoted.
_UNQUOTED: Final = re.compile(r"(?:^|[:\-,\[{])\s*(>=|>|!=)\s*[0-9,\]}]?")


def parse(text: str, *, where: str) -> Any:
    """The plain Python value of a YAML document; `where` names it in errors.

    Raises:
        ConfigError: it is no YAML, repeats a key, is nested too deeply, or leaves an operator
            unquoted.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_problem(error, text, where)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}; check the numbers and the nesting") from None


def typed(text: str) -> object:
    """What an unquoted scalar of this text would be: `typed("3")` is 3, `typed("on")` is text."""
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    try:
        return loader.construct_object(yaml.ScalarNode(tag, text))
    except ValueError:  # a number of too many digits
        return text


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2 and a limit of depth."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.deep_construct = True  # refuses a value that contains itself
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels; flatten it", problem_mark=mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; refuse duplicate keys, and merging by `<<`, which YAML 1.2 does not
        have.
        """
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value == "<<" and key.style is None:
                problem = (
                    "YAML 1.2 merges nothing by <<; write the keys out, or let an alias stand for a"
                    " whole value"
                )
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice; keep one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    if node.style == ">" and not node.value.strip():
        raise yaml.MarkedYAMLError(
            problem="a folded text without any text", problem_mark=node.start_mark
        )
    return str(loader.construct_scalar(node))


# \Z because PyYAML only asks for a match; `_first` are the first characters
for _kind, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", "-+."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)


def _yaml_problem(error: yaml.YAMLError, text: str, where: str) -> str:
    """What is wrong in the document, where, and what to do."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{where}: {problem}; write plain YAML"
    for line in {mark.line, mark.line - 1}:  # PyYAML may report a folded text on the line after it
        hint = _operator_hint(text, line)
        if hint:
            return f"{where} line {line + 1}: {hint}"
    problem = " ".join(problem.split())
    hint = next((remedy for words, remedy in _REMEDIES.items() if words in problem), _REMEDY)
    remedy = "" if "; " in problem else f"; {hint}"
    return f"{where} line {mark.line + 1}, column {mark.column + 1}: {problem}{remedy}"


def _operator_hint(text: str, line: int) -> str:
    """What to do about an unquoted operator in the line, or ""."""
    lines = text.splitlines()
    match = _UNQUOTED.search(lines[line]) if 0 <= line < len(lines) else None
    if not match:
        return ""
    operator = match[1]
    return (
        f'an unquoted {operator} means something else in YAML; quote it, e.g. "{operator} 3" or'
        f' ["{operator}", 3]'
    )


_INDEX: Final = re.compile(r"\[(\d+)\]")


def lines_of_problems(text: str, problems: Iterable[str]) -> list[int | None] | None:
    """The line, from 1, of the innermost key or entry that each problem names; None for one that
    names none. None if the text is no YAML.

    Args:
        text: the document.
        problems: messages that begin with a path such as `evaluations[0].scorers[1].max_ms`.
    """
    try:
        root = _Loader(text).get_single_node()
    except yaml.YAMLError:
        return None
    return [_line_of(root, problem) for problem in problems]


def _line_of(node: yaml.Node | None, path: str) -> int | None:
    """The line of the innermost key or entry on the path."""
    line: int | None = None
    while node is not None:
        value: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            # keys may contain dots: the longest one that fits
            fitting = [
                (len(key.value), key, inner)
                for key, inner in node.value
                if isinstance(key, yaml.ScalarNode) and _is_first(key.value, path)
            ]
            if fitting:
                length, key, value = max(fitting, key=lambda entry: entry[0])
                path, line = path[length:].removeprefix("."), key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            match = _INDEX.match(path)
            if match and int(match[1]) < len(node.value):
                value = node.value[int(match[1])]
                path, line = path[match.end() :].removeprefix("."), value.start_mark.line + 1
        node = value
    return line


def _is_first(key: str, path: str) -> bool:
    """Whether the path begins with this key."""
    return bool(key) and path.startswith(key) and path[len(key) : len(key) + 1] in (*".[:", "")
