"""Who evaluates with a storage directory, and since when: the same after every restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import Claim, replace_file

__all__ = ["Identity", "identity_of"]

_NAME: Final = "evaluator.json"


class Identity(NamedTuple):
    """Who evaluates.

    Attributes:
        evaluator: 32 hex digits, drawn when the directory was first used.
        since_ns: Unix nanoseconds of that moment; 0 if older versions used the directory before.
    """

    evaluator: str
    since_ns: int


def identity_of(claim: Claim, now_ns: int) -> Identity:
    """The identity that the directory holds; a new one if it holds none that can be read.

    Raises:
        ConfigError: it cannot be written.
    """
    path = claim.path / _NAME
    found = _read(path)
    if found is None:
        found = Identity(uuid4().hex, 0 if claim.segments() else now_ns)
        try:
            replace_file(path, json.dumps(found._asdict()).encode())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(
                f"storage.directory: {str(path)!r} cannot be written ({reason}); make room or name another"
            ) from None
    return found


def _read(path: Path) -> Identity | None:
    try:
        held = json.loads(path.read_bytes())
        evaluator, since_ns = held["evaluator"], held["since_ns"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = isinstance(evaluator, str) and evaluator and isinstance(since_ns, int)
    return Identity(evaluator, since_ns) if sound else None
