"""What the receiver hands its requests to."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from otel_eval.sources.otlp import Framed

__all__ = ["Intake", "Origin", "Relay"]


class Origin(NamedTuple):
    """A request as it was decoded: what it carries, how it is written, its bytes."""

    signal: str
    encoding: str
    body: bytes


class Intake(Protocol):
    """Takes what a request held. When a call returns the sender is told that its data is safe.

    Called from several threads at once. Either everything given is taken, or `Overloaded` is raised and nothing is:
    the sender comes again with all of it.
    """

    def spans(self, framed: Framed) -> None:
        """Take spans.

        Raises:
            Overloaded: there is no room now.
        """
        ...

    def logs(self, framed: Framed) -> None:
        """Take log records.

        Raises:
            Overloaded: there is no room now.
        """
        ...


class Relay(Protocol):
    """Takes whole requests, to pass them on beside having them scored. Otherwise like an `Intake`.

    Bodies are protobuf, whatever the sender wrote, and may hold spans and records that were not framed.
    """

    def traces(self, body: bytes, framed: Framed) -> None:
        """Take a request of traces and what was framed of it.

        Raises:
            Overloaded: there is no room now.
        """
        ...

    def logs(self, body: bytes, framed: Framed) -> None:
        """Take a request of logs and what was framed of it; raises as `traces` does."""
        ...

    def metrics(self, body: bytes) -> bool:
        """Take a request of metrics; False if it is discarded. Raises as `traces` does."""
        ...
