"""What comes back from a scorer that is not ours: an outcome that everybody after it can read, or `Failed`.

Knows outcomes and JSON; knows no scorer. One outcome that cannot be written would cost the others of its report theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.model import Failed, Outcome, Scored, Skipped
from otel_eval.redaction import redacted_repr
from otel_eval.scorers.tracebacks import place_of

__all__ = ["failed_by", "in_range", "outcome_of", "too_large"]

_TEXTS: Final = {Scored: ("explanation",), Skipped: ("why",), Failed: ("error_type", "message")}


def outcome_of(returned: Any, who: str = "the scorer") -> Outcome:
    """What was returned, if it is a sound outcome.

    Args:
        who: whose it is, for the message.

    >>> outcome_of(Scored(7, True)).message
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


def failed_by(error: BaseException) -> Failed:
    """The outcome of a scorer that raised: the type of the error, and where in the user's code it came from."""
    return Failed(type(error).__name__, str(error), place=place_of(error))
