"""Functions over texts that expressions have beside those of CEL itself.

Knows texts and how long a result may become; named and meant as those of CEL's strings extension
(https://pkg.go.dev/github.com/google/cel-go/ext#Strings), whose own implementation sets no limit.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MOST_CHARACTERS", "MOST_GATHERED", "TOO_LARGE", "declared"]

MOST_CHARACTERS: Final = 2**18
MOST_GATHERED: Final = 1000  # parts of a text, and items of a list that an expression builds lists from
TOO_LARGE: Final = "too large"

_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators; the characters, if the separator is empty."""
    if (text.count(separator) + 1 if separator else len(text)) > MOST_GATHERED:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_GATHERED} parts")
    return text.split(separator) if separator else list(text)


def _join(parts: list[str], separator: str) -> str:
    if sum(map(len, parts)) + len(separator) * len(parts) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    return separator.join(parts)


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    return text.replace(old, new)


def _lower(text: str) -> str:
    return text.translate(_LOWER)


def declared(cel: Any) -> Any:
    """The functions, for an environment of the module `cel`."""
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    functions = [
        ("split", _split, texts, [text, text]),
        ("join", _join, text, [texts, text]),
        ("replace", _replace, text, [text, text, text]),
        ("trim", str.strip, text, [text]),
        ("lowerAscii", _lower, text, [text]),
    ]
    return cel.CelExtension(
        "otel_eval",
        [
            cel.FunctionDecl(name, [cel.Overload(f"otel_eval_{name}", returned, taken, is_member=True, impl=function)])
            for name, function, returned, taken in functions
        ],
    )
