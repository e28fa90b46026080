"""A reader of the README saves its files and pastes its commands, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.doc_pages import README

TEXT = README.read_text(encoding="utf-8").partition("## A first score")[2]
FILES = re.findall(r"as `([\w.]+)`[^`]*?:\n\n```\w+\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
TIME = re.compile(r"^\d\d:\d\d:\d\dZ", re.MULTILINE)


def free_ports(folder: Path) -> None:
    """Let the receiver choose its ports, and write them down; a reader has the usual ones."""
    with (folder / "eval.yaml").open("a", encoding="utf-8") as file:
        file.write(
            'receivers: {otlp: {protocols: {grpc: &any_port {endpoint: "127.0.0.1:0"},'
            " http: *any_port}}}\n"
            "telemetry: *any_port\n"
        )


def test_what_the_readme_pastes_works_in_order(tmp_path: Path) -> None:
    """The score that it shows, then the same one from a receiver and from a file."""
    assert [name for name, _ in FILES] == ["eval.yaml", "agent.py"]
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    first, receiver, stored = COMMANDS
    shown = "".join(f"{TIME.sub('TIME', line)}\n" for line in re.findall("^#> (.*)$", first, re.M))
    assert shown
    assert TIME.sub("TIME", paste(first, tmp_path).stdout) == shown

    free_ports(tmp_path)
    assert TIME.sub("TIME", paste_with_receiver(receiver, tmp_path)) == shown

    replayed = paste(stored, tmp_path)
    assert "tool_call_count  0.500  " in replayed.stdout
    assert "1 run, 3 results: 2 passed, 1 did not pass" in replayed.stdout
    assert "1 trace, 1 with an agent run" in replayed.stdout
    assert replayed.stderr == ""


def environment(**more: str) -> dict[str, str]:
    """The environment that is active after the section on installing."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **more}


def paste(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", commands], cwd=folder, env=environment(), capture_output=True, text=True
    )


def paste_with_receiver(commands: str, folder: Path) -> str:
    """What the receiver prints: it is started by the first command and stopped by the last one."""
    serve, send, stop = commands.splitlines()
    (sender,) = re.findall(r"python agent\.py \w+", send)
    words = serve.partition("&")[0].split()
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as receiver:
        try:
            assert receiver.stderr is not None
            (address,) = re.findall(r"grpc=(\S+)", receiver.stderr.readline())
            done = subprocess.run(
                ["bash", "-c", sender],
                cwd=folder,
                env=environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{address}"),
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stderr) == (0, "")
        finally:
            assert stop.startswith("kill $!")
            receiver.terminate()
        assert receiver.stdout is not None
        return receiver.stdout.read()
