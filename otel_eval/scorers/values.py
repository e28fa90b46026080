"""Recorded values: how they are compared with expected ones and looked up by name, and the
references of runs.

Equality is Python's `==`, so 1, 1.0 and True are equal. A run's own reference is in one of its
attributes, or in the record of a dataset that an attribute names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from math import fsum
from os import PathLike, fspath
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, TypeAdapter, WithJsonSchema, WrapValidator

from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.model import UNRECORDED, Failed, Skipped, Trajectory
from otel_eval.scorers.base_scorer import BaseScorer, NoScore
from otel_eval.scorers.parameters import Text
from otel_eval.validation import MAPPING, TEXT, ReadAs, Record, Words, one_of, validated

Agreement = Callable[[Any, Any], float]


def agreement(mode: str | tuple[str, ...]) -> Agreement:
    """The function (expected, actual) → [0, 1] of a mode: one of `MODES`, or the dotted keys to
    compare.

    >>> agreement("overlap")({"a": 1, "b": 2}, {"a": 1, "c": 3})
    0.3333333333333333
    >>> agreement(("user.id",))({"user": {"id": 7, "at": 1}}, {"user": {"id": 7, "at": 2}})
    1.0
    """
    if isinstance(mode, str):
        return MODES[mode]
    return lambda expected, actual: float(
        all(value_at(as_object(expected), key) == value_at(as_object(actual), key) for key in mode)
    )


def _subset(expected: Any, actual: Any) -> float:
    """1 if every expected key is present with an equal value, else 0; further actual keys are
    allowed.
    """
    expected, actual = as_object(expected), as_object(actual)
    return float(all(key in actual and actual[key] == value for key, value in expected.items()))


def overlap_share(expected: Any, actual: Any) -> float:
    """1 for equal values; for two objects, the sum of the overlap shares of common keys / keys in
    the union; else 0.
    """
    if expected == actual:
        return 1.0
    if not (is_object(expected) and is_object(actual)):
        return 0.0
    union = len(expected.keys() | actual.keys())
    return (
        fsum(overlap_share(expected[key], actual[key]) for key in expected.keys() & actual.keys())
        / union
    )


MODES: Final[Mapping[str, Agreement]] = {
    "exact": lambda expected, actual: float(as_object(expected) == as_object(actual)),
    "subset": _subset,
    "superset": lambda expected, actual: _subset(actual, expected),  # every actual key is expected
    "overlap": lambda expected, actual: overlap_share(as_object(expected), as_object(actual)),
}


def as_object(arguments: Any) -> Mapping[str, Any]:
    """Arguments as an object, decoded if they are JSON text; a bare value under the key
    `__value__`.
    """
    arguments = decode_json(arguments)
    return arguments if is_object(arguments) else {"__value__": arguments}


def is_bare_value(arguments: Any) -> bool:
    """Whether the arguments are a bare value, alone or as `{"__value__": value}`."""
    return not is_object(arguments) or arguments.keys() == {"__value__"}


def is_object(value: Any) -> bool:
    """Whether a value is a mapping."""
    # the second test is slow: it uses an abstract class
    return type(value) is dict or isinstance(value, Mapping)


def value_at(value: Any, path: str) -> Any:
    """The value at a dotted path, or `UNRECORDED`; a key that contains the dots itself takes
    precedence over nested keys.
    """
    if not isinstance(value, Mapping):
        return UNRECORDED
    if path in value:
        return value[path]
    key, dot, below = path.partition(".")
    return value_at(value[key], below) if dot and key in value else UNRECORDED


def decode_json(value: Any) -> Any:
    """Decode JSON text, as often as it was encoded; return anything else unchanged.

    >>> decode_json('{"a": 1}'), decode_json("plain"), decode_json(3)
    ({'a': 1}, 'plain', 3)
    """
    while isinstance(value, str):
        try:
            value = strict_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def _reject_constant(constant: str) -> Any:
    raise ValueError(constant)


def strict_decoder(
    object_of: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> json.JSONDecoder:
    """Return a decoder that raises `ValueError` for NaN and infinities, which are not JSON.

    Args:
        object_of: makes an object from its pairs of key and value; None: the last of equal keys
            counts.
    """
    return json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=object_of)


strict_json: Final = strict_decoder().decode
"""Decode JSON text. Raises `ValueError` for NaN and infinities as well, which are not JSON."""


def text_of(value: Any) -> str:
    """A scalar as text; bools are `true` and `false`, as in YAML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def hashable(value: Any) -> Hashable:
    """A hashable substitute for a value: two are equal if and only if the values are; a list never
    equals a tuple.

    Raises:
        TypeError: some value inside is neither JSON nor hashable.
    """
    kind = type(value)
    if kind is not dict and kind is not list:
        try:
            hash(value)
        except TypeError:
            pass
        else:
            return value  # type: ignore[no-any-return]
    if is_object(value):
        try:
            return _OBJECT, frozenset(value.items())
        except TypeError:  # a list or an object is inside
            return _OBJECT, frozenset([(key, hashable(below)) for key, below in value.items()])
    if isinstance(value, list | tuple):
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple(
            [hashable(below) for below in value]
        )
    raise TypeError(f"{kind.__name__} cannot be hashed")


_OBJECT, _LIST, _TUPLE = object(), object(), object()  # equal to nothing in a recorded value


