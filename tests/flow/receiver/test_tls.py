"""Certificates on both protocols: trust, client certificates, and files that change."""

from __future__ import annotations

import logging
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval.errors import ConfigError
from otel_eval.sources.receiver.credentials import Certificates
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.sources.receiver.server import OtlpServer
from tests.support.certificates import Authority
from tests.support.waiting import LIMIT_S, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    # which `requests` prefers to what an exporter was given
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    return Authority(tmp_path)


def sent(exporter: Any) -> bool:
    """Whether an exporter could deliver a span, with its own words silenced."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    provider = TracerProvider(shutdown_on_exit=False)
    results: list[Any] = []
    export = exporter.export

    def keep(spans: Any) -> Any:
        results.append(export(spans))
        return results[-1]

    exporter.export = keep
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("a").end()
    provider.shutdown()
    return results[0].name == "SUCCESS"


def grpc_exporter(
    address: str,
    authority: Authority,
    client: dict[str, str] | None = None,
    timeout_s: float = LIMIT_S,
) -> Any:
    pair = (
        [Path(client[key]).read_bytes() for key in ("key_file", "cert_file")]
        if client
        else [None, None]
    )
    credentials = grpc.ssl_channel_credentials(authority.pem, *pair)
    return GrpcExporter(endpoint=f"https://{address}", credentials=credentials, timeout=timeout_s)


def http_exporter(
    address: str,
    authority: Authority,
    client: dict[str, str] | None = None,
    timeout_s: float = LIMIT_S,
) -> Any:
    pair = (
        {"client_certificate_file": client["cert_file"], "client_key_file": client["key_file"]}
        if client
        else {}
    )
    return HttpExporter(
        endpoint=f"https://{address}/v1/traces",
        certificate_file=authority.file,
        timeout=timeout_s,
        **pair,
    )


EXPORTERS = {"grpc": grpc_exporter, "http": http_exporter}


@pytest.fixture(params=EXPORTERS)
def protocol(request: Any) -> str:
    return str(request.param)


def both(**files: Any) -> dict[str, dict[str, Any]]:
    return {"grpc_tls": files, "http_tls": files}


def test_exporters_deliver_by_tls(
    start: Any, intake: Any, authority: Authority, protocol: str
) -> None:
    """With the authority that they are configured to trust."""
    _, bound = start(**both(**authority.issue("server")))
    assert sent(EXPORTERS[protocol](getattr(bound, protocol), authority))
    assert intake.names() == ["a"]


def test_a_server_of_another_authority_is_not_believed(
    start: Any, intake: Any, authority: Authority, tmp_path: Path
) -> None:
    """And that the handshake failed is counted."""
    receiver, bound = start(**both(**authority.issue("server")))
    assert not sent(http_exporter(bound.http, Authority(tmp_path), timeout_s=1.0))
    assert (intake.names(), receiver.counters.get("failed_handshakes") > 0) == ([], True)


def test_a_client_has_to_show_its_certificate(
    start: Any, intake: Any, authority: Authority, protocol: str
) -> None:
    """With `client_ca_file`: one without a certificate, or with one of another authority, delivers
    nothing.
    """
    other = Authority(Path(authority.file).parent)
    _, bound = start(**both(**authority.issue("server"), client_ca_file=authority.file))
    exporter = EXPORTERS[protocol]
    address = getattr(bound, protocol)
    assert not sent(exporter(address, authority, timeout_s=1.0))
    assert not sent(exporter(address, authority, other.issue("unknown"), timeout_s=1.0))
    assert intake.names() == []
    assert sent(exporter(address, authority, authority.issue("client")))
    assert intake.names() == ["a"]


def shown(address: str) -> str:
    """The certificate that a server shows."""
    host, port = address.rsplit(":", 1)
    return ssl.get_server_certificate((host, int(port)), timeout=300)


def test_a_new_certificate_is_used_without_a_restart(
    start: Any, authority: Authority, protocol: str
) -> None:
    """By connections that are opened after the files changed."""
    _, bound = start(**both(**authority.issue("server"), reload_interval=0.05))
    before = shown(getattr(bound, protocol))
    authority.issue("server")
    wait_until(lambda: shown(getattr(bound, protocol)) != before)
    assert sent(EXPORTERS[protocol](getattr(bound, protocol), authority))


def test_a_broken_certificate_leaves_the_old_one(
    start: Any, authority: Authority, protocol: str, caplog: Any
) -> None:
    """Logged in one line, once for each change."""
    files = authority.issue("server")
    # each handshake looks at the file
    _, bound = start(**both(**files, reload_interval=1e-6))
    before = shown(getattr(bound, protocol))
    Path(files["cert_file"]).write_text("half a certifi", encoding="ascii")
    wait_until(lambda: shown(getattr(bound, protocol)) == before and bool(caplog.messages))
    for _ in range(3):
        assert shown(getattr(bound, protocol)) == before
    (line,) = caplog.messages
    assert "stays in use" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("since_s", "until_s", "problem"),
    [(-20, -10, "has expired"), (3600, 7200, "is not valid before")],
)
def test_a_certificate_that_is_not_valid_leaves_the_valid_one(
    start: Any,
    authority: Authority,
    protocol: str,
    since_s: float,
    until_s: float,
    problem: str,
    caplog: Any,
) -> None:
    """Logged in one line, once for each change; the next valid one is used."""
    receiver, bound = start(
        **{f"{protocol}_tls": {**authority.issue("server"), "reload_interval": 1e-6}}
    )
    before, not_after = shown(getattr(bound, protocol)), receiver.not_after()
    authority.issue("server", since_s, until_s)
    wait_until(lambda: shown(getattr(bound, protocol)) == before and bool(caplog.messages))
    for _ in range(3):
        assert shown(getattr(bound, protocol)) == before
    (line,) = caplog.messages
    assert f"receivers.otlp.protocols.{protocol}.tls.cert_file" in line
    assert problem in line
    assert "stays in use" in line
    assert receiver.not_after() == not_after
    authority.issue("server", until_s=7200)
    wait_until(lambda: shown(getattr(bound, protocol)) != before)
    (key,) = receiver.not_after()
    assert receiver.not_after()[key] - not_after[key] == pytest.approx(3600, abs=60)


def test_a_certificate_is_used_as_soon_as_it_is_valid(
    start: Any, authority: Authority, protocol: str
) -> None:
    """Although its file does not change then."""
    _, bound = start(**{f"{protocol}_tls": {**authority.issue("server"), "reload_interval": 0.02}})
    before = shown(getattr(bound, protocol))
    authority.issue("server", since_s=2)
    wait_until(lambda: shown(getattr(bound, protocol)) != before)


def test_where_no_certificate_is_valid_the_newer_one_is_used(
    start: Any, authority: Authority, protocol: str, caplog: Any
) -> None:
    """At the start and later, each with a warning."""
    _, bound = start(
        **{f"{protocol}_tls": {**authority.issue("server", -20, -10), "reload_interval": 0.02}}
    )
    before = shown(getattr(bound, protocol))
    authority.issue("server", -20, -5)
    wait_until(lambda: shown(getattr(bound, protocol)) != before)
    assert [line.rpartition("; ")[2] for line in caplog.messages] == [
        "clients refuse it: renew it"
    ] * 2


@pytest.mark.parametrize(
    "content",
    ["", "\n", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_broken_authorities_leave_the_old_ones(
    start: Any,
    intake: Any,
    authority: Authority,
    protocol: str,
    content: str,
    tmp_path: Path,
    caplog: Any,
    capfd: Any,
) -> None:
    """An empty file too: no client is locked out or let in by it, and no thread ends in a
    traceback.
    """
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(Path(authority.file).read_bytes())
    _, bound = start(
        **both(**authority.issue("server"), client_ca_file=str(authorities), reload_interval=0.05)
    )
    authorities.write_text(content, encoding="ascii")
    address = getattr(bound, protocol)
    client = authority.issue("client")

    def is_noticed() -> bool:  # by a handshake
        assert sent(EXPORTERS[protocol](address, authority, client))
        return any("authorities" in line and "stays in use" in line for line in caplog.messages)

    wait_until(is_noticed)
    assert not sent(EXPORTERS[protocol](address, authority, timeout_s=1.0))
    assert set(intake.names()) == {"a"}
    assert "Traceback" not in capfd.readouterr().err


def test_old_versions_are_refused(authority: Authority) -> None:
    """TLS 1.2 is the lowest."""
    context = Certificates("tls", **authority.issue("server")).current().context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_plain_text_to_a_secure_port_breaks_nothing(
    start: Any, intake: Any, authority: Authority, capfd: Any
) -> None:
    """The next client is served; nothing is written to stderr."""
    _, bound = start(**both(**authority.issue("server")))
    host, port = bound.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        connection.settimeout(300)
        while connection.recv(100):
            pass
    assert sent(http_exporter(bound.http, authority))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"cert_file": "/nowhere"}, "tls.cert_file: '/nowhere' cannot be read"),
        ({"key_file": "/nowhere"}, "tls.key_file: '/nowhere' cannot be read"),
        ({"client_ca_file": "/nowhere"}, "tls.client_ca_file: '/nowhere' cannot be read"),
        ({"client_ca_file": __file__}, "holds no certificate"),
        ({"client_ca_file": "/dev/null"}, "no regular file"),
        ({"key_file": __file__}, "no certificate with its key in PEM, without a password"),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(
    intake: Any, authority: Authority, protocol: str, broken: dict[str, str], message: str
) -> None:
    """In one line that names the key and the file, and nothing listens."""
    files = {**authority.issue("server"), **broken}
    opening = {protocol: partial(Certificates, f"receivers.otlp.protocols.{protocol}.tls", **files)}
    handler = DecodingHandler(intake, ReceiverLimits())
    receiver = OtlpServer(handler, **{protocol: "127.0.0.1:0"}, certificates=opening)
    with pytest.raises(ConfigError, match=r"^receivers\.otlp\.protocols\." + protocol) as caught:
        receiver.start()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_silent_handshake_delays_no_other_client(
    start: Any, intake: Any, authority: Authority
) -> None:
    """Connections that never say hello wait on threads of their own."""
    _, bound = start(**both(**authority.issue("server")))
    host, port = bound.http.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(20)]
    try:
        assert sent(http_exporter(bound.http, authority))
    finally:
        for each in silent:
            each.close()
