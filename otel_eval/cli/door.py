"""One line for whatever goes wrong, and the exit code that belongs to it.

Knows kinds of errors; knows nothing of what the commands do. A traceback is shown only where OTEL_EVAL_DEBUG=1 asks for it.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from otel_eval.cli.commands import ReaderGone, cli
from otel_eval.cli.lines import dress, early_form, write_line, writes_json
from otel_eval.errors import OtelEvalError

__all__ = ["main"]

UNUSABLE: Final = 2  # the configuration, the input or the command line
INTERRUPTED: Final = 130  # as a shell says of SIGINT
NO_READER: Final = 141  # as a shell says of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: words after the command's name; those of the process if None.
    """
    logging.basicConfig(format="otel-eval: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if early_form(sys.argv[1:] if arguments is None else arguments) == "json":
        dress("json")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a file may be of an encoding that has no arrow
    try:
        code = cli.main(arguments, prog_name="otel-eval", standalone_mode=False)
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        # Nothing is said, now or when the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return NO_READER
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last door: whatever it is, a person gets one line
        return _tell(error)
    return code if isinstance(code, int) else 0


def _tell(error: Exception) -> int:
    debugs = os.environ.get("OTEL_EVAL_DEBUG") == "1"
    if debugs and not writes_json():
        traceback.print_exc()
    write_line(" ".join(_line(error).split()), exc_info=(type(error), error, error.__traceback__) if debugs else None)
    return UNUSABLE


def _line(error: Exception) -> str:
    if isinstance(error, OtelEvalError):
        return str(error)
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "otel-eval"
        return f"{error.format_message().rstrip('.')}; see {command} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"unexpected {type(error).__name__}: {error}; OTEL_EVAL_DEBUG=1 shows the traceback"
