"""State and counters of judges' clients when the configuration or the key is reloaded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval.admin import Readiness, status_fields
from otel_eval.admin.metrics import prometheus_text, self_families
from otel_eval.app.build import EngineBuilder
from otel_eval.app.server import Server
from otel_eval.config import EvalConfig, load
from otel_eval.counters import Counters, count_name
from otel_eval.errors import ConfigError
from tests.support import scripted_judge as scripted
from tests.support.waiting import wait_until

SCHEMA = {"properties": {"score": {"type": "number"}}}
USAGE = {"prompt_tokens": 70, "completion_tokens": 8, "total_tokens": 78}


def config_of(endpoint: Any, inline: bool = False, **keys: Any) -> EvalConfig:
    """Return a configuration with one scorer and its judge at the endpoint."""
    judge = {"base_url": endpoint.url, "model": "m", "timeout": "5m", "retries": 0, **keys}
    scorer = {
        "type": "llm_judge",
        "judge": judge if inline else "main",
        "criteria": "It looks things up.",
    }
    evaluations = [{"name": "e", "scorers": [scorer]}]
    return load(
        {"evaluations": evaluations}
        if inline
        else {"judges": {"main": judge}, "evaluations": evaluations}
    )


def built(engines: EngineBuilder, config: EvalConfig) -> Any:
    """Return the client that the scorer of the configuration uses."""
    return engines.build(config).evaluations[0].scorers[0].judge  # type: ignore[attr-defined]


@pytest.mark.parametrize("inline", [False, True])
def test_a_client_stays_while_its_endpoint_does(serve: Callable[..., Any], inline: bool):
    """A change of any key gives a new client; an invalid configuration changes nothing."""
    endpoint, engines = serve(scripted.score(1)), EngineBuilder()
    first = built(engines, config_of(endpoint, inline))
    assert built(engines, config_of(endpoint, inline)) is first
    with pytest.raises(ConfigError):
        built(engines, config_of(endpoint, inline, api_key_env="NO_SUCH_KEY_IS_SET"))
    assert built(engines, config_of(endpoint, inline)) is first
    assert built(engines, config_of(endpoint, inline, per_minute=3)) is not first


def test_equal_endpoints_keep_clients_of_their_own(serve: Callable[..., Any]):
    """Two names have separate rate limits."""
    endpoint, engines = serve(scripted.score(1)), EngineBuilder()
    judge = {"base_url": endpoint.url, "model": "m"}
    scorers = [{"type": "llm_judge", "name": name, "judge": name, "criteria": "x"} for name in "ab"]
    config = load(
        {"judges": {"a": judge, "b": judge}, "evaluations": [{"name": "e", "scorers": scorers}]}
    )

    def both() -> list[Any]:
        return [scorer.judge for scorer in engines.build(config).evaluations[0].scorers]  # type: ignore[attr-defined]

    first = both()
    assert first[0] is not first[1]
    assert [id(each) for each in both()] == [id(each) for each in first]


def test_a_client_that_was_replaced_closes_its_connections(serve: Callable[..., Any]):
    """They are closed after the answers in flight, and after those to later requests."""
    endpoint, engines = serve(scripted.score(0.5, after_s=0.2)), EngineBuilder()
    first = built(engines, config_of(endpoint))

    async def asked() -> list[int]:
        waiting = asyncio.create_task(first.structured("one", SCHEMA))
        while not endpoint.requests:
            await asyncio.sleep(0.01)
        built(engines, config_of(endpoint, per_minute=3))
        open_then = [endpoint.connections]
        assert json.loads(await waiting)["score"] == 0.5
        assert json.loads(await first.structured("two", SCHEMA))["score"] == 0.5
        await asyncio.to_thread(wait_until, lambda: endpoint.connections == 0)
        return [*open_then, endpoint.connections]

    assert asyncio.run(asked()) == [1, 0]


def test_a_key_is_read_again_when_its_file_changes(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The next attempt uses the new key; an empty file keeps the last key in use and is reported
    once.
    """
    endpoint, path = serve(scripted.score(1)), tmp_path / "key"
    path.write_text("first-key\n", encoding="utf-8")
    judge = built(EngineBuilder(), config_of(endpoint, api_key_file=str(path)))
    for number, text in enumerate(["first-key\n", "another-key\n", "", "", "the-last-key\n"]):
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        asyncio.run(judge.structured(str(number), SCHEMA))
    sent = [headers["authorization"].removeprefix("Bearer ") for headers in endpoint.headers]
    assert sent == ["first-key", "another-key", "another-key", "another-key", "the-last-key"]
    assert [
        record.getMessage().count("the key read before stays in use") for record in caplog.records
    ] == [1]
    assert "another-key" not in caplog.text


