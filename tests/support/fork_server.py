"""Run `otel-eval` in forks of a process that has imported it: each run is a process of its own,
without the time for imports.

As a program it is the server: it reads a request from each line of stdin and writes the answer to
stdout.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300  # of a run that is waited for
LIFE_S = 900  # of a process that a test forgot
PRELOADED = (
    "otel_eval.app",
    "otel_eval.app.checking",
    "otel_eval.app.inprocess",
    "otel_eval.app.receiving",
    "otel_eval.app.rule_coverage",
    "otel_eval.cli",
    "otel_eval.cli.explanation",
    "otel_eval.cli.replaying",
    "otel_eval.cli.serving",
    "otel_eval.cli.stored",
    "otel_eval.config",
    "otel_eval.config.yaml_text",
    "otel_eval.exporters.global_providers",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "opentelemetry.sdk._logs.export",
    "opentelemetry.sdk.metrics.export",
)
CONFIGURATION = {"evaluations": [{"name": "all", "scorers": [{"type": "tool_errors"}]}]}


class ForkServer:
    """Starts the server with the first run; ends it with `close`, and all that it still runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """What `python -m otel_eval WORDS` does in the folder. If the words begin with `-c CODE` or
        with the name of a script, it is what `python -W ignore WORDS` does. A run that does not end
        is killed by SIGALRM.
        """
        with tempfile.TemporaryDirectory() as name:
            files = [Path(name) / stream for stream in ("stdin", "stdout", "stderr")]
            files[0].write_text(stdin, encoding="utf-8")
            pid = self._start(words, folder, environment, files, TIMEOUT_S)
            code = self.ask("wait", pid)
            assert code is not None
            return subprocess.CompletedProcess(
                words, code, *(file.read_text(encoding="utf-8") for file in files[1:])
            )

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        stdout: Path = Path(os.devnull),
        stderr: Path,
    ) -> ForkedProcess:
        """A process like that of `run`, which goes on in the folder."""
        files = [Path(os.devnull), stdout, stderr]
        return ForkedProcess(self, self._start(words, folder, environment, files, LIFE_S))

    def start_piped(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> PipedProcess:
        """A process of `python -m otel_eval WORDS` in the folder, to be read while it runs."""
        with tempfile.TemporaryDirectory() as name:
            pipes = [Path(name) / stream for stream in ("stdout", "stderr")]
            for pipe in pipes:
                os.mkfifo(pipe)
            pid = self._start(words, folder, environment, [Path(os.devnull), *pipes], LIFE_S)
            # each as soon as the process has opened its end
            stdout, stderr = (pipe.open(encoding="utf-8") for pipe in pipes)
        return PipedProcess(self, pid, stdout, stderr)

    def _start(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        files: Sequence[Path],
        most_s: int,
    ) -> int:
        request = {
            "words": words,
            "folder": str(folder),
            "environment": dict(environment),
            "most_s": most_s,
        }
        pid = self.ask("start", request | {"files": list(map(str, files))})
        assert pid is not None
        return pid

    def ask(self, what: str, of: object) -> int | None:
        """The server's answer: a pid or an exit code; None for a process that runs."""
        if self._process is None:
            command = [sys.executable, __file__]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, of]) + "\n")
        self._process.stdin.flush()
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.communicate()


class ForkedProcess:
    """What tests use of `subprocess.Popen`, of a process that the server forked."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self._code is None:
            self._code = self._server.ask("poll", self.pid)
        return self._code

    def wait(self, timeout: float) -> int:
        """The exit code once the process has ended; TimeoutExpired if it does not."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("otel_eval", timeout)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class PipedProcess(ForkedProcess):
    """One whose output can be read. As a context manager it is killed at the end if it still
    runs.
    """

    def __init__(self, server: ForkServer, pid: int, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(server, pid)
        self.stdout, self.stderr = stdout, stderr

    def communicate(self, timeout: float = LIFE_S) -> tuple[str, str]:
        """What it writes to stdout and to stderr until it ends."""
        written = self.stdout.read(), self.stderr.read()
        self.wait(timeout)
        return written

    def __enter__(self) -> PipedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait(LIFE_S)
        self.stdout.close()
        self.stderr.close()


def serve() -> None:
    """Answer requests until stdin ends."""
    for name in PRELOADED:
        __import__(name)  # once for all forks
    from otel_eval.config import load

    load(CONFIGURATION)  # makes the validators, which are made when they are first used
    gc.freeze()
    running: set[int] = set()
    for line in sys.stdin:
        what, of = json.loads(line)
        answer = forked(of) if what == "start" else exit_of(of, os.WNOHANG if what == "poll" else 0)
        running.symmetric_difference_update(
            {answer} if what == "start" else {of} if answer is not None else ()
        )
        print(json.dumps(answer), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def forked(request: dict[str, Any]) -> int:
    """The pid of a process that does what is requested."""
    pid = os.fork()
    if not pid:
        run_in_fork(request)
    return pid


def exit_of(pid: int, options: int) -> int | None:
    """The exit code of a process; None if it runs."""
    ended, status = os.waitpid(pid, options)
    return os.waitstatus_to_exitcode(status) if ended else None


def run_in_fork(request: dict[str, Any]) -> NoReturn:
    """Become what a new process would be, run the command and end as a process ends."""
    signal.alarm(request["most_s"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, file in enumerate(request["files"]):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0)), number)
    sys.stdin, sys.stdout = io.TextIOWrapper(io.FileIO(0)), io.TextIOWrapper(io.FileIO(1, "w"))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", line_buffering=True)
    # the server has forked, not the process that this one stands for
    sys.modules["otel_eval.diagnostics"]._has_forked = False  # type: ignore[attr-defined]
    sys.path[:0] = [request["folder"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    code = 1
    words = request["words"]
    try:
        is_program = words[0] == "-c" or words[0].endswith(".py")
        code = program_exit_code(words) if is_program else exit_code(words)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the top
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined] # wait for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def program_exit_code(words: Sequence[str]) -> int:
    """Of code or a script, in a module `__main__` of its own."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    warnings.simplefilter("ignore")
    if words[0] == "-c":
        sys.argv, code, name = ["-c", *words[2:]], words[1], "<string>"
    else:
        sys.argv, code, name = [*words], Path(words[0]).read_text(encoding="utf-8"), words[0]
        sys.path.insert(0, str(Path(words[0]).parent))
        module.__file__ = words[0]
    try:
        exec(compile(code, name, "exec"), module.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def exit_code(words: Sequence[str]) -> int:
    """Of the command, whichever way it ends."""
    sys.argv = ["otel-eval", *words]
    from otel_eval.cli import main

    try:
        code = main(list(words))
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else int(code is not None)


FORKS: Final = ForkServer()  # of this process, for all tests in it
atexit.register(FORKS.close)

if __name__ == "__main__":
    serve()
