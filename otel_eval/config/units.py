"""Durations, sizes, numbers, URLs and TLS files as users write them, and the types of keys that
hold them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from otel_eval.errors import redacted, redacted_repr
from otel_eval.validation import LARGEST, Item, Shape, Some

_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BYTES: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
# compiled when they are first used
_QUANTITY: Final = r"(?a:([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*))"
_LONGEST_S: Final = 365 * 86400.0
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_BLANK: Final = r"[\s\x00-\x1f\x7f]"


def seconds_of(value: object) -> float:
    """A duration in seconds: `"250ms"`, `"1s"`, `"5m"`, `"1h"`, or a plain number of seconds.

    Raises:
        ValueError: it is no duration between 0 and 365 days.

    >>> seconds_of("250ms"), seconds_of("5m"), seconds_of(2)
    (0.25, 300.0, 2.0)
    """
    seconds = _quantity_of(value, _SECONDS)
    if seconds is None or not 0 <= seconds <= _LONGEST_S:
        raise ValueError(
            f"{redacted_repr(value)} is not a duration between 0 and 365 days; write e.g. 250ms,"
            " 1s, 5m or 1h"
        )
    return seconds


def bytes_of(value: object) -> int:
    """A size in bytes: `"512MiB"`, `"64KB"`, or a plain number of bytes.

    Raises:
        ValueError: it is no whole number of bytes from 1 up.

    >>> bytes_of("64KB"), bytes_of("512MiB"), bytes_of(10)
    (64000, 536870912, 10)
    """
    size = _quantity_of(value, _BYTES)
    if size is None or not 1 <= size <= LARGEST or size != int(size):
        raise ValueError(
            f"{redacted_repr(value)} is not a size of at least one byte; write e.g. 64KB, 512MiB or"
            " 1GiB"
        )
    return int(size)


def size_text(size: int) -> str:
    """A size as a configuration has it.

    >>> size_text(64 * 2**20), size_text(1000)
    ('64MiB', '1000')
    """
    units = [(name, _BYTES[name]) for name in ("GiB", "MiB", "KiB")]
    return next((f"{size // unit}{name}" for name, unit in units if size % unit == 0), str(size))


def url_of(text: str) -> SplitResult | None:
    """The parts of an http:// or https:// URL with a host; None if it is none.

    >>> url_of("http://127.0.0.1:4318").port, url_of("http://127.0.0.1: 4318")
    (4318, None)
    """
    if re.search(_BLANK, text):  # `urlsplit` removes some of these silently
        return None
    try:
        parts = urlsplit(text)
        return (
            parts
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            else None
        )
    except ValueError:
        return None


def _check_target(text: str) -> str:
    if url_of(text) is None:
        raise ValueError(
            f"{redacted_repr(redacted(text))} is not a URL with a host; write e.g."
            " http://127.0.0.1:5317"
        )
    return text


def _check_variable(name: str) -> str:
    # not quoted: it may be the key itself, written here by mistake
    if not re.fullmatch(_VARIABLE, name):
        raise ValueError(
            "the value is not the name of an environment variable; write e.g. OTEL_EVAL_TOKEN, and"
            " never the key"
        )
    return name


def _check_text_or_number(value: object) -> str | bool | int | float:
    if not isinstance(value, str | bool | int | float):
        raise ValueError(
            f"{redacted_repr(value)} is neither text nor a number nor true or false; write one of"
            " them"
        )
    return value


def _quantity_of(value: object, units: Mapping[str, float]) -> float | None:
    """A number, or a text of a number and one of the units; None if the value is neither."""
    if isinstance(value, str):
        match = re.fullmatch(_QUANTITY, value.strip())
        return float(match[1]) * units[match[2]] if match and match[2] in units else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Integers that a float cannot represent are out of range, too.
    return float(value) if abs(value) <= LARGEST and math.isfinite(value) else math.inf


def _quantity(units: Mapping[str, float]) -> WithJsonSchema:
    """The schema of a number, or of a text of a number and one of the units."""
    pattern = rf"^[0-9.]+\s*({'|'.join(filter(None, units))})$"
    return WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": pattern}]}
    )


Seconds = Annotated[float, BeforeValidator(seconds_of), _quantity(_SECONDS)]
Size = Annotated[int, BeforeValidator(bytes_of), _quantity(_BYTES)]
Plain = Annotated[str | bool | int | float, BeforeValidator(_check_text_or_number)]
Target = Annotated[str, AfterValidator(_check_target)]
Variable = Annotated[str, AfterValidator(_check_variable)]
Distinct = Annotated[Some[Item], AfterValidator(lambda given: tuple(dict.fromkeys(given)))]
"""A list of at least one value, without duplicates."""


class TlsFiles(Shape):
    """PEM files for a connection by TLS."""

    ca_file: str | None = None
    """Authorities to trust instead of the system's."""
    cert_file: str | None = None
    """A client certificate."""
    key_file: str | None = None
    """The client certificate's key."""

    def contradictions(self) -> Iterator[str]:
        """A certificate and its key come together."""
        if (self.cert_file is None) != (self.key_file is None):
            named, other = (
                ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            )
            yield f"{named} is given without {other}; name both or neither"


def tls_without_https(tls: TlsFiles | None, url: str) -> Iterator[str]:
    """A problem if TLS files are given for an endpoint without TLS."""
    if tls is not None and not url.startswith("https"):
        yield (
            f"tls: files are named, but {redacted_repr(url)} is not an https:// URL; write https://"
        )
