"""Opens the clients of judges that the configuration names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_eval.config import EvalConfig, JudgeEndpoint, client_tls
from otel_eval.counters import Counters
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.scorers.judge import Judge
from otel_eval.watched_files import WatchedFiles, read_small_file

if TYPE_CHECKING:
    from otel_eval.judges.client import JudgeClient

# place in the configuration, repr of the block, API key if a variable holds it
_Endpoint = tuple[str, str, str | None]


_LONGEST_KEY: Final = 16 * 1024


def build_judges(config: EvalConfig) -> dict[str, Judge]:
    """The judges of a configuration by name; scorers that name the same judge share its client.

    Raises:
        ConfigError: API keys cannot be read; has one problem for each such judge.
    """
    clients = _building.get() or Clients()
    judges = collect_errors(
        partial(clients.judge, judge, f"judges.{name}") for name, judge in config.judges.items()
    )
    return dict(zip(config.judges, judges, strict=True))


def open_judge(spec: Mapping[str, Any]) -> Judge:
    """The judge at an endpoint.

    Args:
        spec: the keys of `JudgeEndpoint`.

    Raises:
        ConfigError: the mapping is invalid, or its API key cannot be read.
    """
    endpoint = JudgeEndpoint.model_validate(spec)
    return (_building.get() or Clients()).judge(endpoint, "")


class Clients:
    """Clients of judges. A new configuration with the same endpoint reuses the client with its rate
    limit, cache and connections.

    Args:
        counters: counts the requests of each judge.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters: Final = counters if counters is not None else Counters()
        self._current: dict[_Endpoint, JudgeClient] = {}  # of the last configuration
        self._next: dict[_Endpoint, JudgeClient] = {}  # of the configuration that is being built

    @contextmanager
    def building(self) -> Iterator[None]:
        """A context in which a configuration is built. On exit clients that it did not use are
        retired, except after an error.
        """
        self._next = {}
        token = _building.set(self)
        try:
            yield
        finally:
            _building.reset(token)
        before, self._current = self._current, self._next
        for endpoint in before.keys() - self._current.keys():
            before[endpoint].retire()

    def judge(self, judge: JudgeEndpoint | Judge, where: str) -> Judge:
        """Return a function unchanged, and for an endpoint its client: an existing one, or a new
        one if the endpoint changed.

        Raises:
            ConfigError: the API key of the endpoint cannot be read.
        """
        if not isinstance(judge, JudgeEndpoint):
            return judge
        key = _key(judge, where)
        endpoint = (where, repr(judge), key if judge.api_key_env else None)
        client = (
            self._next.get(endpoint) or self._current.get(endpoint) or self._new(judge, where, key)
        )
        self._next[endpoint] = client
        return client

    def _new(self, judge: JudgeEndpoint, where: str, api_key: str | None) -> JudgeClient:
        from otel_eval.judges.client import JudgeClient  # deferred: it loads asyncio

        fields = {
            key: getattr(judge, key)
            for key in ("base_url", "model", "retries", "per_minute", "cache", "parameters")
        }
        tls = client_tls(judge.tls, _below(where, "tls")).context() if judge.tls else None
        name = where.removeprefix("judges.") if where.startswith("judges.") else "inline"
        read, kept = partial(_key, judge, where), "the key read before stays in use"
        key_file = (
            WatchedFiles([judge.api_key_file], read, 0.0, kept) if judge.api_key_file else None
        )
        return JudgeClient(
            **fields,
            timeout_s=judge.timeout,
            tls=tls,
            name=name,
            counters=self._counters,
            read_key=key_file.current if key_file else lambda: api_key,
        )


def _below(where: str, key: str) -> str:
    """The path of a key of an endpoint; `where` is empty if the caller adds its place."""
    return f"{where}.{key}" if where else key


_building: Final[ContextVar[Clients | None]] = ContextVar("otel_eval_clients", default=None)


def _key(judge: JudgeEndpoint, where: str) -> str | None:
    """The API key of an endpoint; None if it has none. No message quotes the key."""
    if judge.api_key_env is not None:
        where, key = (
            f"{_below(where, 'api_key_env')}: the environment variable {judge.api_key_env!r}",
            os.environ.get(judge.api_key_env, ""),
        )
        missing = "is unset or empty; set it"
    elif judge.api_key_file is not None:
        where, missing = (
            f"{_below(where, 'api_key_file')}: {judge.api_key_file!r}",
            "holds no key; name a file that holds it",
        )
        raw = read_small_file(
            judge.api_key_file,
            _LONGEST_KEY,
            lambda why: ConfigError(f"{where} {why}; name a file that holds the key"),
        )
        key = raw.decode("utf-8", "replace")
    else:
        return None
    key = key.strip()
    if not key:
        raise ConfigError(f"{where} {missing}, or leave it out where no key is needed")
    if not key.isascii() or not key.isprintable() or len(key) > _LONGEST_KEY:
        raise ConfigError(f"{where} holds more than a key; put the key there and nothing else")
    return key
