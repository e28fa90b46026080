"""Over TLS, with a certificate of one's own authority and a client certificate."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support import otlp_backend as backends

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for 127.0.0.1 that is its own authority, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("not run: openssl is not installed")
    folder = tmp_path_factory.mktemp("pems")
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


def test_a_client_certificate_is_shown(pems: Path) -> None:
    """The backend asks for one, and gets the spans."""
    backend = backends.Backend()

    def export(body: bytes, context: Any) -> bytes:
        backend.take("traces", body, ())
        return b""

    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    key, cert = (pems / "key.pem").read_bytes(), (pems / "cert.pem").read_bytes()
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)], cert, require_client_auth=True)
    )
    server.start()
    backend.url = f"https://127.0.0.1:{port}"
    tls = {
        "ca_file": str(pems / "cert.pem"),
        "cert_file": str(pems / "cert.pem"),
        "key_file": str(pems / "key.pem"),
    }
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="step", flags=0x100)
    span.trace_id, span.span_id, span.parent_span_id = b"t" * 16, b"s" * 8, b"p" * 8
    try:
        with (
            backends.forwarding(backend, forward={"tls": tls}) as (_, bound),
            grpc.insecure_channel(bound.grpc) as channel,
        ):
            channel.unary_unary(f"/{SERVICE}/Export")(request.SerializeToString(), timeout=300)
            assert backend.wait(lambda: backend.got["traces"])
    finally:
        server.stop(0.2).wait(300)
    assert backend.got["traces"] == [request.SerializeToString()]
