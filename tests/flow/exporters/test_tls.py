"""TLS of exporters and judges: authorities, client certificates, and where the files are named."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import ConfigError, EvalSpanProcessor
from otel_eval.app.checking import check
from otel_eval.app.judge_clients import build_judges
from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.native import VERSION
from otel_eval.otlp.client import OtlpClient
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.otlp.tls import ClientTls
from otel_eval.scorers.judge import JudgeError
from tests.support import otlp_backend as backends
from tests.support import scripted_judge as scripted
from tests.support.certificates import Authority

RECEIVERS = {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}}
QUICK = {"decision_wait": "100ms", "decision_wait_partial": "200ms"}
EVALUATIONS = [{"name": "policy", "scorers": [{"type": "tool_errors"}]}]
PROTOCOLS = ("grpc", "http/protobuf")
HEADERS = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # which `requests` prefers to what an exporter was given
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    return Authority(tmp_path)


def server_context(files: dict[str, str], client_ca: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.load_cert_chain(files["cert_file"], files["key_file"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def server_credentials(files: dict[str, str], client_ca: str) -> Any:
    pair = (Path(files["key_file"]).read_bytes(), Path(files["cert_file"]).read_bytes())
    return grpc.ssl_server_credentials(
        [pair], Path(client_ca).read_bytes(), require_client_auth=True
    )


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def backend(authority: Any, protocol: str) -> Iterator[Any]:
    """A backend that shows a certificate of the authority and asks its clients for one."""
    make = server_credentials if protocol == "grpc" else server_context
    with backends.BACKENDS[protocol](make(authority.issue("server"), authority.file)) as running:
        yield running


def run_agent(provider: TracerProvider) -> None:
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span(
        "agent", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        tracer.start_span(
            "tool",
            attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
        ).end()


def traced() -> bytes:
    """The request of one run."""
    provider, memory = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    run_agent(provider)
    return bytes(encode_spans(memory.get_finished_spans()).SerializeToString())


def serve(otlp: dict[str, Any]) -> Any:
    return load(
        {
            "receivers": RECEIVERS,
            "traces": QUICK,
            "evaluations": EVALUATIONS,
            "exporters": {"otlp": otlp},
        }
    )


def served(otlp: dict[str, Any], backend: Any) -> bool:
    """Whether `serve` delivers every signal of one run."""
    server = Server(serve(otlp))
    try:
        # Not by an exporter of the SDK, which would read the same variables.
        request = urllib.request.Request(
            f"http://{server.start().http}/v1/traces", traced(), headers=HEADERS
        )
        urllib.request.urlopen(request, timeout=300).close()
        backend.wait(lambda: backend.got["logs"] and backend.got["traces"])
    finally:
        server.stop(60.0 if backend.got["logs"] else 2.0)
    return all(backend.got.values())  # metrics leave at the end at the latest


def in_process(otlp: dict[str, Any], backend: Any) -> bool:
    """Whether a program that scores itself delivers every signal of one run."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        EvalSpanProcessor({"evaluations": EVALUATIONS, "exporters": {"otlp": otlp}})
    )
    run_agent(provider)
    provider.force_flush(300_000)
    provider.shutdown()
    return all(backend.got.values())


WAYS = {"serve": served, "in process": in_process}


@pytest.mark.parametrize("way", WAYS)
def test_results_reach_an_endpoint_that_asks_for_a_certificate(
    authority: Any, backend: Any, protocol: str, way: str
) -> None:
    """With the files of `exporters.otlp.tls`, for logs, metrics and spans."""
    tls = {"ca_file": authority.file, **authority.issue("client")}
    assert WAYS[way]({"endpoint": backend.url, "protocol": protocol, "tls": tls}, backend)


@pytest.mark.parametrize("way", WAYS)
def test_the_environment_names_the_files(
    authority: Any, backend: Any, protocol: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the SDK's exporters read it: a variable of a signal goes before the one for all."""
    client = authority.issue("client")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem")
    for signal in ("TRACES", "LOGS", "METRICS"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}_CERTIFICATE", authority.file)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", client["cert_file"])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", client["key_file"])
    assert WAYS[way]({"endpoint": backend.url, "protocol": protocol}, backend)


