"""YAML 1.2 scalars, safely: `yes`, `on`, `no` and `=` are text, and nothing builds Python objects.

PyYAML reads YAML 1.1, where `no` is false, `1:30` is ninety and `2026-11-20` is a date. Verdicts, tools and operators look
like that, so this loader resolves the scalars of the YAML 1.2 core schema (https://yaml.org/spec/1.2.2/#103-core-schema).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, ClassVar, Final

import yaml

from otel_eval.errors import ConfigError

__all__ = ["parse", "typed"]

MAX_DEPTH: Final = 50
MAX_DIGITS: Final = 1000
MAX_NODES: Final = 100_000  # after aliases are followed, so that a bomb of aliases is refused before it is walked
_TAG: Final = "tag:yaml.org,2002:"
_SPECIAL: Final = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
# Part of the parser's message → the remedy.
_REMEDIES: Final = (
    ("'\\t'", "indent by blanks"),
    ("another document", "keep one, and no --- within"),
    ("undefined alias", "name it before by &, or quote the value"),
    ("recursive", "write it out"),
    ("deeper than", "flatten it"),
    ("more than", "write less of it"),
    ("unexpected end of stream", "close the quotes"),
)
_REMEDY: Final = (
    "see that lines of one level begin below one another, that a blank follows each colon, and that brackets and quotes close"
)
# An operator that YAML takes for a folded text (`>`) or a tag (`!`): the value has to be quoted.
_UNQUOTED: Final = re.compile(r"(?:^|[:\-,\[{])\s*(>=|>|!=)\s*[0-9,\]}]?")


def parse(text: str, *, where: str) -> Any:
    """The plain Python value of a YAML document; `where` names it in errors.

    Raises:
        ConfigError: it is no YAML, repeats a key, is nested or aliased beyond reason, or leaves an operator unquoted.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_explain(error, text, where)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}; check the numbers and the nesting") from None


def typed(text: str) -> Any:
    """What an unquoted scalar of this text would be: `typed("3")` is 3, `typed("on")` is text."""
    for tag, pattern, first in _SCALARS:
        if (not text or text[0] in first) and pattern.match(text):
            try:
                return _VALUES[tag](text)
            except ValueError:  # a number of too many digits
                return text
    return text


_SCALARS: Final = (  # kind, pattern, first characters; \Z because PyYAML only asks for a match
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN"),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    ("int", re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789"),
    ("float", re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"), "-+.0123456789"),
    ("float", re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"), "-+."),
)


def _int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(text: str) -> float:
    return float(_SPECIAL.get(text.lower(), text))


_VALUES: Final = {"null": lambda _: None, "bool": lambda text: text.lower() == "true", "int": _int, "float": _float}


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser with the scalars of YAML 1.2 and limits on what may be written."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below
    yaml_constructors: ClassVar[dict[Any, Any]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._weights: dict[int, int] = {}
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if id(node) not in self._weights:
            self._weights[id(node)] = self._weigh(node)
        if self._weights[id(node)] > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_NODES} values once aliases are followed", problem_mark=mark)
        return node

    def _weigh(self, node: Any) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        inner = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        return 1 + sum(self._weights[id(part)] for part in inner)


def _scalar(kind: str) -> Any:
    return lambda loader, node: _VALUES[kind](loader.construct_scalar(node))


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    if node.style == ">" and not node.value.strip():
        raise yaml.MarkedYAMLError(problem="a folded text without any text", problem_mark=node.start_mark)
    return str(loader.construct_scalar(node))


def _sequence(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return [loader.construct_object(item, deep=True) for item in node.value]


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(
                problem="a key that is no plain text; quote what has braces or brackets in it", problem_mark=key_node.start_mark
            )
        if key == "<<" and key_node.style is None:
            problem = "YAML 1.2 merges nothing by <<; write the keys out, or let an alias stand for a whole value"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        if key in found:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is there twice; keep one", problem_mark=key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _refuse(_: _Loader, node: yaml.Node) -> Any:
    raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not known here; quote the value", problem_mark=node.start_mark)


for _kind, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _kind, _pattern, [*_first, ""] if _kind == "null" else list(_first))
    _Loader.add_constructor(_TAG + _kind, _scalar(_kind))
_Loader.add_constructor(_TAG + "str", _text)
_Loader.add_constructor(_TAG + "seq", _sequence)
_Loader.add_constructor(_TAG + "map", _mapping)
_Loader.add_constructor(None, _refuse)


def _explain(error: yaml.YAMLError, text: str, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{where}: {problem}; write plain YAML"
    for line in {mark.line, mark.line - 1}:  # a folded text may be blamed on the line that follows it
        hint = _operator_hint(text, line)
        if hint:
            return f"{where} line {line + 1}: {hint}"
    problem = " ".join(problem.split())
    remedy = "" if "; " in problem else f"; {next((remedy for said, remedy in _REMEDIES if said in problem), _REMEDY)}"
    return f"{where} line {mark.line + 1}, column {mark.column + 1}: {problem}{remedy}"


def _operator_hint(text: str, line: int) -> str:
    lines = text.splitlines()
    found = _UNQUOTED.search(lines[line]) if 0 <= line < len(lines) else None
    if not found:
        return ""
    operator = found[1]
    return f'an unquoted {operator} means something else in YAML; quote it, e.g. "{operator} 3" or ["{operator}", 3]'
