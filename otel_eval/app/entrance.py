"""The receiver from the configuration: where it listens, what it speaks, whom it lets in.

Knows the receiver's keys; opens nothing but the files of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from otel_eval.config import Auth, ServerTls
from otel_eval.config import OtlpReceiver as Given
from otel_eval.errors import collect_errors
from otel_eval.sources.receiver import Certificates, Consumer, OtlpReceiver, Relay, Tls, Tokens

__all__ = ["receiver_of", "verify"]


def receiver_of(given: Given, intake: Consumer, relay: Relay | None, ready: Callable[[], bool]) -> OtlpReceiver:
    """The receiver, not listening yet.

    Raises:
        ConfigError: a token cannot be had.
    """
    grpc, http = given.protocols.grpc, given.protocols.http
    return OtlpReceiver(
        grpc=grpc.endpoint if grpc else None,
        http=http.endpoint if http else None,
        intake=intake,
        max_body_bytes=max(each.max_message_size for each in (grpc, http) if each),
        max_inflight_bytes=given.max_inflight_size,
        max_attributes=given.max_attributes,
        grpc_tls=_tls(grpc.tls if grpc else None),
        http_tls=_tls(http.tls if http else None),
        tokens=_tokens(given.auth),
        relay=relay,
        ready=ready,
    )


def verify(given: Given) -> None:
    """See whether the files that the receiver needs can be used.

    Raises:
        ConfigError: some cannot; each is named.
    """
    servers = (("grpc", given.protocols.grpc), ("http", given.protocols.http))
    tls = [(_tls(server.tls), f"receivers.otlp.protocols.{protocol}.tls") for protocol, server in servers if server]
    readings: list[Callable[[], object]] = [partial(Certificates, files, where) for files, where in tls if files]
    readings.append(partial(_tokens, given.auth))
    collect_errors(readings)


def _tls(given: ServerTls | None) -> Tls | None:
    if given is None:
        return None
    return Tls(
        cert_file=given.cert_file,
        key_file=given.key_file,
        client_ca_file=given.client_ca_file,
        min_version=given.min_version,
        reload_s=given.reload_interval,
    )


def _tokens(given: Auth | None) -> Tokens | None:
    return Tokens(given.token_files, given.token_env, where="receivers.otlp.auth") if given else None
