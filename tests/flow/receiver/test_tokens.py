"""Bearer tokens: which requests are accepted, and that tokens are never logged."""

from __future__ import annotations

import http.client
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval.errors import ConfigError
from otel_eval.sources.receiver.credentials import BearerTokens
from tests.support.waiting import LIMIT_S

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECRET, OTHER = "s3cret-of-the-first", "s3cret-of-the-second"
BEARER = [("authorization", f"Bearer {SECRET}")]


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BearerTokens:
    monkeypatch.setenv("SECOND", OTHER)
    (tmp_path / "tokens").write_text(f"{SECRET}\n\n", encoding="utf-8")
    return BearerTokens([str(tmp_path / "tokens")], ["SECOND"], look_s=0.0)


@pytest.mark.parametrize("token", [SECRET, OTHER])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_exporters_with_a_token_deliver(
    start: Any, intake: Any, tokens: BearerTokens, protocol: str, token: str
) -> None:
    """Any of them, by file or variable."""
    _, bound = start(tokens=tokens)
    headers = {"authorization": f"Bearer {token}"}
    exporter: Any = (
        GrpcExporter(endpoint=f"http://{bound.grpc}", insecure=True, headers=headers)
        if protocol == "grpc"
        else HttpExporter(endpoint=f"http://{bound.http}/v1/traces", headers=headers)
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("a").end()
    provider.shutdown()
    assert intake.names() == ["a"]


WRONG = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Bearer x",
    f"Basic {SECRET}",
    SECRET,
    f"Bearer {SECRET}x",
    f"Bearer {SECRET} x",
]


