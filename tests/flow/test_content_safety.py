"""Secrets are in no log line, page or file; content of spans is only where results are."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor
from tests.support.fork_server import FORKS, ForkServer
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).parents[2]
SECRETS = {
    name: f"s3cret-{name}-7f3a" for name in ("token", "header", "metrics", "forward", "judge")
}

CONFIG = """
receivers:
  otlp:
    protocols: {{grpc: {{endpoint: "127.0.0.1:0"}}, http: {{endpoint: "127.0.0.1:0"}}}}
    auth: {{token_files: [{tokens}], token_env: [TOKEN]}}
exporters:
  jsonl: {{path: {results}}}
  otlp: {{endpoint: "http://127.0.0.1:1", headers: {{authorization: "${{env:HEADER}}"}},
    timeout: 100ms}}
  forward: {{endpoint: "http://127.0.0.1:1", headers: {{authorization: "{forward}"}},
    timeout: 100ms}}
telemetry:
  endpoint: "127.0.0.1:0"
  otlp: {{endpoint: "http://127.0.0.1:1", headers: {{authorization: "{metrics}"}},
    timeout: 100ms, interval: 100ms}}
{more}
"""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    (tmp_path / "tokens").write_text(SECRETS["token"], encoding="utf-8")

    def write(more: str = "") -> Path:
        path = tmp_path / "eval.yaml"
        places = {"tokens": tmp_path / "tokens", "results": tmp_path / "results.jsonl"}
        path.write_text(
            CONFIG.format(
                more=more, **places, **{k: v for k, v in SECRETS.items() if k != "token"}
            ),
            encoding="utf-8",
        )
        return path

    return write


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "TOKEN": SECRETS["token"] + "x",
    "HEADER": SECRETS["header"],
}


def asked(address: str, path: str, token: str | None = None, body: bytes | None = None) -> str:
    """The headers and the body of an answer, whatever its status."""
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    request = urllib.request.Request(f"http://{address}{path}", body, headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=300
        ) as answer:
            return f"{answer.headers} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers} {error.read().decode()}"


def leaked(text: str) -> list[str]:
    return [name for name, secret in SECRETS.items() if secret in text]


def test_a_receiver_with_secrets_tells_none(config: Any, tmp_path: Path) -> None:
    """In what it writes, in its answers and on its pages, while everything that it is to reach is
    down.
    """
    said = []
    with FORKS.start_piped(["serve", "--config", str(config())], tmp_path, ENVIRONMENT) as process:
        line = ""
        while "ready" not in line:
            line = process.stderr.readline()
            said.append(line)
        places = dict(re.findall(r"(\w+)=(\S+)", line))
        span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "../../../../etc/passwd"}
        trace = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
        said += [
            asked(places["http"], "/v1/traces", token, trace)
            for token in (None, "wrong", SECRETS["token"])
        ]
        said += [
            asked(places["telemetry"], path)
            for path in ("/status", "/metrics", "/healthz", "/other")
        ]
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=LIMIT_S)
    assert "Bearer" in "".join(said)  # the refusal was seen
    assert leaked("".join(said)) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "eval.yaml",
        "results.jsonl",
        "tokens",
    ]


@pytest.mark.parametrize(
    "more", ["", "unknown: 1", "traces: {decision_wait: -1}", "evaluations: 3"]
)
def test_a_check_shows_none(
    config: Any, tmp_path: Path, fork_server: ForkServer, more: str
) -> None:
    """Of a configuration that is good, and of one that is not."""
    done = fork_server.run(["check", str(config(more))], tmp_path, ENVIRONMENT)
    assert done.returncode == (2 if more else 0)
    assert leaked(done.stdout + done.stderr) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"receivers": {"otlp": {"auth": {"token_env": ["s3cret-token-7f3a"]}}}},
        {"receivers": {"otlp": {"auth": {"token": "s3cret-token-7f3a"}}}},
        {"exporters": {"otlp": {"endpoint": "http://x", "headers": "s3cret-header-7f3a"}}},
        {"exporters": {"otlp": {"endpoint": "http://x", "headers": {"k": ["s3cret-header-7f3a"]}}}},
        {"exporters": {"forward": {"endpoint": "http://x", "headers": ["s3cret-forward-7f3a"]}}},
        {
            "telemetry": {
                "otlp": {"endpoint": "http://x", "headers": {"k": {"x": "s3cret-metrics-7f3a"}}}
            }
        },
    ],
)
def test_an_error_message_quotes_none(broken: Any) -> None:
    """Where the secret itself is what is wrong."""
    from otel_eval.config import load
    from otel_eval.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        load(broken)
    assert leaked(str(caught.value)) == []


IN_URL = [
    "http://me:s3cret-header-7f3a@127.0.0.1:1",
    "http://s3cret-token-7f3a@127.0.0.1:1",
    "http://127.0.0.1:1/?key=s3cret-judge-7f3a",
]


@pytest.mark.parametrize("url", IN_URL)
@pytest.mark.parametrize("command", [["check"], ["serve", "--config"]])
def test_credentials_in_a_url_are_refused_in_one_line_each(
    tmp_path: Path, fork_server: ForkServer, command: list[str], url: str
) -> None:
    """With the key and the remedy, by `check` and by `serve`."""
    path = tmp_path / "eval.yaml"
    to = {"endpoint": url}
    path.write_text(
        json.dumps({"exporters": {"otlp": to, "forward": to}, "telemetry": {"otlp": to}}),
        encoding="utf-8",
    )
    done = fork_server.run([*command, str(path)], tmp_path, ENVIRONMENT)
    lines = done.stderr.splitlines()
    assert (done.returncode, leaked(done.stdout + done.stderr)) == (2, [])
    for key in ("exporters.otlp", "exporters.forward", "telemetry.otlp"):
        [line] = [
            line
            for line in lines
            if f"{key}.endpoint: the URL holds a user, a password or a query" in line
        ]
        assert "write headers" in line


def test_credentials_in_a_url_are_redacted_in_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """Where they come from a variable of the environment: a warning, nothing raised, nothing shown
    when the export fails.
    """
    providers = []
    for url, protocol in product(IN_URL, ["grpc", "http/protobuf"]):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        exporter = {
            "endpoint": "${env:OTEL_EXPORTER_OTLP_ENDPOINT}",
            "protocol": protocol,
            "signals": ["logs"],
            "timeout": "200ms",
        }
        config = {"traces": {"decision_wait": 0}, "exporters": {"otlp": exporter}}
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(EvalSpanProcessor(config))
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
        with provider.get_tracer("agent").start_as_current_span(
            "invoke_agent a", attributes=attributes
        ):
            pass
        providers.append(provider)
    with ThreadPoolExecutor(len(providers)) as pool:  # each waits until no attempt is left
        list(pool.map(TracerProvider.shutdown, providers))
    assert leaked(caplog.text + "".join(capfd.readouterr())) == []
    warning = "exporters.otlp.endpoint: the URL holds a user, a password or a query"
    for expected in (warning, "otlp.logs did not deliver"):
        messages = [message for message in caplog.messages if expected in message]
        assert len(messages) == len(providers), messages
