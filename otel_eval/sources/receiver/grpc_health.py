"""grpc.health.v1: whether the receiver takes requests, for orchestrators and load balancers.

Knows the two messages of `Check`, one field each, which is why no library is asked for them. `Watch` is not there: it would
hold a thread for each watcher, and a client that finds it UNIMPLEMENTED takes the server for healthy, as the protocol says.
Source: grpc doc/health-checking.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc

from otel_eval.wire import sized

__all__ = ["HEALTH", "HEALTH_CHECK", "health_handler"]

HEALTH: Final = "grpc.health.v1.Health"
HEALTH_CHECK: Final = f"/{HEALTH}/Check"
_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"


def health_handler(services: Iterable[str], is_open: Callable[[], bool]) -> Any:
    """The handler of `Check` for these services; "" is the server as a whole."""
    known: Final = {sized(1, name.encode()) if name else b"" for name in services} | {b"\x0a\x00"}

    def check(request: bytes, context: Any) -> bytes:
        if request not in known:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _SERVING if is_open() else _NOT_SERVING

    return grpc.unary_unary_rpc_method_handler(check)
