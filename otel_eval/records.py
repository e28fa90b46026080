"""Records: the classes of which evaluating traces makes instances that do not change.

A record is a dataclass that is immutable for type checkers, and not at run time: the `__init__` of
a frozen dataclass takes three times as long. Code of users gets instances of a subclass with
`Immutable`, which refuse assignment at run time as well.
"""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

_T = TypeVar("_T")


@recursive_repr()
def _represent(record: Any) -> str:
    shown = [
        f"{field.name}={getattr(record, field.name)!r}" for field in fields(record) if field.repr
    ]
    return f"{type(record).__qualname__}({', '.join(shown)})"


def _equals(record: Any, other: Any) -> Any:
    if type(record) is not type(other):
        return NotImplemented
    return record.compared_values(record) == record.compared_values(other)


def _hash_of(record: Any) -> int:
    return hash(record.compared_values(record))


# Functions that all records share: compiling them for each class would take longer than all the
# rest of making it.
_METHODS: Final = {"__repr__": _represent, "__eq__": _equals, "__hash__": _hash_of}


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def record(cls: type[_T]) -> type[_T]:
    """Make a class a dataclass with slots, hashable by its fields, whose instances type checkers
    refuse to change; `dataclasses.replace` makes a changed copy. Fields after `_: KW_ONLY` are
    given by keyword.
    """
    return _with_methods(dataclass(slots=True, eq=False, repr=False)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, Field))
def frozen_record(cls: type[_T]) -> type[_T]:
    """Make a class a record whose instances refuse assignment at run time, too, and whose fields
    are given by keyword.
    """
    frozen = dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)(cls)
    return _with_methods(frozen)


def _with_methods(slotted: type[_T]) -> type[_T]:
    of_record = fields(slotted)  # type: ignore[arg-type]
    compared = attrgetter(*[field.name for field in of_record if field.compare])
    names = tuple([field.name for field in of_record])
    for name, value in {**_METHODS, "compared_values": compared, "field_names": names}.items():
        setattr(slotted, name, value)
    return slotted


def changed(record: _T, **values: Any) -> _T:
    """Return a copy of a record with other values for some of its fields: `dataclasses.replace`
    takes twice as long. Not for records that are frozen or compute fields of others.
    """
    copy = object.__new__(type(record))
    for name in record.field_names:  # type: ignore[attr-defined]  # set by `_with_methods`
        setattr(copy, name, values[name] if name in values else getattr(record, name))
    return copy


class Immutable:
    """Makes a subclass of a record, with this class as its first base and without slots of its
    own, refuse assignment. Instances equal those of the record with the same values.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **values: Any) -> None:
        # as an instance of the record for the time being: the slots are the same
        immutable = type(self)
        object.__setattr__(self, "__class__", immutable.__base__)
        self.__init__(*args, **values)  # type: ignore[misc]  # that of the record
        self.__class__ = immutable

    def __eq__(self, other: object) -> bool:
        plain: Any = type(self).__base__
        if not isinstance(other, plain):
            return NotImplemented
        return bool(plain.compared_values(self) == plain.compared_values(other))

    def __hash__(self) -> int:
        return super().__hash__()  # that of the record

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}; use dataclasses.replace")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)


def blank(cls: type[_T]) -> _T:
    """An instance whose `__init__` the caller calls: with many keywords that takes half as long as
    a call of the class, which puts them into a dictionary first.
    """
    return cls.__new__(cls)


def make_immutable(instance: _T, subclass: type[_T]) -> _T:
    """Make an instance of a record, to which nothing else refers yet, one of an `Immutable`
    subclass of the record.
    """
    object.__setattr__(instance, "__class__", subclass)
    return instance
