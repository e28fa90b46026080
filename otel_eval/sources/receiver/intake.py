"""What the receiver hands its requests to."""

from __future__ import annotations

from typing import Protocol

from otel_eval.sources.otlp import Framed

__all__ = ["Intake"]


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
