"""Sets of positions as integers with one bit for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["bits_of", "lowest", "positions", "turned"]

_FEW: Final = 8  # bits that are added up one by one
_SPARSE: Final = 20  # where fewer bits than one in so many are set, they are looked for one by one


def bits_of(columns: Iterable[int]) -> int:
    """An integer with these bits set, in time linear in the highest one.

    >>> bits_of([0, 3])
    9
    """
    found = list(columns)
    if len(found) < _FEW:
        return sum([1 << column for column in found])
    whole = bytearray((max(found) >> 3) + 1)
    for column in found:
        whole[column >> 3] |= 1 << (column & 7)
    return int.from_bytes(whole, "little")


def positions(bits: int) -> list[int]:
    """The positions of the bits that are set, in order.

    >>> positions(9)
    [0, 3]
    """
    if bits.bit_count() * _SPARSE > bits.bit_length():
        return [at for at, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]
    found = []
    while bits:
        found.append(lowest(bits))
        bits &= bits - 1
    return found


def lowest(bits: int) -> int:
    """The position of the lowest bit that is set.

    >>> lowest(0b10100)
    2
    """
    return (bits & -bits).bit_length() - 1


def turned(rows: Sequence[int], columns: int) -> list[int]:
    """By column the bits of the rows that have its bit. Through text, which the interpreter cuts in steps at full speed.

    >>> turned([0b01, 0b11], 2)
    [3, 2]
    """
    text = "".join([format(row, f"0{columns}b") for row in reversed(rows)])
    return [int(text[column::columns] or "0", 2) for column in range(columns - 1, -1, -1)]
