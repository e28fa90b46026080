"""`otel-eval serve` as a process: one line when ready, scores out, a quick end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_eval.native import build_info
from tests.support.fork_server import FORKS, PipedProcess
from tests.support.waiting import LIMIT_S, wait_until

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

OPEN = "\ntraces: {decision_wait: 15m, decision_wait_partial: 15m, idle_timeout: 15m}"
ANYWHERE = (
    'receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint:'
    ' "127.0.0.1:0"}}}}'
)
BUILT = "{version} ({extension}, Python {python})".format(**build_info())
SCORER = "{type: tool_errors}"


def serving(config: Path) -> PipedProcess:
    """The process, as a context manager."""
    words = ["serve", "--config", str(config)]
    root = str(Path(__file__).parents[3])
    return FORKS.start_piped(words, config.parent, {**os.environ, "PYTHONPATH": root})


def ready(process: PipedProcess) -> str:
    """The first line that it says."""
    return process.stderr.readline()


def without_start(err: str) -> list[str]:
    """What was logged but for the line that describes what is served."""
    return [line for line in err.splitlines() if not line.startswith("otel-eval: serving ")]


def post(ready_line: str, trace: Path) -> None:
    """Send a stored OTLP/JSON trace to the HTTP address of the line."""
    (place,) = re.findall(r"http=(\S+)", ready_line)
    request = urllib.request.Request(
        f"http://{place}/v1/traces",
        data=trace.read_bytes(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=300
    ) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_pending_is_scored_before_it_ends(
    config: Write, recorded: Path, number: int
) -> None:
    """A signal right after the last span: the run is scored, marked `shutdown`, and the exit code
    is 0.
    """
    with serving(
        config(
            SCORER,
            more=ANYWHERE + OPEN,
        )
    ) as process:
        line = ready(process)
        assert re.fullmatch(r"ready grpc=127\.0\.0\.1:[1-9]\d* http=127\.0\.0\.1:[1-9]\d*\n", line)
        post(line, recorded)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    (row,) = [json.loads(each) for each in out.splitlines()]
    assert (process.poll(), without_start(err)) == (0, [])
    assert (row["scorer"], row["outcome"], row["completeness"]) == (
        "tool_errors",
        "scored",
        "shutdown",
    )


def test_a_run_is_scored_while_it_serves(config: Write, recorded: Path) -> None:
    """After settling, into the file that the configuration names."""
    more = ANYWHERE + "\ntraces: {decision_wait: 100ms}\nexporters: {jsonl: {path: '-'}}"
    with serving(config(SCORER, more=more)) as process:
        post(ready(process), recorded)
        row = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert (row["agent"], row["completeness"], row["revision"]) == ("travel_agent", "joined", 0)


def test_only_the_protocol_that_is_named_is_said(config: Write) -> None:
    """Nothing is invented for the other."""
    with serving(
        config(SCORER, more='receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:0"}}}}')
    ) as process:
        assert re.fullmatch(r"ready http=127\.0\.0\.1:[1-9]\d*\n", ready(process))


def test_a_port_that_is_taken_is_one_line(config: Write, otel_eval: Run) -> None:
    """Exit 2, and the address is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = otel_eval(
            "serve",
            "--config",
            config(
                SCORER,
                more=f'receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "{place}"}}}}}}}}',
            ),
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert place in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_it_ends_in_time_while_the_exporter_takes_no_scores(config: Write, recorded: Path) -> None:
    """An exporter's endpoint that accepts and never answers costs the scores, not the end; the loss
    is counted and logged.
    """
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        exporter = (
            f'exporters: {{otlp: {{endpoint: "http://127.0.0.1:{silent.getsockname()[1]}", signals:'
            " [logs]}}"
        )
        with serving(config(SCORER, more=f"{ANYWHERE}\n{exporter}")) as process:
            post(ready(process), recorded)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=300)
    assert process.poll() == 0
    # there is no error yet if the time to stop ends before the request
    error = "; last error: DEADLINE_EXCEEDED"
    last = [line.replace(error, "") for line in without_start(err)[-2:]]
    assert last == [
        (
            "otel-eval: otlp.logs did not deliver 1 result before the end (time was over); "
            "lost; name exporters.dead_letter to keep such results"
        ),
        (
            "otel-eval: not all scores were computed and delivered within 10 s; some failed with"
            " timeout or are lost"
        ),
    ]


