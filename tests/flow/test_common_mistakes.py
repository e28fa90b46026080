"""Twelve common mistakes of new users: each program runs as a user would run it, and the message
names the mistake.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.fork_server import FORKS
from tests.support.free_port import free_port

ROOT = Path(__file__).parents[2]

# An agent as a user's program has it; `processor` is what the test adds.
PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from otel_eval import EvalSpanProcessor

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
RESULTS = {"exporters": {"jsonl": {"path": "-"}}}

def agent(tracer, *tools, name="helper"):
    span = tracer.start_span(
        f"invoke_agent {name}",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
    )
    with trace.use_span(span):
        for tool in tools:
            call(tracer, tool)
    return span

def call(tracer, tool):
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    tracer.start_span(f"execute_tool {tool}", attributes=attributes).end()

"""


def run(code: str, *, cwd: Path, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """What a program printed as results, and as warnings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = FORKS.run(["-c", PROGRAM + code], cwd, {**kept, "PYTHONPATH": str(ROOT), **environment})
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"trace_id"')]
    return [row for row in rows if row["outcome"] != "no_run"], done.stderr


def otel_eval(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line."""
    return FORKS.run([*map(str, words)], cwd, {**os.environ, "PYTHONPATH": str(ROOT)})


def only_line(stderr: str) -> str:
    """The one line that was logged."""
    (line,) = stderr.splitlines()
    return line


def test_no_convention_matched(tmp_path: Path):
    """The scopes are named, and the command that explains more."""
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor(RESULTS))
tracer = trace.get_tracer("my.framework")
with tracer.start_as_current_span("work"):
    tracer.start_span("step").end()
""",
        cwd=tmp_path,
    )
    assert rows == []
    assert (
        only_line(stderr)
        == "nothing was evaluated before the end: no agent run found in 2 spans of scopes"
        " 'my.framework' (2); `otel-eval explain FILE` with the stored traces shows why"
    )


def test_match_service_matches_nothing(tmp_path: Path):
    """What is wanted stands beside what is there."""
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
match = {"name": "policy", "match": {"service": "shpo"}, "scorers": [{"type": "tool_errors"}]}
provider.add_span_processor(EvalSpanProcessor(RESULTS | {"evaluations": [match]}))
agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
    )
    assert rows == []
    assert (
        only_line(stderr)
        == "nothing was evaluated before the end: no evaluation matched any of 1 run; service"
        " 'shop' agent 'helper' span 'invoke_agent helper' (1): evaluation 'policy' does not match:"
        " match.service requires 'shpo', and the run has 'shop'; correct match or"
        " sample in the configuration"
    )


def test_match_agent_matches_some_runs_only(tmp_path: Path):
    """Those without a score are counted, with the commonest reason, and not warned of: a policy may
    be of some agents only. An inner run is none of them, and neither is a run outside a sample.
    """
    program = """
trace.set_tracer_provider(provider)
scorers = [{"type": "tool_errors"}]
policy = {"name": "policy", "match": {"agent": "helper"}, "scorers": scorers}
sampled = {"name": "s", "match": {"agent": "rare"}, "sample": 1e-9, "scorers": scorers}
processor = EvalSpanProcessor(RESULTS | {"evaluations": [policy, sampled]})
provider.add_span_processor(processor)
tracer = trace.get_tracer("app")
for name in ("helper", "hepler", "other", "hepler", "rare"):
    outer = agent(tracer, "search", name=name)
    with trace.use_span(outer):
        agent(tracer, "search", name="inner").end()
    outer.end()
