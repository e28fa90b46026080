"""Run `otel-eval` in forks of a process that has imported it: each run is a process of its own, without the time for imports.

As a program it is the server: it reads a request from each line of stdin and writes the exit code to stdout.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 50


class ForkServer:
    """Starts the server with the first run; ends it with `close`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """What `python -m otel_eval WORDS` does in the folder; a run that does not end is killed by SIGALRM."""
        if self._process is None:
            command = [sys.executable, __file__]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as name:
            files = [Path(name) / stream for stream in ("stdin", "stdout", "stderr")]
            files[0].write_text(stdin, encoding="utf-8")
            request = {"words": words, "folder": str(folder), "environment": dict(environment), "files": list(map(str, files))}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(words, code, *(file.read_text(encoding="utf-8") for file in files[1:]))

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.communicate()


def serve() -> None:
    """Answer requests until stdin ends."""
    import otel_eval.app
    import otel_eval.cli
    import otel_eval.config  # noqa: F401 - imported once for all forks

    for line in sys.stdin:
        child = os.fork()
        if not child:
            run_in_fork(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_in_fork(request: dict[str, Any]) -> NoReturn:
    """Become what a new process would be, run the command and end as a process ends."""
    signal.alarm(TIMEOUT_S)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, file in enumerate(request["files"]):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout = io.TextIOWrapper(io.FileIO(0)), io.TextIOWrapper(io.FileIO(1, "w"))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", line_buffering=True)
    sys.argv = ["otel-eval", *request["words"]]
    sys.path[:0] = [request["folder"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    code = 1
    try:
        code = exit_code(request["words"])
    except BaseException:  # noqa: BLE001 - as the interpreter does at the top
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined] # wait for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def exit_code(words: Sequence[str]) -> int:
    """Of the command, whichever way it ends."""
    from otel_eval.cli import main

    try:
        code = main(list(words))
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve()
