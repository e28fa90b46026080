"""Judges from the configuration: endpoints and whoever was given from Python.

Knows the keys of an endpoint and where its key is; connects to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from otel_eval.config import EvalConfig, JudgeEndpoint
from otel_eval.config.door import joined, lines_of
from otel_eval.errors import ConfigError
from otel_eval.scorers.judging import Judge, resolve
from otel_eval.telling import gathered

__all__ = ["judges_of", "opened"]

_LONGEST_KEY: Final = 16 * 1024


def judges_of(config: EvalConfig) -> dict[str, Judge]:
    """The judges of a configuration by name, each there once, however many scorers ask it.

    Raises:
        ConfigError: the key of one cannot be had; each such one is named.
    """
    made = gathered(partial(_judge, given, f"judges.{name}") for name, given in config.judges.items())
    return dict(zip(config.judges, made, strict=True))


def _judge(given: JudgeEndpoint | Judge, where: str) -> Judge:
    return _client(given, where) if isinstance(given, JudgeEndpoint) else resolve(given, where)


def opened(spec: Mapping[str, Any], where: str) -> Judge:
    """The judge behind an endpoint.

    Raises:
        ConfigError: the mapping cannot be used.
    """
    try:
        endpoint = JudgeEndpoint.model_validate(spec)
    except ValidationError as error:
        raise ConfigError(*[joined(where, line) for line in lines_of(error, JudgeEndpoint)]) from None
    return _client(endpoint, where)


def _client(given: JudgeEndpoint, where: str) -> Judge:
    from otel_eval.judges.client import Client  # deferred: it loads asyncio
    from otel_eval.judges.endpoint import Endpoint

    endpoint = Endpoint(
        base_url=given.base_url,
        model=given.model,
        key=_key(given, where),
        timeout_s=given.timeout,
        retries=given.retries,
        per_minute=given.per_minute,
        cache=given.cache,
        parameters=given.parameters,
    )
    return Client(endpoint)


def _key(given: JudgeEndpoint, where: str) -> str | None:
    """The key itself, which no message ever quotes."""
    if given.api_key_env is not None:
        where, remedy = f"{where}.api_key_env: {given.api_key_env!r}", "set it"
        key = os.environ.get(given.api_key_env, "")
    elif given.api_key_file is not None:
        where, remedy = f"{where}.api_key_file: {given.api_key_file!r}", "name a file that holds it"
        key = _file(given.api_key_file, where)
    else:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{where} holds no key; {remedy}, or leave it out where no key is needed")
    if not key.isascii() or not key.isprintable() or len(key) > _LONGEST_KEY:
        raise ConfigError(f"{where} holds something that is no key; put the key there and nothing else")
    return key


def _file(path: str, where: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_KEY + 1).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{where} cannot be read ({error.strerror}); name a file that holds the key") from None
