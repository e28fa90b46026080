"""Scores runs in its process, in pytest and from a file, without what only POSIX systems have.

    python tests/flow/without_posix_program.py FOLDER

It first imports the libraries that choose their parts by the platform themselves (asyncio, gRPC,
pytest, the SDK), then takes away the modules and the functions that Windows lacks. Whatever
otel-eval imports or calls afterwards must do without.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import json
import multiprocessing  # noqa: F401
import os
import select
import signal
import socket
import subprocess  # noqa: F401
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import click  # noqa: F401
import google.protobuf.message
import grpc  # noqa: F401
import pydantic  # noqa: F401
import pytest
import requests  # noqa: F401
import yaml  # noqa: F401
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter,  # noqa: F401
)
from opentelemetry.sdk.trace import TracerProvider

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "_posixshmem")
FUNCTIONS: dict[ModuleType, str] = {
    os: (
        "fork forkpty register_at_fork pread pwrite preadv pwritev readv writev fdatasync sync"
        " fchmod fchown chown lchown mkfifo mknod sysconf confstr uname getuid geteuid getgid"
        " getegid getgroups getpgid getpgrp setsid nice getloadavg sched_getaffinity"
        " sched_yield statvfs fstatvfs lockf openpty pipe2 wait3 wait4 waitid killpg posix_spawn"
        " O_CLOEXEC O_NONBLOCK O_NOFOLLOW O_DIRECTORY O_SYNC O_DSYNC"
    ),
    select: "poll epoll",
    signal: (
        "SIGHUP SIGKILL SIGALRM SIGPIPE SIGUSR1 SIGUSR2 SIGQUIT SIGCHLD alarm pause setitimer"
        " pthread_kill pthread_sigmask sigwait sigtimedwait siginterrupt"
    ),
    socket: "SO_REUSEPORT sendmsg send_fds recv_fds",
    time: "clock_gettime pthread_getcpuclockid tzset",
}

TEST = """
from otel_eval import create_scorer
from otel_eval.testing import call, trajectory


def test_the_agent_searches_before_it_pays():
    score = create_scorer({"type": "tool_call_order", "expected": ["search", "refund"]})
    assert score(trajectory(call("search"), call("refund"))).passed
"""

CONFIGURATION: dict[str, Any] = {
    "evaluations": [
        {
            "name": "policy",
            "scorers": [
                {"type": "tool_call_order", "expected": ["search", "refund"]},
                {"type": "tool_errors"},
            ],
        }
    ]
}


def take_away() -> None:
    """Remove the modules and functions; an `import` of one of them raises ImportError."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in FUNCTIONS.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


def score_in_process(results: Path) -> None:
    """A run of this process, with its results in a file."""
    from otel_eval import EvalSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    configuration = {**CONFIGURATION, "exporters": {"jsonl": {"path": str(results)}}}
    provider.add_span_processor(EvalSpanProcessor(configuration))
    tracer = provider.get_tracer("agent")
    with tracer.start_as_current_span("run", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for tool in ("search", "refund"):
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            tracer.start_span("execute_tool", attributes=attributes).end()
    provider.shutdown()


def main() -> int:
    folder = Path(sys.argv[1])
    # The parts of protobuf and gRPC that are loaded at the first use.
    google.protobuf.message.Message()
    take_away()

    score_in_process(folder / "results.jsonl")
    for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        print("in the process:", row["scorer"], row["passed"])

    # A file whose last line was torn, as a crash leaves it: it is cut, and appended to.
    with open(folder / "results.jsonl", "ab") as file:
        file.write(b'{"trace_id": "torn')
    score_in_process(folder / "results.jsonl")
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    print("after a torn line:", len(lines), all(json.loads(line) for line in lines))

    (folder / "test_agent.py").write_text(TEST, encoding="utf-8")
    # plugins that others installed have needs of their own
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    words = [
        "-q",
        "-p",
        "otel_eval.pytest_plugin",
        "-p",
        "no:tmpdir",
        "-p",
        "no:cacheprovider",
        str(folder / "test_agent.py"),
    ]
    print("pytest:", int(pytest.main(words)))

    from otel_eval.cli import main as command

    (folder / "eval.yaml").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    trace, config = str(folder / "trace.json"), str(folder / "eval.yaml")
    print("replay:", command(["replay", trace, "--config", config]))
    print("explain:", command(["explain", trace]))
    serve = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "storage": {"directory": "state"},
    }
    (folder / "storage.yaml").write_text(json.dumps(serve), encoding="utf-8")
    print("storage:", command(["serve", "--config", str(folder / "storage.yaml")]))
    print("workers:", command(["serve", "--workers", "2"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
