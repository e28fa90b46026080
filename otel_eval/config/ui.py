"""The part of the configuration about the page that shows runs."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from otel_eval.config.receivers import Address, Auth
from otel_eval.config.units import Size, url_of
from otel_eval.errors import holds_credentials, redacted, redacted_repr
from otel_eval.validation import Shape

DEFAULT_UI_ENDPOINT: Final = "127.0.0.1:4319"
"""Where `otel-eval serve --ui` serves the page."""

_NAMES: Final = ("{trace_id}", "{span_id}")


def _check_page_url(text: str) -> str:
    """Return the URL as it is; ValueError if it is none once its placeholders, such as
    `{trace_id}`, are filled in.
    """
    plain = text
    for name in _NAMES:
        plain = plain.replace(name, "0")
    if url_of(plain.partition("#")[0]) is None or "{" in plain:
        raise ValueError(
            f"{redacted_repr(redacted(text))} is not an http:// or https:// URL; write e.g."
            " http://localhost:16686/trace/{trace_id}"
        )
    return text


def _read_public_url(text: str) -> str:
    if url_of(text) is None or holds_credentials(text) or "#" in text:
        raise ValueError(
            "not an http:// or https:// URL without a query; write e.g. https://eval.example"
        )
    return text.rstrip("/")


class Ui(Shape):
    """The page of `otel-eval serve` that shows the last runs, and what other pages link to."""

    endpoint: Address | None = None
    """host:port of the page, on this machine unless `auth` is there; left out, it is not served."""
    auth: Auth | None = None
    """The page asks for one of these bearer tokens."""
    allowed_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names that requests may carry in `Host`, besides IP addresses, localhost and those in
    `endpoint` and `public_url`.
    """
    include_content: bool = False
    """Whether the page shows arguments and results of calls, as far as scorers read them."""
    max_bytes: Size = 32 * 2**20
    """The size of the last runs, at most 1,000, that are held for the page."""
    trace_url: Annotated[str, AfterValidator(_check_page_url)] | None = None
    """The address of a trace in a backend, with `{trace_id}` and perhaps `{span_id}`."""
    public_url: Annotated[str, AfterValidator(_read_public_url)] | None = None
    """The address at which people reach the page, for instance behind a proxy."""

    def contradictions(self) -> Iterator[str]:
        """A page for other machines that asks for no token."""
        if self.endpoint and self.auth is None and not _is_loopback(self.endpoint):
            yield (
                f"endpoint: {redacted_repr(self.endpoint)} can be reached from other machines; add"
                " auth with token_files or token_env, or listen on 127.0.0.1"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `Host` may have besides those of the endpoint."""
        public = url_of(self.public_url) if self.public_url else None
        host: Any = public.hostname if public else None
        return (*self.allowed_hosts, *((host,) if host else ()))


def _is_loopback(endpoint: str) -> bool:
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
