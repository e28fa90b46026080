"""Credentials in the URLs of endpoints, where proxies, logs and errors show them."""

from __future__ import annotations

from typing import Final

from otel_eval.config.shapes import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.redaction import holds_credentials

__all__ = ["exposed_credentials", "refuse_credentials"]

_REMEDY: Final = "leave them out and write headers, e.g. headers: {authorization: '${env:OTLP_AUTHORIZATION}'}"


def exposed_credentials(config: EvalConfig) -> list[str]:
    """One line for each endpoint whose URL holds a user, a password or a query, without the URL.

    Judges' URLs are refused earlier, when the configuration is read.
    """
    given = {
        "exporters.otlp": config.exporters.otlp,
        "exporters.forward": config.exporters.forward,
        "telemetry.otlp": config.telemetry.otlp,
    }
    return [
        f"{key}.endpoint: the URL holds a user, a password or a query; {_REMEDY}"
        for key, each in given.items()
        if each is not None and holds_credentials(each.endpoint)
    ]


def refuse_credentials(config: EvalConfig) -> None:
    """For commands, whose configuration an operator can change; a program that scores itself is warned and runs on.

    Raises:
        ConfigError: a URL holds credentials.
    """
    if problems := exposed_credentials(config):
        raise ConfigError(*problems)
