"""When nothing was evaluated one warning of the process tells why, after a minute or at the end."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor
from tests.support.fork_server import FORKS

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from otel_eval import EvalSpanProcessor
from otel_eval import diagnostics
diagnostics.CHECK_AFTER_S = 1.0
provider = TracerProvider()
trace.set_tracer_provider(provider)
def run(attributes):
    provider.get_tracer("app").start_span("invoke_agent a", attributes=attributes).end()
AGENT = {"gen_ai.operation.name": "invoke_agent"}
def processor(**config):
    return EvalSpanProcessor({"exporters": {"jsonl": {"path": os.devnull}}, **config})
def add(**config):
    provider.add_span_processor(processor(**config))
def wait_for_warning():
    for thread in threading.enumerate():
        if thread.name == "otel-eval-check":
            thread.join()
"""


def lines(code: str) -> list[str]:
    done = FORKS.run(["-c", PROGRAM + code], ROOT, os.environ)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("add(); add()\nwait_for_warning()", ["in 1 s: no span arrived"]),
        (
            "add()\nspan = provider.get_tracer('a').start_span('b')\nwait_for_warning()",
            ["in 1 s: 1 traces are still open, the oldest for "],
        ),
        ("add()\nrun({})", ["before the end: no agent run found in 1 span of scopes"]),
        (
            (
                "add(evaluations=[{'name': 'e', 'scorers': [{'type': 'required_tools', 'patterns':"
                " ['a']}]}])\nrun(AGENT)"
            ),
            ["before the end: every scorer was skipped (calls_unknown 1)"],
        ),
        ("add()\nrun(AGENT)\nprovider.force_flush()\nwait_for_warning()", []),
        ("p = processor()\nif os.fork() == 0: os._exit(0)\nwait_for_warning()", []),
    ],
    ids=["no span", "an open trace", "no run", "unknown", "evaluated", "a server that forked"],
)
def test_one_warning_tells_why(code: str, expected: list[str]):
    """And none where something was evaluated."""
    found = lines(code)
    assert [
        line.startswith(f"nothing was evaluated {each}")
        for line, each in zip(found, expected, strict=True)
    ] == [True] * len(expected), found


def test_debug_logs_one_line_per_run(caplog: pytest.LogCaptureFixture):
    """Names, ids and numbers."""
    caplog.set_level(logging.DEBUG, "otel_eval")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(EvalSpanProcessor({"exporters": {"jsonl": {"path": os.devnull}}}))
    agent: dict[str, Any] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    span = provider.get_tracer("app").start_span("invoke_agent helper", attributes=agent)
    span.end()
    provider.shutdown()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    trace_id, span_id = (
        f"{span.get_span_context().trace_id:032x}",
        f"{span.get_span_context().span_id:016x}",
    )
    assert line.startswith(f"run trace_id={trace_id} span_id={span_id} agent='helper' service='")
    assert line.endswith("calls=0 complete evaluations=default scored=1 skipped=1")