def test_a_server_that_received_nothing_has_lost_nothing(config: Write) -> None:
    """Although the endpoint of its metrics does not answer."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        exporter = (
            f'exporters: {{otlp: {{endpoint: "http://127.0.0.1:{closed.getsockname()[1]}"}},'
            " jsonl: {path: results.jsonl}}"
        )
        with serving(config(SCORER, more=f"{ANYWHERE}\n{exporter}")) as process:
            ready(process)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
    assert process.poll() == 0
    assert "lost" not in err
    assert "did not deliver" not in err


def said(process: PipedProcess, wanted: str) -> str:
    """The next line on stderr that has this in it."""
    for line in process.stderr:
        if wanted in line:
            return line
    raise AssertionError(f"{wanted!r} was never said")


def test_evaluations_are_read_again_on_sighup(config: Write, recorded: Path) -> None:
    """Open traces are evaluated by the new ones; a file that cannot be used is one line, and the
    old ones stay.
    """
    settle = ANYWHERE + OPEN
    path = config(SCORER, more=settle)
    with serving(path) as process:
        post(ready(process), recorded)
        path.write_text("evaluations: 3", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        assert "is kept" in said(process, "reload: ")
        config("{type: time_cost, max_ms: 1}", more=settle)
        process.send_signal(signal.SIGHUP)
        said(process, "reload: done")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=300)
    assert [json.loads(each)["scorer"] for each in out.splitlines()] == ["time_cost"]
    assert process.poll() == 0


def test_a_sighup_during_the_start_is_carried_out(config: Write) -> None:
    """As soon as it serves; it ended the process while modules and the configuration were
    loaded.
    """
    path = config("{type: 'early:scorer'}", more=ANYWHERE)
    once = (
        "if not os.path.exists('seen'):\n    open('seen', 'w').close()\n    os.kill(os.getpid(),"
        " signal.SIGHUP)\n"
    )
    (path.parent / "early.py").write_text(
        f"import os, signal\n{once}def scorer(run):\n    return 1.0\n", encoding="utf-8"
    )
    with serving(path) as process:
        assert ready(process).startswith("ready ")
        said(process, "reload: done")


def test_log_lines_are_json_if_asked_for(config: Write) -> None:
    """One object a line, with a time and a level."""
    path = config(
        SCORER, more=ANYWHERE + "\ntelemetry: {log_format: json, endpoint: '127.0.0.1:0'}"
    )
    with serving(path) as process:
        assert re.search(
            r" telemetry=127\.0\.0\.1:[1-9]\d*$", json.loads(ready(process))["message"]
        )
        path.write_text("evaluations: 3", encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        line = json.loads(said(process, "reload"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert (line["level"], line["logger"], sorted(line)) == (
        "warning",
        "otel_eval",
        ["level", "logger", "message", "time"],
    )


def test_what_is_served_is_logged_at_the_start(config: Write) -> None:
    """The file, the evaluations, the exporters, the addresses and the build; keys and headers stay
    out.
    """
    otlp = "otlp: {endpoint: 'http://127.0.0.1:9', signals: [logs], headers: {key: SECRET}}"
    more = (
        ANYWHERE
        + f"\nexporters: {{{otlp}, phoenix: {{endpoint: 'http://127.0.0.1:8', headers: {{key:"
        " SECRET}}}"
    )
    path = config(SCORER, more=more)
    with serving(path) as process:
        addresses = ready(process).removeprefix("ready ").strip()
        line = said(process, "serving")
        process.send_signal(signal.SIGTERM)
        process.wait(300)
    assert (
        line == f"otel-eval: serving {path}: evaluations one (tool_errors); exporters otlp"
        f" 'http://127.0.0.1:9' (logs), phoenix 'http://127.0.0.1:8'; addresses {addresses};"
        f" version {BUILT}\n"
    )


def test_debug_logs_a_line_for_each_run(config: Write, recorded: Path) -> None:
    """By the configuration; the line tells how the results came out."""
    path = config(
        SCORER, more=ANYWHERE + "\ntelemetry: {log_level: debug}\ntraces: {decision_wait: 100ms}"
    )
    with serving(path) as process:
        post(ready(process), recorded)
        line = said(process, "run trace_id=")
        process.send_signal(signal.SIGTERM)
        process.wait(300)
    assert "agent='travel_agent'" in line
    assert line.endswith("calls=4 joined evaluations=one scored=1\n")


MISTAKES = """
import logging, os, sys, threading, warnings
from otel_eval.cli import serving
def busy(*_):
    warnings.warn("a library\\nwarns")
    logging.getLogger("some.library").warning("two\\nlines %d")
    logging.getLogger("some.library").warning("%d", "no number")
    try:
        raise ValueError("SECRET")
    except ValueError:
        logging.getLogger("some.library").exception("it failed")
    def fall():
        raise KeyError("SECRET")
    thread = threading.Thread(target=fall, name="worker")
    thread.start()
    thread.join()
    class Odd:
        def __del__(self):
            raise OSError("SECRET")
    Odd()
    os.kill(os.getpid(), 15)
