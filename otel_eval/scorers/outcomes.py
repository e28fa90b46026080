"""What comes back from a scorer that is not ours: an outcome that everybody after it can read, or `Failed`.

Knows outcomes and JSON; knows no scorer. One outcome that cannot be written would cost the others of its report theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.model import Failed, Outcome, Scored, Skipped

__all__ = ["in_range", "outcome_of"]

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
    return None if _is_object(outcome.details) else "details that cannot be written as a JSON object"


def _is_object(details: Any) -> bool:
    if not isinstance(details, Mapping):
        return False
    try:
        # As results are written: what JSON has no word for becomes text.
        return not details or bool(json.dumps(details, default=str))
    except Exception:  # noqa: BLE001 - whatever its parts do when they are asked for their text
        return False
