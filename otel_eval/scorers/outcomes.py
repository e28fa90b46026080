"""Check outcomes that come from users' scorers, and turn their exceptions into `Failed`.

One outcome that cannot be written as JSON would cost the other results of its report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from otel_eval.errors import redacted_repr
from otel_eval.model import Failed, Outcome, Scored, Skipped

__all__ = ["checked_outcome", "describe_import_error", "failed_from", "in_range", "too_large", "user_code_location"]

_TEXTS: Final = {Scored: ("explanation",), Skipped: ("text",), Failed: ("error_type", "message")}


def checked_outcome(returned: Any, who: str = "the scorer") -> Outcome:
    """What was returned, if it is a sound outcome.

    Args:
        who: whose it is, for the message.

    >>> checked_outcome(Scored(7, True)).message
    'the scorer returned the value 7, not a number in [0, 1]'
    """
    texts = next((texts for kind, texts in _TEXTS.items() if isinstance(returned, kind)), None)
    if texts is None:
        return Failed("TypeError", f"{who} returned {type(returned).__name__}, not an outcome")
    if isinstance(returned, Scored) and not in_range(returned.value):
        return Failed("ValueError", f"{who} returned the value {returned.value!r}, not a number in [0, 1]")
    what = _wrong_part(returned, texts)
    if what is not None:
        return Failed("TypeError", f"{who} returned {what}")
    outcome: Outcome = returned
    return outcome


def in_range(value: Any) -> bool:
    """Whether it is a number from 0 to 1."""
    return isinstance(value, int | float) and 0 <= value <= 1


def _wrong_part(outcome: Any, texts: tuple[str, ...]) -> str | None:
    passed = getattr(outcome, "passed", True)  # only a score has it
    if not isinstance(passed, bool):
        return f"a {type(passed).__name__} as passed, not a bool"
    for key in texts:
        text = getattr(outcome, key)
        if not isinstance(text, str):
            return f"a {type(text).__name__} as {key}, not a text"
    return _wrong_details(outcome.details)


def _wrong_details(details: Any) -> str | None:
    """What of the details cannot be written as JSON, without its value."""
    if not isinstance(details, Mapping):
        return f"a {type(details).__name__} as details, not a mapping"
    try:
        json.dumps(dict(details), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - whatever its parts do when they are looked at
        return f"details that are not JSON ({type(error).__name__}{_where(details)}); use texts, numbers, lists and mappings"
    return None


def _where(details: Mapping[Any, Any]) -> str:
    """The first key whose value cannot be written, and the type of that value."""
    for key, value in details.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except Exception:  # noqa: BLE001 - as above
            return f" in {redacted_repr(key)}, a {type(value).__name__}"
    return ""


def too_large(why: str) -> Skipped:
    """The outcome where the evaluation of a trace takes more steps than it may."""
    return Skipped(f"too large: {why}", reason="too_large")


def failed_from(error: BaseException) -> Failed:
    """The outcome of a scorer that raised: the type of the error, and where in the user's code it came from."""
    return Failed(type(error).__name__, str(error), place=user_code_location(error))


_OURS: Final = str(Path(__file__).parents[1]) + "/"
_MACHINERY: Final = "<frozen importlib"


def user_code_location(error: BaseException) -> str:
    """`file:line` of the innermost frame in the file that we called into; "" if the error is not from a user's code.

    The innermost frame of all may be in a library; the line that called it is more useful.
    """
    frames = list(_frames(error))
    return f"{frames[0][0]}:{[line for file, line in frames if file == frames[0][0]][-1]}" if frames else ""


def describe_import_error(error: BaseException) -> str:
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
