"""A tree as a Mermaid flowchart (https://mermaid.js.org/syntax/flowchart.html).

Knows shapes, arrows and how texts are quoted in them; knows nothing of how a tree is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from otel_eval.scorers.dag.shapes import Node, Verdict, words

__all__ = ["drawn"]

_SHAPES: Final = {"task": ("[", "]"), "binary": ("{", "}"), "choice": ("{{", "}}")}
_LONGEST: Final = 80
# All but words, "x.y", "x-y" and "x_y": some versions take "1. x", "- x" and "_x_" for Markdown.
_READ: Final = re.compile(r"(?<![^\W_])[._-]|[._-](?![^\W_])|[^\w .,…-]")


def drawn(nodes: Mapping[str, Node]) -> str:
    """The flowchart: tasks are boxes, decisions rhombuses and hexagons, scores rounded; dotted arrows carry data.

    The text is the same however the nodes are ordered.
    """
    ids = {name: f"n{at}" for at, name in enumerate(sorted(nodes))}
    lines = ["flowchart TD"]
    for name in sorted(nodes):
        lines += _shape(nodes[name], ids)
    for name in sorted(nodes):
        lines += _arrows(nodes[name], ids)
    return "\n".join(lines) + "\n"


def _shape(node: Node, ids: Mapping[str, str]) -> Iterator[str]:
    opening, closing = _SHAPES[node.kind]
    asks = f"judge: {node.asks}" if node.program is None else node.program.source
    yield f'    {ids[node.name]}{opening}"{_quoted(node.name)}<br/>{_quoted(asks)}"{closing}'


def _arrows(node: Node, ids: Mapping[str, str]) -> Iterator[str]:
    mine = ids[node.name]
    for child in sorted(node.children):
        yield f'    {mine} -. "{_quoted(node.label)}" .-> {ids[child]}'
    for at, verdict in enumerate(sorted(node.verdicts, key=lambda each: words(each.verdict))):
        yield f'    {mine} -- "{_quoted(words(verdict.verdict))}" --> {_end(verdict, f"{mine}v{at}", ids)}'


def _end(verdict: Verdict, place: str, ids: Mapping[str, str]) -> str:
    if verdict.then is not None:
        return ids[verdict.then]
    if verdict.scorer is not None:
        return f'{place}[["{_quoted(f"{verdict.scorer.name} ({verdict.scorer.type})")}"]]'
    return f'{place}(["{verdict.score:g}"])'


def _quoted(text: str) -> str:
    """One line, cut, with every character that Mermaid, Markdown or HTML would read as its number."""
    line = " ".join(text.split())
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return _READ.sub(lambda found: f"#{ord(found[0])};", line)