def test_attempts_retries_hits_and_tokens_are_counted(serve: Callable[..., Any]):
    """Counters are kept per judge, also when its endpoint changes; unreported tokens are not
    counted as 0.
    """
    half = json.dumps({"score": 0.5})
    endpoint = serve(
        scripted.Reply(status=503),
        scripted.answer(half, usage=USAGE),
        scripted.answer("no", usage=USAGE),
        scripted.answer(half),
    )
    tally = Counters()
    engines = EngineBuilder(tally)
    for retries in (1, 2):
        judge = built(engines, config_of(endpoint, retries=retries))
        for question in ("one", "one", "two"):
            asyncio.run(judge.structured(f"{question} {retries}", SCHEMA))
    assert tally.snapshot() == {
        count_name("judges.attempts", judge="main"): 6,
        count_name("judges.cache_hits", judge="main"): 2,
        count_name("judges.responses_without_usage", judge="main"): 3,
        count_name("judges.retries", judge="main"): 2,
        count_name("judges.tokens", judge="main", type="input"): 140,
        count_name("judges.tokens", judge="main", type="output"): 16,
    }
    assert (
        status_fields(tally.snapshot(), Readiness(True), uptime_s=1.0)["counts"][
            "judges.attempts{judge=main}"
        ]
        == 6
    )
    text = prometheus_text(self_families(tally.snapshot()))
    assert 'otel_eval_judges_tokens_total{judge="main",type="input"} 140\n' in text


@pytest.mark.parametrize(
    "usage", ["many", [], {"prompt_tokens": -1, "completion_tokens": True}, {"prompt_tokens": "7"}]
)
def test_usage_that_is_none_counts_nothing(serve: Callable[..., Any], usage: Any):
    """Endpoints may send any value as `usage`."""
    tally = Counters()
    judge = built(
        EngineBuilder(tally), config_of(serve(scripted.answer('{"score": 1}', usage=usage)))
    )
    asyncio.run(judge.structured("one", SCHEMA))
    assert tally.get("judges.tokens") == 0
    assert tally.get("judges.responses_without_usage") == 1


@pytest.fixture
def receiver(serve: Callable[..., Any], tmp_path: Path) -> Iterator[tuple[Any, Server, str]]:
    """Yield a judge's endpoint, a receiver that uses it, and the receiver's address."""
    endpoint = serve(scripted.score(0.5))
    server = Server(_receiving(endpoint, tmp_path))
    bound = server.start()
    yield endpoint, server, f"http://{bound.http}/v1/traces"
    server.stop(1.0)


def _receiving(endpoint: Any, tmp_path: Path) -> EvalConfig:
    receivers = {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}}
    more = {
        "receivers": receivers,
        "exporters": {"jsonl": {"path": str(tmp_path / "out.jsonl")}},
        "traces": {"decision_wait": 0.1},
    }
    return load(
        config_of(endpoint, per_minute=3).model_dump(include={"judges", "evaluations"}) | more
    )


def _send(address: str, output: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(address)))
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": output}]}]
        ),
    }
    with provider.get_tracer("t").start_as_current_span("invoke_agent a", attributes=attributes):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        with provider.get_tracer("t").start_as_current_span("execute_tool search", attributes=tool):
            pass
    provider.shutdown()


def test_a_reload_without_a_change_keeps_answers_and_budget(
    receiver: tuple[Any, Server, str], tmp_path: Path
):
    """Cached answers and `per_minute` are kept across reloads."""
    endpoint, server, address = receiver

    def state() -> tuple[int, int, int]:
        counts = server.counts()
        hits = counts.get(count_name("judges.cache_hits", judge="main"), 0)
        return len(endpoint.requests), hits, counts["late_pending"]

    for output, expected in (
        ("one", (1, 0, 0)),
        ("one", (1, 1, 0)),
        ("two", (2, 1, 0)),
        ("three", (3, 1, 0)),
        ("four", (3, 1, 1)),
        ("five", (3, 1, 2)),
    ):
        _send(address, output)
        wait_until(lambda expected=expected: state() == expected)
        assert server.reload(_receiving(endpoint, tmp_path)) == []
