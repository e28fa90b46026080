"""Which endpoints have accepted which signals: what decides, also after a restart, whether a 404 is an outage."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Final

from otel_eval.storage.directory import Claim, replace_file

__all__ = ["AcceptedSignals"]

_NAME: Final = "accepted.json"
_MOST: Final = 100  # endpoints that were configured one after the other; the oldest is forgotten

_log = logging.getLogger("otel_eval")


class AcceptedSignals:
    """A small file with the keys of endpoints and signals. Safe from any thread.

    Args:
        claim: the storage directory.
    """

    def __init__(self, claim: Claim) -> None:
        self._path: Final = claim.path / _NAME
        self._lock = threading.Lock()  # guards _keys and the file
        self._keys = _read(self._path)

    def has(self, key: str) -> bool:
        """Whether it was accepted."""
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember it. A file that cannot be written is logged: after a restart a 404 is then no outage."""
        with self._lock:
            if key in self._keys:
                return
            self._keys = [*self._keys, key][-_MOST:]
            try:
                replace_file(self._path, json.dumps(self._keys).encode())
            except OSError as error:
                _log.warning("storage.directory: %s cannot be written (%s)", _NAME, error.strerror or type(error).__name__)


def _read(path: Path) -> list[str]:
    try:
        held = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    return [key for key in held if isinstance(key, str)] if isinstance(held, list) else []
