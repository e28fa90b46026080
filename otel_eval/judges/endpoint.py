"""What must be known of an endpoint to ask it.

Knows names and numbers; reads no key and connects to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

__all__ = ["Endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible chat endpoint.

    Attributes:
        base_url: the URL that `/chat/completions` is added to.
        model: the model's name there.
        key: the API key, never shown; None for none.
        timeout_s: how long one attempt may take.
        retries: attempts after the first one.
        per_minute: attempts in any minute, or None.
        cache: answers that are remembered.
        parameters: further fields of each request, such as a temperature.
        tls: whom to trust and which certificate to show; None: the system's authorities and no certificate.
    """

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    retries: int = 2
    per_minute: int | None = None
    cache: int = 1000
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tls: SSLContext | None = None
