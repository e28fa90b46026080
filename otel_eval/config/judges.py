"""Judges and the limits of asynchronous scoring."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field, WrapValidator

from otel_eval.config.tls import TlsFiles, tls_without_https
from otel_eval.config.units import Count, Seconds, Whole, url_of
from otel_eval.config.validation import Shape
from otel_eval.errors import ConfigError, holds_credentials, redacted, redacted_repr

__all__ = ["AsyncScoring", "JudgeEndpoint", "JudgeSpec"]

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_OURS: Final = frozenset({"model", "messages", "stream", "n", "response_format"})


def _url(text: str) -> str:
    if holds_credentials(text):  # then it is not shown either
        raise ValueError("the URL holds a user, a password or a query; leave them out and write api_key_env: JUDGE_API_KEY")
    if url_of(text) is None:
        raise ValueError(f"{redacted_repr(redacted(text))} is not a URL with a host; write e.g. https://models.example/v1")
    return text


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        # The value is not quoted: it may be the key itself, written here by mistake.
        raise ValueError("the value is not the name of an environment variable; write e.g. JUDGE_API_KEY, and never the key")
    return name


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    ours = sorted(_OURS & given.keys())
    if ours:
        raise ValueError(f"{ours[0]}: is set by otel-eval; leave it out")
    unsendable = next((key for key, value in given.items() if not _is_json(value)), None)
    if unsendable is not None:
        raise ValueError(f"{unsendable}: is not JSON; write numbers, texts, true or false, lists or mappings of these")
    return given


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return False
    return True


class JudgeEndpoint(Shape):
    """An OpenAI-compatible chat endpoint that serves as a judge."""

    base_url: Annotated[str, AfterValidator(_url)]
    """http:// or https:// URL that `/chat/completions` is added to."""
    model: str = Field(min_length=1)
    """The model's name there. None is assumed."""
    api_key_env: Annotated[str, AfterValidator(_variable)] | None = None
    """The environment variable that holds the key."""
    api_key_file: str | None = None
    """The file that holds the key. Neither: no key is sent."""
    tls: TlsFiles | None = None
    """Files for an https:// URL; the system's authorities when left out."""
    timeout: Seconds = 60.0
    """How long one attempt may take."""
    retries: Whole = 2
    """Attempts after the first one if the judge is rate limited, unavailable or does not answer."""
    per_minute: Count | None = None
    """Attempts in any minute; further ones wait. Left out: any number."""
    cache: Whole = 1000
    """Responses in the cache; equal requests are sent once. 0: no cache."""
    parameters: Annotated[Mapping[str, Any], AfterValidator(_parameters)] = Field(default_factory=dict)
    """Further fields of each request, e.g. `{temperature: 0}`."""

    def contradictions(self) -> Iterator[str]:
        """One key, a timeout above 0, and an installed client."""
        yield from tls_without_https(self.tls, self.base_url)
        if self.api_key_env is not None and self.api_key_file is not None:
            yield "api_key_file: is given beside api_key_env; name one of them"
        if self.timeout == 0:
            yield "timeout: 0 leaves no time for an answer; write e.g. 60s"
        if find_spec("openai") is None:
            yield "an endpoint needs the package openai; install otel-eval[judge]"


def _judge(given: Any, endpoint: Any) -> Any:
    """A coroutine function as it is, or the one at a path; else an endpoint."""
    is_path = isinstance(given, str) and ":" in given
    if isinstance(given, str) and not is_path:  # which may be the key itself: it is not shown
        raise ValueError("a text is no endpoint; write base_url, model and api_key_env, or the path package.module:function")
    if not callable(given) and not is_path:
        return endpoint(given)
    # Deferred: they load every scorer, which `schema` has no need of.
    from otel_eval.scorers.spec.functions import is_coroutine_function
    from otel_eval.scorers.spec.registry import import_path

    if is_path:
        try:
            given = import_path("", given)
        except ConfigError as error:
            raise ValueError(str(error).removeprefix(": ")) from None
    if not is_coroutine_function(given):
        raise ValueError(f"{redacted_repr(given)} is not a coroutine function; write async def judge(prompt: str) -> str")
    return given


JudgeSpec = Annotated[JudgeEndpoint, WrapValidator(_judge)]


class AsyncScoring(Shape):
    """Limits for scorers that are awaited, such as judges, and for functions of your own."""

    deprecated_keys: ClassVar[Mapping[str, str]] = {"function_timeout": "scorer_timeout"}
    max_queue: Count = 1000
    """Results that may be pending at one time; more fail with `judge_queue_full`."""
    concurrency: Count = 8
    """How many scorers run at one time."""
    timeout: Seconds = 300.0
    """How long one result may take, with all attempts; then it fails with `timeout`."""
    scorer_timeout: Seconds = 30.0
    """How long a scorer of your own that is not a coroutine may take for one run; then it fails with `timeout`."""

    def contradictions(self) -> Iterator[str]:
        """Timeouts must be above 0."""
        for key, remedy in (("timeout", "5m"), ("scorer_timeout", "30s")):
            if getattr(self, key) == 0:
                yield f"{key}: 0 leaves no time for an answer; write e.g. {remedy}"
