"""JSON over HTTP to a server on loopback, whatever proxy the environment names."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(
    url: str, body: Any = None, *, method: str | None = None, timeout_s: float = 120.0
) -> tuple[int, Any]:
    """Status and decoded body; status 0 if nothing listens or answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, headers={"Content-Type": "application/json"}, method=method
    )
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return response.status, _decoded(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _decoded(error.read())
    except OSError:
        return 0, None


def get(url: str) -> Any:
    """The body of a request that must succeed."""
    return _succeeded(url, *call(url))


def post(url: str, body: Any) -> Any:
    """The body of a request that must succeed."""
    return _succeeded(url, *call(url, body))


def _succeeded(url: str, status: int, body: Any) -> Any:
    assert status in (200, 201), (url, status, body)
    return body


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
