"""Fills in what a convention table takes from other tables: all of it with `extends: NAME`, parts
with `{from: NAME}` as an entry of a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_eval.errors import ConfigError

# A table's own, also where it extends another one.
_NOT_INHERITED: Final = frozenset({"name", "source"})

TableMappings = Callable[[Any], Mapping[str, Any]]
"""Returns the mapping of the table with a name, in which each list is written as a list; raises
ConfigError for what names no table.
"""


class ExtendedTable:
    """A table as it is written, and as it is with everything filled in.

    A key that the table has takes the place of the same key of the table that it extends, and null
    takes it away; mappings such as `fields` are merged key by key. Entries that a list has already
    are not repeated.

    Args:
        table: the table as written.
        mapping_of: finds other tables.

    Attributes:
        mapping: the table with everything filled in.

    Raises:
        ConfigError: `extends` or an entry `from` names no table.
    """

    def __init__(self, table: Mapping[str, Any], mapping_of: TableMappings) -> None:
        self._mapping_of: Final = mapping_of
        # path of a list → for each entry of the filled list its index in the list as written
        self._written_indexes: Final[dict[str, list[int]]] = {}
        base = {}
        if "extends" in table:
            base = {
                key: value
                for key, value in self._find("extends", table["extends"]).items()
                if key not in _NOT_INHERITED
            }
        filled = {
            key: self._filled(key, value, base.get(key))
            for key, value in table.items()
            if key != "extends"
        }
        self.mapping: Final = _merged(base, filled)

    def _find(self, path: str, name: object) -> Mapping[str, Any]:
        try:
            return self._mapping_of(name)
        except ConfigError as error:
            raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from None

    def _filled(self, key: str, value: object, inherited: object) -> object:
        """The value of a key with its entries filled in, merged with the inherited one if both are
        mappings.
        """
        if not isinstance(value, Mapping):
            return self._filled_list((key,), value)
        filled = {name: self._filled_list((key, name), entries) for name, entries in value.items()}
        return _merged(inherited, filled) if isinstance(inherited, Mapping) else filled

    def _filled_list(self, path: tuple[Any, ...], value: object) -> object:
        """The value, or the list with the entries that other tables have at the same path in place
        of `{from: NAME}`.
        """
        if not isinstance(value, list | tuple):
            return value
        path_text = ".".join(map(str, path))
        entries: list[Any] = []
        indexes = self._written_indexes.setdefault(path_text, [])
        for index, entry in enumerate(value):
            if isinstance(entry, Mapping) and [*entry] == ["from"]:
                added: Any = self._find(f"{path_text}[{index}].from", entry["from"])
                for key in path:
                    added = added.get(key, {})
                added = [other for other in added if other not in entries]
            else:
                added = [entry]
            entries += added
            indexes += [index] * len(added)
        return entries

    def as_written(self, problem: str) -> str:
        """A problem with the filled table, its path that of the table as written."""
        for path, indexes in self._written_indexes.items():
            match = re.match(re.escape(path) + r"\[(\d+)\]", problem)
            if match is not None:
                return f"{path}[{indexes[int(match[1])]}]{problem[match.end() :]}"
        return problem


def _merged(inherited: Mapping[str, Any], overriding: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, without the inherited keys that are null in `overriding`."""
    return {
        key: value
        for key, value in {**inherited, **overriding}.items()
        if value is not None or key not in inherited
    }