def test_the_configuration_goes_before_the_environment(
    authority: Any, backend: Any, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the authorities and for the certificate with its key."""
    for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", "/no/such.pem")
    tls = {"ca_file": authority.file, **authority.issue("client")}
    assert served({"endpoint": backend.url, "protocol": protocol, "tls": tls}, backend)


def test_metrics_of_the_receiver_use_tls(
    authority: Any, backend: Any, protocol: str, tmp_path: Path
) -> None:
    """`telemetry.otlp` takes the same block."""
    tls = {"ca_file": authority.file, **authority.issue("client")}
    metrics = {"endpoint": backend.url, "protocol": protocol, "tls": tls, "interval": "100ms"}
    exporters = {"jsonl": {"path": str(tmp_path / "results.jsonl")}}
    server = Server(
        load({"receivers": RECEIVERS, "telemetry": {"otlp": metrics}, "exporters": exporters})
    )
    try:
        server.start()
        assert backend.wait(lambda: backend.got["metrics"])
    finally:
        server.stop(2)


def test_the_ends_of_certificates_are_metrics(authority: Any, backend: Any, protocol: str) -> None:
    """On the page for Prometheus and by OTLP."""
    tls = {"ca_file": authority.file, **authority.issue("client")}
    receiver = {
        "otlp": {
            "protocols": {"http": {"endpoint": "127.0.0.1:0", "tls": authority.issue("server")}}
        }
    }
    own = {
        "endpoint": "127.0.0.1:0",
        "otlp": {"endpoint": backend.url, "protocol": protocol, "tls": tls},
    }
    exporters = {
        "otlp": {"endpoint": backend.url, "protocol": protocol, "signals": ["logs"], "tls": tls}
    }
    server = Server(load({"receivers": receiver, "telemetry": own, "exporters": exporters}))
    try:
        server.start()
        text = (
            urllib.request.urlopen(f"http://{server.admin.address}/metrics", timeout=300)
            .read()
            .decode()
        )
    finally:
        server.stop(2)
    ends = dict(
        re.findall(
            r"^otel_eval_(\w+_certificate_not_after_seconds\{.*\}) (\d+)$", text, re.MULTILINE
        )
    )
    assert ends.keys() == {
        'receiver_certificate_not_after_seconds{receiver="otlp",transport="http"}'
    }
    assert [round((int(end) - time.time()) / 60) for end in ends.values()] == [60]
    (request,) = map(ExportMetricsServiceRequest.FromString, backend.got["metrics"])
    (group,) = request.resource_metrics[0].scope_metrics
    assert (group.scope.name, group.scope.version) == ("otel_eval", VERSION)
    sent = {each.name: each for each in group.metrics}
    for name, end in ends.items():
        metric = sent[f"otel_eval_{name.partition('_seconds{')[0]}"]
        assert (metric.unit, metric.WhichOneof("data")) == ("s", "gauge")
        assert [point.as_int for point in metric.gauge.data_points] == [int(end)]


@pytest.mark.parametrize(("protocol", "way"), [("grpc", "serve"), ("http/protobuf", "in process")])
def test_a_server_of_another_authority_gets_nothing(
    authority: Any,
    backend: Any,
    protocol: str,
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although the certificate of the client is accepted there."""
    tls = {"ca_file": Authority(tmp_path).file, **authority.issue("client")}
    monkeypatch.setattr(
        backend, "wait", lambda holds, timeout_s=1.0: type(backend).wait(backend, holds, 1.0)
    )
    assert not WAYS[way](
        {"endpoint": backend.url, "protocol": protocol, "tls": tls, "timeout": "500ms"}, backend
    )
    assert not any(backend.got.values())


def test_the_reason_names_a_certificate_that_cannot_be_verified(
    backend: Any, protocol: str, tmp_path: Path
) -> None:
    """Over gRPC, too, whose code is the same as that of a server that is down."""
    tls = ClientTls.from_config("tls", {"ca_file": Authority(tmp_path).file})
    client = OtlpClient(Endpoint(endpoint=backend.url, protocol=protocol, tls=tls), "logs")  # type: ignore[arg-type]
    result = client.send(b"")
    client.close()
    assert (result.status, "CERTIFICATE_VERIFY_FAILED" in result.reason) == (
        "retryable",
        True,
    ), result.reason


HTTPS = {"endpoint": "https://127.0.0.1:1"}
NOWHERE = "'/no/such.pem' cannot be read (No such file or directory); name a PEM file"


@pytest.mark.parametrize(
    ("tls", "line"),
    [
        ({"ca_file": "/no/such.pem"}, f"exporters.otlp.tls.ca_file: {NOWHERE}"),
        (
            {"ca_file": "{here}"},
            "exporters.otlp.tls.ca_file: '{here}' holds no certificate in PEM; name a PEM file",
        ),
        (
            {"cert_file": "/no/such.pem", "key_file": "{key}"},
            f"exporters.otlp.tls.cert_file: {NOWHERE}",
        ),
        (
            {"cert_file": "{cert}", "key_file": "/no/such.pem"},
            f"exporters.otlp.tls.key_file: {NOWHERE}",
        ),
        (
            {"cert_file": "{cert}", "key_file": "{other}"},
            (
                "exporters.otlp.tls.cert_file: '{cert}' and exporters.otlp.tls.key_file: '{other}'"
                " hold no certificate with its key in PEM, without a password; name a pair that"
                " belongs together"
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(
    authority: Any, protocol: str, tls: dict[str, str], line: str
) -> None:
    """In one line with key, value and remedy: in `check`, in `serve` and in process."""
    client = authority.issue("client")
    places = {"{here}": __file__, "{cert}": client["cert_file"], "{key}": client["key_file"]}
    places["{other}"] = authority.issue("other")["key_file"]
    for name, place in places.items():
        tls = {key: value.replace(name, place) for key, value in tls.items()}
        line = line.replace(name, place)
    config = serve({**HTTPS, "protocol": protocol, "tls": tls})
    for start in (check, Server, EvalSpanProcessor):
        with pytest.raises(ConfigError) as caught:
            start(config)
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"CERTIFICATE": "/no/such.pem"}, f"OTEL_EXPORTER_OTLP_CERTIFICATE: {NOWHERE}"),
        ({"LOGS_CERTIFICATE": "/no/such.pem"}, f"OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE: {NOWHERE}"),
        (
            {"CLIENT_KEY": "/no/such.pem"},
            (
                "OTEL_EXPORTER_OTLP_CLIENT_KEY: '/no/such.pem' is a key without a certificate; name"
                " both or neither"
            ),
        ),
    ],
)
def test_a_variable_that_cannot_be_used(
    protocol: str,
    variables: dict[str, str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    """It stops commands; a program that scores itself runs on, with one warning."""
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    config = serve({**HTTPS, "protocol": protocol, "signals": ["logs"]})
    for start in (check, Server):
        with pytest.raises(ConfigError) as caught:
            start(config)
        assert str(caught.value) == line
    EvalSpanProcessor(config).shutdown()
    assert [each for each in caplog.messages if "OTEL_EXPORTER" in each] == [
        f"{line}; it is not used"
    ]


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (
            {"exporters": {"otlp": {"endpoint": "http://h", "tls": {"ca_file": "x"}}}},
            (
                "exporters.otlp.tls: files are named, but 'http://h' is not an https:// URL; write"
                " https://"
            ),
        ),
        (
            {"telemetry": {"otlp": {"endpoint": "http://h", "tls": {"ca_file": "x"}}}},
            (
                "telemetry.otlp.tls: files are named, but 'http://h' is not an https:// URL; write"
                " https://"
            ),
        ),
        (
            {"judges": {"main": {"base_url": "http://h", "model": "m", "tls": {"ca_file": "x"}}}},
            (
                "judges.main.tls: files are named, but 'http://h' is not an https:// URL; write"
                " https://"
            ),
        ),
        (
            {
                "judges": {
                    "main": {"base_url": "https://h", "model": "m", "tls": {"cert_file": "x"}}
                }
            },
            "judges.main.tls: cert_file is given without key_file; name both or neither",
        ),
    ],
)
def test_a_block_that_contradicts_itself(config: dict[str, Any], line: str) -> None:
    """Is refused when the configuration is read."""
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert line in str(caught.value)


@pytest.fixture
def judge(authority: Any) -> Iterator[Any]:
    """A judge's endpoint that shows a certificate of the authority and asks its clients for one."""
    endpoint = scripted.Endpoint(
        lambda _: scripted.score(1), server_context(authority.issue("server"), authority.file)
    )
    yield endpoint
    endpoint.stop()


def asked(judge: Any, tls: dict[str, str]) -> str:
    judge_options = {"base_url": judge.url, "model": "m", "timeout": "5m", "retries": 0, "tls": tls}
    return str(asyncio.run(build_judges(load({"judges": {"main": judge_options}}))["main"]("?")))


def test_a_judge_that_asks_for_a_certificate(authority: Any, judge: Any, tmp_path: Path) -> None:
    """Gets it by `judges.NAME.tls`; no request is sent to a judge of another authority."""
    client = authority.issue("client")
    assert "because" in asked(judge, {"ca_file": authority.file, **client})
    for tls in ({"ca_file": Authority(tmp_path).file, **client}, {"ca_file": authority.file}):
        with pytest.raises(JudgeError, match="cannot be reached"):
            asked(judge, tls)
    assert len(judge.requests) == 1


def test_a_judge_whose_files_cannot_be_used() -> None:
    """Stops the start, as every other problem of a judge does."""
    judge_options = {
        "base_url": "https://127.0.0.1:1",
        "model": "m",
        "tls": {"ca_file": "/no/such.pem"},
    }
    with pytest.raises(ConfigError) as caught:
        check(load({"judges": {"main": judge_options}}))
    assert str(caught.value) == f"judges.main.tls.ca_file: {NOWHERE}"