@pytest.mark.parametrize("given", WRONG)
def test_a_call_without_a_token_is_unauthenticated(
    start: Any, intake: Any, channel: Any, tokens: BearerTokens, given: Any
) -> None:
    """For good: a retry cannot help."""
    receiver, bound = start(tokens=tokens)
    metadata = [("authorization", given)] if given is not None else []
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).unary_unary(TRACES)(b"", metadata=metadata, timeout=300)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert (intake.taken, receiver.counters.get("unauthenticated_requests")) == ([], 1)


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("path", ["/v1/traces", "/elsewhere"])
def test_a_request_without_a_token_is_answered_401(
    start: Any, intake: Any, tokens: BearerTokens, given: Any, path: str
) -> None:
    """Whatever it asks for."""
    receiver, bound = start(tokens=tokens)
    connection = http.client.HTTPConnection(bound.http, timeout=300)
    headers = {"Authorization": given} if given is not None else {}
    connection.request("POST", path, b"", {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"token is needed" in answer.read()
    assert (intake.taken, receiver.counters.get("unauthenticated_requests")) == ([], 1)
    connection.close()


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_the_body_is_not_read_for_a_stranger(start: Any, tokens: BearerTokens, expect: str) -> None:
    """The answer is there before the first byte of a body is."""
    _, bound = start(tokens=tokens)
    host, port = bound.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        head = (
            "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type:"
            f" application/json\r\n{expect}Content-Length: 60000000\r\n\r\n"
        )
        connection.sendall(head.encode())
        connection.settimeout(300)
        assert connection.recv(12) == b"HTTP/1.1 401"


def test_a_message_is_not_read_for_a_stranger(
    start: Any, channel: Any, tokens: BearerTokens
) -> None:
    """A call that only announces itself is answered."""
    _, bound = start(tokens=tokens)
    call = channel(bound.grpc).stream_stream(TRACES)(iter(()), timeout=300)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_health_needs_no_token(start: Any, channel: Any, tokens: BearerTokens) -> None:
    """A probe has no token."""
    _, bound = start(tokens=tokens)
    assert (
        channel(bound.grpc).unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=300)
        == b"\x08\x01"
    )


def test_tokens_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one counts and an old one does not, as soon as the file changed; the environment's
    stay.
    """
    monkeypatch.setenv("SECOND", OTHER)
    file = tmp_path / "tokens"
    file.write_text(SECRET, encoding="utf-8")
    tokens = BearerTokens([str(file)], ["SECOND"], look_s=0.0)
    file.write_text("an-entirely-new-one", encoding="utf-8")
    assert [tokens.allow(f"Bearer {each}") for each in ("an-entirely-new-one", SECRET, OTHER)] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("content", ["", "\n\n", "with a blank", "x" * 70_000, None])
def test_a_broken_file_leaves_the_old_tokens(
    tmp_path: Path, content: str | None, caplog: Any
) -> None:
    """Senders that are refused drop their data: that must not happen for a slip. Said once for each
    change.
    """
    file = tmp_path / "tokens"
    file.write_text(SECRET, encoding="utf-8")
    tokens = BearerTokens([str(file)], look_s=0.0)
    os.remove(file) if content is None else file.write_text(content, encoding="utf-8")
    assert tokens.allow(f"Bearer {SECRET}")
    assert tokens.allow(f"Bearer {SECRET}")
    (line,) = caplog.messages
    assert "stay valid" in line


def _looped(file: Path) -> None:
    file.symlink_to(file)


PLANTED: list[Callable[[Path], None]] = [
    Path.mkdir,
    os.mkfifo,
    _looped,
    lambda file: file.symlink_to("/dev/zero"),
]


@pytest.mark.parametrize("plant", PLANTED, ids=["directory", "pipe", "loop", "device"])
def test_what_is_no_file_is_not_read_as_one(
    tmp_path: Path, plant: Callable[[Path], None], caplog: Any
) -> None:
    """Nor waited for, with everybody else who has a token: the old ones stay, and a start is
    refused.
    """
    file = tmp_path / "tokens"
    file.write_text(SECRET, encoding="utf-8")
    tokens = BearerTokens([str(file)], look_s=0.0)
    file.unlink()
    plant(file)
    assert [tokens.allow(f"Bearer {SECRET}") for _ in range(2)] == [True, True]
    assert len(caplog.messages) == 1
    with pytest.raises(ConfigError, match=r"token_files: .* cannot be read"):
        BearerTokens([str(file)])


def test_every_token_is_compared_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them fits, and if none does; by digests, so that the time shows no length or
    prefix of one.
    """
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(
        "hmac.compare_digest", lambda *pair: compared.append(pair) or pair[0] == pair[1]
    )
    file = tmp_path / "tokens"
    file.write_text("one\ntwo\nthree", encoding="utf-8")
    tokens = BearerTokens([str(file)])
    assert [
        tokens.allow(f"bearer {each}")
        for each in ("one", "three", "on", "onee", "ONE", "one\x85", "é", "x" * 9000)
    ] == [
        *(True, True),
        *(False,) * 6,
    ]
    assert len(compared) == 3 * 7  # the last is too long to be one
    assert {len(each) for pair in compared for each in pair} == {32}


@pytest.mark.parametrize("content", ["", "with a blank", "übel", "x" * 70_000, None])
def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, content: str | None) -> None:
    """In one line, which does not hold what the file holds."""
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        BearerTokens([str(file)], where="receivers.otlp.auth")
    assert str(caught.value).startswith("receivers.otlp.auth.token_files: ")
    assert not content or content not in str(caught.value)


def test_an_unset_variable_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it."""
    monkeypatch.delenv("SECOND", raising=False)
    with pytest.raises(ConfigError, match="token_env: the variable 'SECOND' is unset"):
        BearerTokens([], ["SECOND"])


@pytest.mark.parametrize(
    ("host", "options", "message"),
    [("0.0.0.0", {}, "every client"), ("127.0.0.1", {}, None), ("localhost", {}, None)],
)
def test_an_open_receiver_is_reported_at_the_start(
    start: Any, host: str, options: Any, message: str | None, caplog: Any
) -> None:
    """If other machines can reach it, and neither TLS nor a token is configured."""
    start(grpc=f"{host}:0", http=f"{host}:0", **options)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == (2 if message else 0)
    assert all(message in line for line in lines if message)
