"""Records: the classes of which evaluating one trace makes many instances.

A record is a dataclass that is immutable for type checkers, and not at run time: the `__init__` of
a frozen dataclass takes three times as long. Code of users gets instances of a subclass with
`Immutable`, which refuse assignment at run time as well.
"""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def record(cls: type[_T]) -> type[_T]:
    """Make a class a dataclass with slots, hashable by its fields, whose instances type checkers
    refuse to change; `dataclasses.replace` makes a changed copy. Fields after `_: KW_ONLY` are
    given by keyword.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


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
        compared = [field.name for field in fields(plain) if field.compare]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    def __hash__(self) -> int:
        return super().__hash__()  # that of the record

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}; use dataclasses.replace")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)


def make_immutable(instance: _T, subclass: type[_T]) -> _T:
    """Make an instance of a record, to which nothing else refers yet, one of an `Immutable`
    subclass of the record.
    """
    object.__setattr__(instance, "__class__", subclass)
    return instance
