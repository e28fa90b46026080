"""Files that may be replaced while we run: what tells one content from another without reading it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["stamp"]


def stamp(file: str) -> tuple[int, int, int] | None:
    """Something that differs when the file was changed; None if it is not there."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
