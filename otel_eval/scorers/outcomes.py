"""Outcomes of scorers: why there is no score, and checks of what users' scorers return.

A single outcome that cannot be written as JSON would prevent the export of all results of its
report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from otel_eval.errors import redacted_repr
from otel_eval.model import Failed, Outcome, Scored, Skipped, SkipReason
from otel_eval.scorers.user_code import user_code_location


class NoScore(Exception):
    """Raised by a scorer that cannot give a score; its caller returns `outcome` instead.

    Attributes:
        outcome: why there is no score.
    """

    def __init__(self, outcome: Skipped | Failed) -> None:
        super().__init__(outcome.message if isinstance(outcome, Failed) else outcome.explanation)
        self.outcome = outcome


def prefixed(outcome: Skipped | Failed, where: str, details: Mapping[str, Any]) -> Skipped | Failed:
    """Return the outcome of a part of a scorer as that of the scorer: with `where` before its text,
    and the given details.
    """
    if isinstance(outcome, Skipped):
        return Skipped(f"{where}{outcome.explanation}", outcome.reason, details)
    return replace(outcome, message=f"{where}{outcome.message}", details=details)


def too_large(explanation: str) -> Skipped:
    """The outcome if the evaluation of a trace would take more steps than are allowed."""
    return Skipped(f"too large: {explanation}", reason="too_large")


def failed_from(error: BaseException) -> Failed:
    """The outcome of a scorer that raised: the type of the error, and the line of the user's code
    that raised it.
    """
    return Failed(type(error).__name__, str(error), place=user_code_location(error))


_REASONS: Final = get_args(SkipReason)


def checked_outcome(returned: object, subject: str = "the scorer") -> Outcome:
    """Return a valid outcome unchanged, and for anything else a `Failed` that describes the
    problem.

    Args:
        subject: the subject of the message.

    >>> checked_outcome(Scored(7, True)).message
    'the scorer returned the value 7, not a number in [0, 1]'
    """
    if not isinstance(returned, Scored | Skipped | Failed):
        return wrong_return(
            "TypeError", f"{subject} returned {type(returned).__name__}, not an outcome"
        )
    if isinstance(returned, Scored) and not in_range(returned.value):
        return wrong_return(
            "ValueError", f"{subject} returned the value {returned.value!r}, not a number in [0, 1]"
        )
    invalid_part = _invalid_part(returned)
    return (
        returned
        if invalid_part is None
        else wrong_return("TypeError", f"{subject} returned {invalid_part}")
    )


def wrong_return(error_type: str, message: str) -> Failed:
    """The outcome of a scorer that returned an invalid value; the message describes the value
    without content.
    """
    return Failed(error_type, message, place=message)


def in_range(value: object) -> bool:
    """Whether a value is a number from 0 to 1."""
    return isinstance(value, int | float) and 0 <= value <= 1


def _invalid_part(outcome: Any) -> str | None:
    """Describe the first part of an outcome that has the wrong type; None if there is none."""
    if not isinstance(outcome.passed, bool):
        return f"a {type(outcome.passed).__name__} as passed, not a bool"
    for key in ("error_type", "message") if isinstance(outcome, Failed) else ("explanation",):
        text = getattr(outcome, key)
        if not isinstance(text, str):
            return f"a {type(text).__name__} as {key}, not a text"
    # reasons are labels of metrics
    if isinstance(outcome, Skipped) and outcome.reason not in _REASONS:
        return f"a reason that is not one of {', '.join(_REASONS)}"
    return _invalid_details(outcome.details)


def _invalid_details(details: object) -> str | None:
    """Describe the part of the details that cannot be written as JSON, without its value; None if
    there is none.
    """
    if not isinstance(details, Mapping):
        return f"a {type(details).__name__} as details, not a mapping"
    try:
        json.dumps(dict(details), allow_nan=False)
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything
        return (
            f"details that are not JSON ({type(error).__name__}{_in_key(details)}); use texts,"
            " numbers, lists and mappings"
        )
    return None


def _in_key(details: Mapping[Any, Any]) -> str:
    """The first key whose value cannot be written as JSON, and the type of that value; "" if each
    value can.
    """
    for key, value in details.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except Exception:  # noqa: BLE001 - as above
            return f" in {redacted_repr(key)}, a {type(value).__name__}"
    return ""