serving._describe = lambda *_: busy() or ("x", "y", "z")
from otel_eval.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_with_json_every_line_is_json_from_every_logger(config: Write) -> None:
    """Warnings and errors of libraries, exceptions that nothing caught; none quotes what an
    exception said.
    """
    path = config(SCORER, more=ANYWHERE + "\ntelemetry: {log_format: json}")
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", MISTAKES, "serve", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    by_message = {(line["logger"], line["message"].split("(")[0].strip()): line for line in lines}
    assert ("some.library", "two\nlines %d") in by_message
    assert ("some.library", "%d") in by_message
    assert by_message["some.library", "it failed"]["exception"] == "ValueError"
    assert ("otel_eval", "unexpected KeyError in thread worker") in by_message
    assert ("otel_eval", "unexpected OSError that could not be raised") in by_message
    assert any(line["logger"] == "py.warnings" for line in lines)
    assert "SECRET" not in done.stderr


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["--nope"], "telemetry: {log_format: json}", "No such option '--nope'"),
        ([], "telemetry: {log_format: json}\nevaluations: 3", "evaluations: 3 is"),
        ([], "telemetry:\n  log_format: 'json'\nx: {", "line 4"),
    ],
)
def test_an_error_at_the_start_is_json_too(
    otel_eval: Run, tmp_path: Path, words: list[str], text: str, message: str
) -> None:
    """A wrong option, a wrong value, and what is no YAML."""
    path = tmp_path / "eval.yaml"
    path.write_text(text + "\n", encoding="utf-8")
    done = otel_eval("serve", "--config", path, *words)
    (line,) = [json.loads(each) for each in done.stderr.splitlines()]
    assert done.returncode == 2
    assert line["level"] == "error"
    assert message in line["message"]


SLOW_MODULE = """
import pathlib, time
pathlib.Path("begun").touch()
while True:
    time.sleep(1)
"""


def test_a_reload_that_hangs_does_not_delay_the_end(config: Write) -> None:
    """Nor do requests for more reloads that wait."""
    path = config(SCORER, more=ANYWHERE)
    with serving(path) as process:
        assert ready(process).startswith("ready ")
        (path.parent / "slow_module.py").write_text(SLOW_MODULE)
        config("{type: 'slow_module:score'}", more=ANYWHERE)
        process.send_signal(signal.SIGHUP)
        wait_until((path.parent / "begun").exists)
        for number in (*[signal.SIGHUP] * 100, signal.SIGTERM):
            process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.poll() == 0
    assert "reload: " not in err


def test_the_start_of_a_server_of_kafka_alone_names_what_it_reads(config: Write) -> None:
    """A topic and its brokers instead of addresses, also while no broker answers."""
    pytest.importorskip("confluent_kafka")
    kafka = 'receivers: {kafka: {brokers: ["127.0.0.1:1"], topic: spans}}'
    with serving(config(SCORER, more=kafka)) as process:
        assert ready(process) == "ready kafka=spans@127.0.0.1:1\n"
        assert "addresses kafka=spans@127.0.0.1:1;" in said(process, "serving ")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
