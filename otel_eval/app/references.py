"""Files of references: each is read once, however many scorers look at it.

Knows how the keys of a `reference` become a file of records; reads nothing itself.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final
from weakref import WeakSet

from otel_eval.datasets import FORMATS, Dataset, InvalidDataset
from otel_eval.errors import ConfigError
from otel_eval.scorers.spec.parameters import did_you_mean, redacted_repr

__all__ = ["counts", "opened"]

_KEPT: Final = 8  # configurations build their scorers more than once
_in_use: Final[WeakSet[Dataset]] = WeakSet()


def opened(path: str, column: str, field: str, where: str) -> Dataset:
    """The records of a file.

    Args:
        path: of the file; relative to the working directory (`load` makes paths in a configuration file absolute).
        column, field: hold the keys and the references.
        where: the key it stands under, for errors.

    Raises:
        ConfigError: the file cannot be used, or no record has the field.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{where}.dataset: {redacted_repr(path)} is no file of records; name one that ends in {', '.join(FORMATS)}"
        )
    try:
        dataset = _dataset(Path(path).absolute(), column)
        dataset.check()
    except InvalidDataset as error:
        raise ConfigError(f"{where}.dataset: {redacted_repr(path)} {error}") from None
    fields = dataset.fields()
    if fields and field not in fields:
        raise ConfigError(
            f"{where}.field: {redacted_repr(field)} is in no record of {path}; {did_you_mean(field, sorted(fields))}"
        )
    return dataset


@lru_cache(maxsize=_KEPT)
def _dataset(path: Path, column: str) -> Dataset:
    dataset = Dataset(path, column)
    _in_use.add(dataset)
    return dataset


def counts() -> dict[str, int]:
    """How often files of references were read again in this process, and how often the new version could not be used."""
    used = list(_in_use)
    if not used:
        return {}
    return {"references.reread": sum(each.changes for each in used), "references.broken": sum(each.broken for each in used)}
