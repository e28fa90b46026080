"""Where in a user's code an exception came from, without what it said: for logs and for errors of configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["import_problem", "place_of"]

_OURS: Final = str(Path(__file__).parents[1]) + "/"
_MACHINERY: Final = "<frozen importlib"


def place_of(error: BaseException) -> str:
    """`file:line` of the innermost frame in the file that we called into; "" if the error is not from a user's code.

    The innermost frame of all may be in a library, whose line tells less than the one that called it.
    """
    frames = list(_frames(error))
    return f"{frames[0][0]}:{[line for file, line in frames if file == frames[0][0]][-1]}" if frames else ""


def import_problem(error: BaseException) -> str:
    """The type of an error while a module was imported, the module that is missing, and the line that is to blame."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}, line {error.lineno} of {error.filename}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return f"{kind}: {error.obj.__name__} has no {error.name}"
    missing = f": no module named {error.name!r}" if isinstance(error, ModuleNotFoundError) and error.name else ""
    frames = list(_frames(error))
    place = f", line {frames[-1][1]} of {frames[-1][0]}" if frames else ""
    return f"{kind}{missing}{place}"


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """File and line of each frame of the traceback that is neither ours nor the import machinery's."""
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, _MACHINERY)) and "/importlib/" not in file:
            yield file, frame.tb_lineno
        frame = frame.tb_next
