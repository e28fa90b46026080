"""The sections of docs/reference/scorers.md about single scorers, made from their docstrings and
parameters.

``python -m tests.support.scorer_reference`` writes them between the two markers of the page; a test
compares them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from otel_eval.scorers import get_scorer, list_scorers
from otel_eval.scorers.base_scorer import BaseScorer, parameters_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "scorers.md"
BEGIN = (
    "<!-- The sections of scorers are made from their docstrings by"
    " tests/support/scorer_reference.py. -->\n\n"
)
END = "<!-- End of the sections of scorers. -->\n"
HEADING = re.compile(r"^## `(\w+)`$", re.MULTILINE)
PARTS = re.compile(r"^(Attributes|Example):$|^(?=>>> )", re.MULTILINE)
ATTRIBUTE = re.compile(r"^    (\w+): ", re.MULTILINE)


def built_in() -> dict[str, type[BaseScorer]]:
    """The scorers of this package by type."""
    found = {name: get_scorer(name) for name in list_scorers()}
    return {
        name: thing
        for name, thing in found.items()
        if isinstance(thing, type)
        and issubclass(thing, BaseScorer)
        and thing.__module__.startswith("otel_eval.")
    }


def parts_of(scorer: type) -> tuple[str, dict[str, str], str]:
    """The text of a class's docstring, its attributes by name, and its example."""
    parts = PARTS.split(inspect.cleandoc(vars(scorer)["__doc__"] or ""))
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    names = ATTRIBUTE.split(sections.get("Attributes", ""))[1:]
    attributes = {
        name: " ".join(text.split()) for name, text in zip(names[::2], names[1::2], strict=True)
    }
    return parts[0].strip(), attributes, inspect.cleandoc(sections.get("Example", ""))


def section(name: str, scorer: type[BaseScorer]) -> str:
    """Heading, text, table of parameters and example of a scorer."""
    text, _, example = parts_of(scorer)
    rows = list(rows_of(scorer))
    table = ["| parameter | default | meaning |\n|---|---|---|\n" + "\n".join(rows)] if rows else []
    return (
        "\n\n".join([f"## `{name}`", unwrapped(text), *table, f"```yaml\n{example}\n```"]) + "\n\n"
    )


def rows_of(scorer: type[BaseScorer]) -> Iterator[str]:
    """A row for each parameter that is not common to all scorers. Subclasses describe a parameter
    anew or inherit the text.
    """
    meanings: dict[str, str] = {}
    for base in reversed(scorer.__mro__[:-1]):
        meanings |= parts_of(base)[1]
    for key, parameter in parameters_of(scorer).items():
        if key not in parameters_of(BaseScorer):
            yield f"| `{key}` | {default_of(parameter)} | {meanings[key].removesuffix('.')} |"


def default_of(parameter: Field[Any]) -> str:
    """As it would be written in YAML."""
    if parameter.default is MISSING:
        return "required"
    if parameter.default is None:
        return "none"
    return "`[]`" if parameter.default == () else f"`{str(parameter.default).lower()}`"


def unwrapped(text: str) -> str:
    """Each paragraph, and each item of a list, on one line."""
    return re.sub(r"\n(?!\n|\* )(?<!\n\n) *", " ", text)


def generated(page: str) -> str:
    """The page with its generated sections, in the order in which they stand; new ones come
    last.
    """
    head, _, rest = page.partition(BEGIN)
    old, _, tail = rest.partition(END)
    scorers = built_in()
    names = dict.fromkeys(
        [name for name in HEADING.findall(old) if name in scorers] + list(scorers)
    )
    return head + BEGIN + "".join(section(name, scorers[name]) for name in names) + END + tail


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
