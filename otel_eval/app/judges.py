"""Judges that are endpoints, from their mapping in a configuration.

Knows the keys of an endpoint; connects to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_eval.errors import ConfigError
from otel_eval.scorers.judging import Judge

__all__ = ["opened"]


def opened(spec: Mapping[str, Any], where: str) -> Judge:
    """The judge behind an endpoint.

    Raises:
        ConfigError: the mapping cannot be used.
    """
    raise ConfigError(f"{where}: endpoints cannot be judges yet; give a coroutine function from Python")