"""
    rows, stderr = run(program, cwd=tmp_path)
    assert ([row["agent"] for row in rows], stderr) == (["helper"], "")
    at_info = "import logging; logging.basicConfig(level=logging.INFO, format='%(message)s')\n"
    _, stderr = run(at_info + program, cwd=tmp_path)
    assert stderr.splitlines()[-1] == (
        "3 of 10 runs matched no evaluation, without a score; most often service 'shop' agent"
        " 'hepler' span 'invoke_agent hepler' (2): evaluation 'policy' does not match: match.agent"
        " requires 'helper', and the run has 'hepler'; evaluation 's' does not match: match.agent"
        " requires 'rare', and the run has 'hepler'"
    )


SAMPLER: Final = (
    "no span arrived; its TracerProvider recorded no span (sampler AlwaysOffSampler); "
    "check OTEL_TRACES_SAMPLER, and that the agent is instrumented"
)
SWITCHED_OFF: Final = (
    "no span arrived; OTEL_SDK_DISABLED=true switches tracing off; unset it to score"
)


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [("OTEL_TRACES_SAMPLER", "always_off", SAMPLER), ("OTEL_SDK_DISABLED", "True", SWITCHED_OFF)],
)
def test_a_variable_switches_tracing_off(variable: str, value: str, why: str, tmp_path: Path):
    """The sampler is named, or the variable and not the sampler."""
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor(RESULTS))
agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
        **{variable: value},
    )
    assert rows == []
    assert only_line(stderr) == f"nothing was evaluated before the end: {why}"


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (
            "trace.set_tracer_provider(TracerProvider())",
            "the global TracerProvider does not have this EvalSpanProcessor",
        ),
        ("", "no SDK TracerProvider is set in this process"),
    ],
    ids=["another one is global", "none is global"],
)
def test_the_processor_is_on_the_wrong_provider(setup: str, reason: str, tmp_path: Path):
    """The agent uses the global one."""
    rows, stderr = run(
        f"""
provider.add_span_processor(EvalSpanProcessor(RESULTS))
{setup}
agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
    )
    assert rows == []
    assert f"nothing was evaluated before the end: no span arrived; {reason}" in only_line(stderr)


def test_a_tool_is_misspelt_in_a_policy(tmp_path: Path):
    """The name that was meant is suggested, in a replay at once; the score is printed all the
    same.
    """
    trace = (ROOT / "examples/demo_trace.json").read_bytes()
    (tmp_path / "trace.json").write_bytes(trace)
    (tmp_path / "eval.yaml").write_text(
        "evaluations: [{name: policy, scorers: [{type: required_tools, patterns: [get_wether]}]}]"
    )
    done = otel_eval("replay", "trace.json", "--config", "eval.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "`get_wether` was never called; did you mean `get_weather`?" in only_line(done.stderr)


def test_a_tool_is_misspelt_in_the_policy_of_a_program(tmp_path: Path):
    """Then with the first run, once."""
    _, stderr = run(
        """
trace.set_tracer_provider(provider)
policy = {"name": "policy", "scorers": [{"type": "required_tools", "patterns": ["serach"]}]}
provider.add_span_processor(EvalSpanProcessor(RESULTS | {"evaluations": [policy]}))
for _ in range(3):
    agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
    )
    assert (
        only_line(stderr)
        == "`serach` was never called; did you mean `search`? (evaluation policy, 1 run)"
    )


def test_no_key_of_a_dataset_is_known(tmp_path: Path):
    """A run that carries a key without a record is skipped; the replay exits with 3 and names the
    records that were not used.
    """
    trace = (ROOT / "examples/demo_trace.json").read_bytes()
    (tmp_path / "trace.json").write_bytes(trace)
    (tmp_path / "cases.jsonl").write_text('{"case": "a", "expected": ["get_weather"]}\n')
    (tmp_path / "eval.yaml").write_text(
        "evaluations: [{name: policy, scorers: [{type: tool_call_order, "
        "reference: {dataset: cases.jsonl, column: case, key: gen_ai.agent.name}}]}]"
    )
    done = otel_eval("replay", "trace.json", "--config", "eval.yaml", cwd=tmp_path)
    assert done.returncode == 3
    assert "nothing was evaluated: every scorer was skipped (no_reference 1)" in done.stderr
    assert "cases.jsonl: 1 of 1 record matched no run: line 1 'a'" in done.stderr


def test_the_sender_uses_the_wrong_port(tmp_path: Path):
    """The receiver names the addresses where it listens, and that no request came; the line comes
    at exit at the latest.
    """
    (tmp_path / "eval.yaml").write_text(
        'receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint:'
        ' "127.0.0.1:0"}}}}'
    )
    words = ["serve", "--config", "eval.yaml"]
    with FORKS.start_piped(words, tmp_path, dict(os.environ)) as process:
        while not (line := process.stderr.readline()).startswith("ready"):
            assert line
        grpc, http = re.findall(r"127\.0\.0\.1:\d+", line)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate()
    assert (
        "nothing was evaluated before the end: no span arrived; the receiver listens on grpc"
        f" {grpc} and http {http} (no request came); check the sender's endpoint and protocol"
        in stderr
    )


def test_the_exporters_endpoint_is_dead(tmp_path: Path):
    """Each signal that was not delivered is named, and the program ends soon."""
    port = free_port()
    rows, stderr = run(
        f"""
trace.set_tracer_provider(provider)
to = {{"endpoint": "http://127.0.0.1:{port}", "signals": ["logs"]}}
provider.add_span_processor(EvalSpanProcessor({{"exporters": {{"otlp": to}}}}))
agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
    )
    assert rows == []
    refused = (
        f"UNAVAILABLE: ipv4:127.0.0.1:{port}: Failed to connect to remote host: Connection refused"
    )
    assert (
        only_line(stderr)
        == f"otlp.logs did not deliver 2 results before the end (time was over; last error:"
        f" {refused}); lost; name exporters.dead_letter to keep such results"
    )


@pytest.mark.parametrize("console", [False, True], ids=["nothing else", "a span exporter"])
def test_the_logger_provider_has_no_processor(console: bool, tmp_path: Path):
    """The scores leave as a span instead; where nothing can take that either, one line tells the
    remedy.
    """
    code = """
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
set_logger_provider(LoggerProvider())
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor())
if CONSOLE:
    import sys
    console = ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.name + "\\n")
    provider.add_span_processor(SimpleSpanProcessor(console))
agent(trace.get_tracer("app")).end()
"""
    _, stderr = run(code.replace("CONSOLE", str(console)), cwd=tmp_path)
    if console:
        assert sorted(stderr.splitlines()) == ["evaluate default", "invoke_agent helper"]
    else:
        assert (
            only_line(stderr)
            == "scores cannot be sent as spans: there is no tracer provider with another"
            " processor; "
            "add a span processor with an exporter to the TracerProvider, pass tracer_provider, "
            "or name exporters in the configuration, e.g. exporters: {console: {}}"
        )


def test_the_only_span_never_ends(tmp_path: Path):
    """Nothing arrived, but not because of the provider."""
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor(RESULTS))
span = agent(trace.get_tracer("app"))
""",
        cwd=tmp_path,
    )
    assert rows == []
    assert (
        only_line(stderr)
        == "nothing was evaluated before the end: no span arrived; spans started, but none has"
        " ended; "
        "a run is evaluated when its own span has ended"
    )


def test_the_root_never_ends(tmp_path: Path):
    """A run whose own span was never ended has no score; the line says so."""
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor(RESULTS))
span = agent(trace.get_tracer("app"))
with trace.use_span(span):
    trace.get_tracer("app").start_span("step").end()
""",
        cwd=tmp_path,
    )
    assert rows == []
    assert (
        only_line(stderr)
        == "nothing was evaluated before the end: no agent run found in 1 span of scopes 'app' (1);"
        " 1 of the traces had a span that never ended; a run is evaluated when its own span has"
        " ended; `otel-eval explain FILE` with the stored traces shows why"
    )


