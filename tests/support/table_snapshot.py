"""The snapshot of the built-in convention tables, made from their YAML files.

``make tables`` writes it; a test compares them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from otel_eval.conventions import Convention

SNAPSHOT = Path(__file__).parents[2] / "otel_eval" / "conventions" / "tables.json"
ORDER = "order.yaml"
REMEDY = "run `make tables` and commit otel_eval/conventions/tables.json"


@functools.cache
def written_tables() -> dict[str, Mapping[str, Any]]:
    """The tables by name, as the YAML files have them."""
    tables: dict[str, Mapping[str, Any]] = {}
    for path in sorted(SNAPSHOT.with_name("tables").glob("*.yaml")):
        if path.name != ORDER:
            for table in yaml.safe_load(path.read_text(encoding="utf-8"))["conventions"]:
                assert table["name"] not in tables, f"{table['name']} stands in two places"
                tables[table["name"]] = table
    return tables


def order() -> list[str]:
    """The names of the tables in the order in which they are tried."""
    path = SNAPSHOT.with_name("tables") / ORDER
    names: list[str] = yaml.safe_load(path.read_text(encoding="utf-8"))["order"]
    return names


class _Conventions(dict[str, "Convention"]):
    """The tables by name, each read when it is first asked for, and so those that it extends."""

    def __init__(self) -> None:
        self._written = dict(written_tables())

    def __contains__(self, name: object) -> bool:
        return name in self._written

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._written)

    def __missing__(self, name: str) -> Convention:
        from otel_eval.config.conventions import convention_from_mapping

        table = self._written.pop(name)  # one that extends itself, by whatever way, is not found
        self[name] = convention_from_mapping(table, self)
        self._written[name] = table
        return self[name]


@functools.cache
def conventions() -> list[Convention]:
    """The tables in order, read from the YAML files."""
    tables = _Conventions()
    return [tables[name] for name in order()]


def snapshot() -> str:
    """The text of the snapshot, a line for each table. A list or mapping that an earlier table has
    under the same key is written once.
    """
    # Deferred, because the package reads the snapshot, which may be what a merge left of it.
    from otel_eval.config.conventions import mapping_of

    rows: list[str] = []
    first_with: dict[tuple[str, str], str] = {}
    for table in conventions():
        row = dict(mapping_of(table))
        for key, value in row.items():
            if isinstance(value, list | dict):
                name = first_with.setdefault((key, json.dumps(value)), table.name)
                row[key] = value if name == table.name else {"same_as": name}
        rows.append(json.dumps(row, ensure_ascii=False))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def main() -> None:
    """Write the snapshot."""
    SNAPSHOT.write_text("[]", encoding="utf-8")  # only the YAML files count
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")


if __name__ == "__main__":
    main()