def recorded_field(
    trajectory: Trajectory, name: str, *, within: tuple[str, ...] = ("output",)
) -> Any:
    """The recorded value with a name, or `UNRECORDED`.

    An attribute of that name takes precedence. Then each part in `within` is searched: the part
    itself if that is its name (`output`), or else the field at that dotted path of the part.

    >>> from otel_eval.testing import trajectory
    >>> recorded_field(trajectory(output={"plan": {"steps": [1]}}), "plan.steps")
    [1]
    """
    if name in trajectory.attributes:
        return trajectory.attributes[name]
    for part in within:
        value = getattr(trajectory, part)
        if value is UNRECORDED:
            continue
        if name == part:
            return value
        field_value = value_at(decode_json(value), name)
        if field_value is not UNRECORDED:
            return field_value
    return UNRECORDED


Records = Callable[[str], Mapping[str, Any] | None]
"""A function that returns the record of a key, or None."""

# named, not imported: it is loaded only where a file is a dataset
_FILES: Final = "otel_eval.datasets"


@dataclass(frozen=True, slots=True)
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
            return (
                _no_reference(f"no reference: {self.key} not recorded")
                if value is UNRECORDED
                else decode_json(value)
            )
        if value is UNRECORDED:
            return _no_reference(self._explain("not recorded"))
        record: Any = self.records(text_of(value))
        if record is None:
            return _no_reference(self._explain("the dataset has no such record"))
        if not isinstance(record, Mapping):
            raise NoScore(
                Failed(
                    "InvalidReference", f"the dataset gave a {type(record).__name__}, not a record"
                )
            )
        expected = decode_json(record.get(self.field))
        return (
            _no_reference(self._explain(f"its record has no {self.field}"))
            if expected is None
            else expected
        )

    def place_of(self, trajectory: Trajectory) -> Mapping[str, Any]:
        """The position of the run's record in a file: `dataset` and `line`; empty if it is not in a
        file.
        """
        key, place_of = self.key_of(trajectory), getattr(self.records, "place_of", None)
        place: Mapping[str, Any] = {} if key is None or place_of is None else place_of(key)
        return place

    def _explain(self, why: str) -> str:
        # The message omits the key's value: it may be content.
        return f"no reference for key {self.key}: {why}"


T = TypeVar("T")


def expectation_of(
    reference: Reference | None, inline: T | None, trajectory: Trajectory, read: Callable[[Any], T]
) -> T:
    """The run's own expectation, or the inline one if the run has none.

    Args:
        read: reads the value of a reference; raises `ConfigError` if it is no expectation.

    Raises:
        NoScore: there is neither, or the run's own is invalid.
    """
    value = reference.of(trajectory) if reference else _no_reference("no expectation")
    if isinstance(value, Skipped):
        if inline is None:
            raise NoScore(value)
        return inline
    try:
        return read(value)
    except ConfigError as error:
        place = reference.place_of(trajectory) if reference else {}
        raise NoScore(_invalid_reference(error, place)) from None


@cache
def _parameter_adapter(scorer: type, key: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_args(get_type_hints(scorer, include_extras=True)[key])[0])


def read_parameter(scorer: Any, key: str, value: Any) -> Any:
    """Read a run's own value of an optional parameter of a scorer with a `reference`.

    Raises:
        ConfigError: the value is invalid.
    """
    return validated(_parameter_adapter(scorer.__class__, key), value, scorer.reference.location)


def _invalid_reference(error: ConfigError, place: Mapping[str, Any]) -> Failed:
    """The outcome for an invalid reference. If it is in a file, which users can correct, the
    details name keys and remedies.
    """
    if not place:
        return Failed("InvalidReference", str(error))
    # Each problem is "key: what was found; remedy". What was found stays in the process: it may be
    # content.
    problems = [
        {"key": problem.partition(": ")[0], "remedy": problem.rpartition("; ")[2]}
        for problem in error.problems
    ]
    details = {**place, "problems": problems[:_MOST_PROBLEMS]}
    return Failed("InvalidReference", f"{place['dataset']} line {place['line']}: {error}", details)


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


def is_file(dataset: Any) -> bool:
    """Whether the `dataset` of a reference is the path of a file, not a mapping."""
    return isinstance(dataset, str | PathLike) and bool(fspath(dataset))


def references_of(scorer: object) -> Iterator[Reference]:
    """The references that a scorer may read, including those of the scorers it contains.

    >>> from otel_eval.scorers import create_scorer
    >>> [
    ...     reference.key
    ...     for reference in references_of(
    ...         create_scorer({"type": "tool_call_order", "reference": "my.expected"})
    ...     )
    ... ]
    ['my.expected']
    """
    # attributes of a user's object mean something else, and may raise
    if not isinstance(scorer, BaseScorer):
        return
    candidates = (getattr(scorer, name, None) for name in ("reference", "answer"))
    yield from (reference for reference in candidates if isinstance(reference, Reference))
    for further in getattr(scorer, "scorers", ()):
        yield from references_of(further)


def _no_reference(why: str) -> Skipped:
    return Skipped(why, reason="no_reference")


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
            written = dataset.written if isinstance(dataset, DatasetPath) else path
            return Reference(key, records, self.field, (written, column))
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


RunReference = Annotated[
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
"""An attribute's name, or a mapping of `dataset` and `key`, with an optional `field` and, for
files, `column`.
"""
