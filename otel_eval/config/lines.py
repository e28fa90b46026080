"""Where in a file of YAML a problem is that begins with the path of a key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import yaml

_INDEX: Final = re.compile(r"\[(\d+)\]")


def lines_of_problems(root: yaml.Node | None, problems: Iterable[str]) -> list[int | None]:
    """The line, from 1, of the innermost key or entry that each problem names; None if it names
    none.

    Args:
        root: the document.
        problems: messages that begin with a path such as `evaluations[0].scorers[1].max_ms`.
    """
    return [_line_of(root, problem) for problem in problems]


def _line_of(node: yaml.Node | None, path: str) -> int | None:
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
                length, key, value = max(fitting, key=lambda found: found[0])
                path, line = path[length:].removeprefix("."), key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            found = _INDEX.match(path)
            if found and int(found[1]) < len(node.value):
                value = node.value[int(found[1])]
                path, line = path[found.end() :].removeprefix("."), value.start_mark.line + 1
        node = value
    return line


def _is_first(key: str, path: str) -> bool:
    """Whether the path begins with this key."""
    return bool(key) and path.startswith(key) and path[len(key) : len(key) + 1] in (*".[:", "")