def test_the_context_is_lost_in_a_thread_pool(tmp_path: Path):
    """The tool spans became traces of their own."""
    _, stderr = run(
        """
trace.set_tracer_provider(provider)
provider.add_span_processor(EvalSpanProcessor(RESULTS))
tracer = trace.get_tracer("app")
span = agent(tracer)
with trace.use_span(span), ThreadPoolExecutor(2) as pool:
    list(pool.map(lambda tool: call(tracer, tool), ["search", "open"]))
provider.force_flush()
span.end()
""",
        cwd=tmp_path,
    )
    lone_calls, lost = stderr.splitlines()
    assert "tool call of no agent run" in lone_calls
    assert (
        lost
        == "context was lost: 2 tool spans started in threads without the run's context and are"
        " missing from it; propagate it with opentelemetry-instrumentation-threading or"
        " contextvars.copy_context().run; 2 so far"
    )


def test_the_processor_is_added_twice(tmp_path: Path):
    """Each run is scored once; only the log at INFO has a line, since a notebook's cell may be run
    twice.
    """
    rows, stderr = run(
        """
trace.set_tracer_provider(provider)
for _ in range(2):
    provider.add_span_processor(EvalSpanProcessor(RESULTS))
agent(trace.get_tracer("app"), "search").end()
""",
        cwd=tmp_path,
    )
    assert sorted(row["scorer"] for row in rows) == ["time_cost", "tool_errors"]
    assert stderr == ""
