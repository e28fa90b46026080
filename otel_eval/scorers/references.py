"""The references of runs: what a run is compared with, in an attribute of the run or in the record
of a dataset that an attribute names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike, fspath
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, WithJsonSchema, WrapValidator

from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.model import UNRECORDED, Failed, Skipped, Trajectory
from otel_eval.records import record
from otel_eval.scorers.outcomes import NoScore
from otel_eval.scorers.parameters import Text
from otel_eval.scorers.values import decode_json, text_of
from otel_eval.validation import MAPPING, TEXT, Deferred, ReadAs, Record, Words, one_of

T = TypeVar("T")

Records = Callable[[str], Mapping[str, Any] | None]
"""A function that returns the record of a key, or None."""

# named, not imported: it is loaded only where a file is a dataset
_FILES: Final = "otel_eval.datasets"


@record
class Reference:
    """Where a run's own reference is.

    Attributes:
        key: the attribute of the run that holds the reference itself or, with `records`, the key of
            its record.
        records: the dataset, or None.
        field: the field of a record that holds the reference.
        source: the path of the dataset as it was written, and the column of its keys; empty if
            there is no file.
    """

    key: str
    records: Records | None = field(default=None, repr=False)
    field: str = "expected"
    source: tuple[str, ...] = ()

    @property
    def as_given(self) -> tuple[str, ...]:
        """What the reference was made from; records are left out."""
        kind = "attribute" if self.records is None else "dataset"
        return (kind, self.key, self.field, *self.source)

    @property
    def location(self) -> str:
        """Where the reference is, for error messages: the attribute, or the field of a record."""
        return self.key if self.records is None else self.field

    def key_of(self, trajectory: Trajectory) -> str | None:
        """The key of the run's record; None if there are no records or the run did not record a
        key.
        """
        value = trajectory.attributes.get(self.key)
        return None if self.records is None or value is None else text_of(value)

    def of(self, trajectory: Trajectory) -> Any:
        """The reference, decoded; or `Skipped` if there is none.

        Raises:
            NoScore: the dataset returned something that is not a record.
        """
        value = trajectory.attributes.get(self.key, UNRECORDED)
        if self.records is None:
            if value is UNRECORDED:
                return _no_reference(f"no reference: {self.key} not recorded")
            return decode_json(value)
        record: object = None if value is UNRECORDED else self.records(text_of(value))
        if value is UNRECORDED:
            cause = "not recorded"
        elif record is None:
            cause = "the dataset has no such record"
        elif not isinstance(record, Mapping):
            message = f"the dataset gave a {type(record).__name__}, not a record"
            raise NoScore(Failed("InvalidReference", message))
        elif (expected := decode_json(record.get(self.field))) is None:
            cause = f"its record has no {self.field}"
        else:
            return expected
        # The message omits the key's value: it may be content.
        return _no_reference(f"no reference for key {self.key}: {cause}")

    def invalid(self, error: ConfigError, trajectory: Trajectory) -> Failed:
        """The outcome of a run whose reference is invalid. If it is in a file, which users can
        correct, the details name keys and remedies.
        """
        key, place_of = self.key_of(trajectory), getattr(self.records, "place_of", None)
        if key is None or place_of is None:
            return Failed("InvalidReference", str(error))
        # Each problem is "key: the value; remedy". The value stays in the process: it may be
        # content.
        problems = [
            {"key": problem.partition(": ")[0], "remedy": problem.rpartition("; ")[2]}
            for problem in error.problems
        ]
        position = place_of(key)
        details = {**position, "problems": problems[:_MOST_PROBLEMS]}
        message = f"{position['dataset']} line {position['line']}: {error}"
        return Failed("InvalidReference", message, details)


_MOST_PROBLEMS: Final = 10


class DatasetPath(str):
    """The absolute path of a dataset that a configuration file names.

    Attributes:
        written: the path in the configuration file, which is the same wherever that file is.
    """

    written: str

    def __new__(cls, path: str, written: str) -> DatasetPath:
        """Keep the path as written beside the absolute one."""
        dataset = super().__new__(cls, path)
        dataset.written = written
        return dataset

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # of str: one
        """The arguments that copies are made with."""
        return str(self), self.written


def is_file(dataset: object) -> bool:
    """Whether the `dataset` of a reference is the path of a file, not a mapping."""
    return isinstance(dataset, str | PathLike) and bool(fspath(dataset))


def _no_reference(explanation: str) -> Skipped:
    return Skipped(explanation, reason="no_reference")


_Records = Annotated[Any, WithJsonSchema({"type": ["string", "object"]})]


@dataclass
class _Dataset:
    """A reference in a dataset, as it is written."""

    dataset: _Records
    key: Text
    field: Text = "expected"
    column: Text | None = None

    def open(self) -> Reference:
        """The reference; a file is read.

        Raises:
            ConfigError: it is no dataset.
        """
        dataset, key = self.dataset, self.key
        if is_file(dataset):
            path, column = fspath(dataset), self.column or key
            records = import_module(_FILES).open_dataset(path, column, self.field)
            written_path = dataset.written if isinstance(dataset, DatasetPath) else path
            return Reference(key, records, self.field, (written_path, column))
        if self.column is not None:
            raise ConfigError("column: only a file has columns for keys; leave it out")
        if isinstance(dataset, Mapping):
            # Not copied if its keys are texts, so that the user may change it later. Keys in YAML
            # may be numbers.
            by_text = (
                dataset
                if all(isinstance(name, str) for name in dataset)
                else {text_of(name): record for name, record in dataset.items()}
            )
            return Reference(key, by_text.get, self.field)
        remedy = "name a file, e.g. cases.jsonl, or give a mapping of keys to records"
        raise ConfigError(f"dataset: {redacted_repr(dataset)} is not a dataset; {remedy}")


_WrittenReference = Annotated[
    Reference,
    ReadAs(
        one_of(
            {
                TEXT: Annotated[Text, AfterValidator(lambda key: Reference(key))],
                MAPPING: Annotated[_Dataset, Record(), AfterValidator(_Dataset.open)],
            }
        )
    ),
    WrapValidator(lambda value, read: value if isinstance(value, Reference) else read(value)),
    Words(
        "is not an attribute's name or a mapping; write e.g. my.expected or {dataset: cases.jsonl,"
        " key: case.id}"
    ),
]
RunReference = Annotated[Reference, Deferred(_WrittenReference)]
"""An attribute's name, or a mapping of `dataset` and `key`, with an optional `field` and, for
files, `column`.
"""
