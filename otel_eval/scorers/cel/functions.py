"""Functions over texts that expressions have beside those of CEL itself.

Knows texts and how long a result may become; named and meant as those of CEL's strings extension
(https://pkg.go.dev/github.com/google/cel-go/ext#Strings), whose own implementation sets no limit.
"""

from __future__ import annotations

from typing import Any, Final

from otel_eval.scorers.cel.memory import MOST_GATHERED, TOO_LARGE, passed_size, spend, text_size

__all__ = ["MOST_CHARACTERS", "declared"]

MOST_CHARACTERS: Final = 2**18

_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators; the characters, if the separator is empty."""
    if (text.count(separator) + 1 if separator else len(text)) > MOST_GATHERED:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_GATHERED} parts")
    parts = text.split(separator) if separator else list(text)
    spend(text_size(text, separator) + passed_size(parts))
    return parts


def _join(parts: list[str], separator: str) -> str:
    if sum(map(len, parts)) + len(separator) * len(parts) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    spend(passed_size(parts) + text_size(separator))
    return _made(separator.join(parts))


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    return _made(text.replace(old, new), text, old, new)


def _trim(text: str) -> str:
    return _made(text.strip(), text)


def _lower(text: str) -> str:
    return _made(text.translate(_LOWER), text)


def _made(text: str, *taken: str) -> str:
    """The text, charged together with those it was made from; a text from Python is copied twice."""
    spend(2 * text_size(text) + text_size(*taken))
    return text


def declared(cel: Any) -> Any:
    """The functions, for an environment of the module `cel`."""
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    functions = [
        ("split", _split, texts, [text, text]),
        ("join", _join, text, [texts, text]),
        ("replace", _replace, text, [text, text, text]),
        ("trim", _trim, text, [text]),
        ("lowerAscii", _lower, text, [text]),
    ]
    return cel.CelExtension(
        "otel_eval",
        [
            cel.FunctionDecl(name, [cel.Overload(f"otel_eval_{name}", returned, taken, is_member=True, impl=function)])
            for name, function, returned, taken in functions
        ],
    )
