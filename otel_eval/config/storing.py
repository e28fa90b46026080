"""What survives a crash.

Knows a directory and its limits; opens nothing.
"""

from __future__ import annotations

from pydantic import Field

from otel_eval.config.door import Shape
from otel_eval.config.places import Size

__all__ = ["Storage"]


class Storage(Shape):
    """Where `otel-eval serve` keeps what it has acknowledged until it is scored and delivered."""

    directory: str = Field(min_length=1)
    """A directory for this process alone; made if it is not there."""
    max_size: Size = 10 * 2**30
    """Bytes on disk before senders are told to come again."""
    sync: bool = True
    """Whether acknowledgements wait for the disk. Without it they survive a crash of the process, not of the machine."""
