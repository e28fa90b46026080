"""What a person sees on a terminal: its width, colours, progress while judges are awaited."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fork_server import FORKS

Write = Callable[..., Path]
COLOR = re.compile(r"\x1b\[\d*m")
FAILS = "{type: tool_errors, threshold: 1.0}"


def on_terminal(
    folder: Path,
    *words: object,
    columns: int = 60,
    awaited: str = "",
    **environment: str,
) -> str:
    """What `otel-eval WORDS`, or the program of Python that is the first word, prints on a terminal
    with this many columns; once the pattern `awaited` is there, the file `go` is made in the
    folder.
    """
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    device = Path(os.ttyname(theirs))
    process = FORKS.start(
        [*map(str, words)],
        folder,
        {**kept, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=device,
        stderr=device,
    )
    printed = b""
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.01)[0]:
            printed += os.read(terminal, 65536)
        if awaited and re.search(awaited, printed.decode(errors="replace")):
            (folder / "go").touch()
    os.close(theirs)
    os.close(terminal)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("command", ["replay", "trajectory", "explain"])
def test_text_is_as_wide_as_the_terminal_and_coloured(
    recorded: Path, config: Write, tmp_path: Path, command: str
) -> None:
    """Without colours where they are not wanted."""
    words = [command, recorded, "--config", config(FAILS)]
    narrow = on_terminal(tmp_path, *words)
    wide = on_terminal(tmp_path, *words, columns=160, NO_COLOR="1")
    assert COLOR.search(narrow)
    assert not COLOR.search(wide)
    lines = [COLOR.sub("", line).rpartition("\x1b[2K")[2] for line in narrow.splitlines()]
    assert max(len(line.split("  ")[0]) for line in lines) <= 60
    assert max(map(len, wide.splitlines())) > max(map(len, lines)) > 50


def test_the_demonstration_is_as_wide_as_the_terminal_and_coloured(tmp_path: Path) -> None:
    program = Path(__file__).parents[3] / "examples" / "demo.py"
    printed = on_terminal(tmp_path, program, columns=80)
    shown = COLOR.sub("", printed).partition("\n\n")[2].partition("The scores are")[0]
    assert COLOR.search(printed)
    assert 60 < max(map(len, shown.splitlines())) <= 80
    assert not COLOR.search(on_terminal(tmp_path, program, NO_COLOR="1"))


def test_progress_goes_on_while_judges_are_awaited(
    recorded: Path, config: Write, tmp_path: Path
) -> None:
    """With the number of runs, their rate and the time that is left, by the results so far."""
    (tmp_path / "slow.py").write_text(
        "import asyncio, os\n"
        "from otel_eval import Scored\n"
        "calls = 0\n"
        "async def slow(run):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    while calls > 2 and not os.path.exists('go'):\n"
        "        await asyncio.sleep(0.05)\n"
        "    return Scored(1.0, passed=True)\n",
        encoding="utf-8",
    )
    for number in range(4):
        text = recorded.read_text(encoding="utf-8").replace("d7a9e833", f"0000000{number}")
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
    scorer = "{type: 'slow:slow', name: mine}"
    more = "async_scoring: {concurrency: 1}"
    words = ["replay", tmp_path, "--config", config(scorer, more=more), "--format", "json"]
    recorded.unlink()
    printed = on_terminal(tmp_path, *words, columns=100, awaited=r"50 %, 0 runs, \d:\d\d left")
    assert (tmp_path / "go").exists()
    assert printed.count('"outcome": "scored"') == 4
