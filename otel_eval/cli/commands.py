"""The commands, their options and exit codes, and the one line on stderr for each error.

Each command imports what it needs when it runs, so that `--version` stays quick. A traceback is printed only with
OTEL_EVAL_DEBUG=1.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from otel_eval.cli.log_format import configure_logging, early_log_format, write_line, writes_json
from otel_eval.errors import OtelEvalError

__all__ = ["OutputClosed", "cli", "main"]

_FORMAT: Final = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True, help="A table, or JSON Lines."
)
_FILES: Final = click.argument("files", nargs=-1, required=True, metavar="FILE...")


class OutputClosed(Exception):
    """Whoever read our output went away."""


class _Commands(click.Group):
    """Takes a broken pipe away from click, which would end the process with an exit code that means something else."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    from otel_eval.versions import build_info

    click.echo("otel-eval {version} ({extension}, Python {python})".format(**build_info()))
    context.exit(0)


@click.group(
    cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show version and build.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Score the tool calls of traced agents.

    Live from OpenTelemetry spans (serve), or from stored traces (replay). Exit codes: 0 good, 1 a score did not pass or
    a scorer failed (replay), 2 the configuration or the input cannot be used, 3 nothing was evaluated (replay).
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.option("--config", metavar="FILE", help="YAML file; without it the default evaluation.")
@click.option("--drain", "last", is_flag=True, help="Take nothing: score and deliver what storage kept, then end.")
def serve(config: str | None, last: bool) -> int:
    """Take OTLP spans and score each run.

    Prints one line when it listens: ready grpc=HOST:PORT http=HOST:PORT. SIGTERM scores what is pending and ends; with
    storage it leaves what is undecided to the next start. SIGHUP reads the evaluations, judges and conventions of the file
    again.
    """
    from otel_eval.cli.serving import drain, run
    from otel_eval.config import load

    return drain(load(config)) if last else run(lambda: load(config), config)


@cli.command()
@click.argument("config")
def check(config: str) -> int:
    """Say whether a configuration can be used."""
    from otel_eval.app.server_wiring import check as verify
    from otel_eval.app.server_wiring import suggestions
    from otel_eval.config import load

    loaded = load(config)
    verify(loaded)
    for suggestion in suggestions(loaded):
        click.echo(f"otel-eval: {suggestion}", err=True)
    scorers = sum(len(each.scorers) for each in loaded.evaluations)
    click.echo(f"{config}: good; {len(loaded.evaluations)} evaluation(s), {scorers} scorer(s)")
    return 0


@cli.command()
def schema() -> int:
    """Print the JSON Schema of the configuration."""
    from otel_eval.app.wiring import config_schema

    click.echo(json.dumps(config_schema(), indent=2))
    return 0


@cli.command()
def scorers() -> int:
    """List the types of scorers."""
    from otel_eval.cli.render import columns
    from otel_eval.scorers import list_scorers
    from otel_eval.scorers.spec.registry import unused_entry_points

    rows = [(name, _scorer_summary(name)) for name in list_scorers()]
    click.echo("\n".join(columns(("type", "what it scores"), rows)))
    for entry_point in unused_entry_points():
        click.echo(f"otel-eval: not used: {entry_point}; the name is ours, so let its package choose another", err=True)
    return 0


@cli.command()
@click.argument("config")
@click.option("--evaluation", metavar="NAME", help="Only the trees of this evaluation.")
@click.option("--scorer", metavar="NAME", help="Only the trees of scorers of this name.")
def dag(config: str, evaluation: str | None, scorer: str | None) -> int:
    """Draw the decision trees of a configuration as Mermaid flowcharts."""
    from otel_eval.cli.trees import drawings
    from otel_eval.config import load

    click.echo(drawings(load(config), evaluation, scorer), nl=False)
    return 0


@cli.command()
def conventions() -> int:
    """List the instrumentations that are understood."""
    from otel_eval.cli.render import columns
    from otel_eval.conventions import TABLES

    rows = [(table.name, {True: "yes", False: "no", None: "unknown"}[table.tool_spans], table.source) for table in TABLES]
    click.echo("\n".join(columns(("convention", "tool spans", "source"), rows)))
    return 0


@cli.command()
@_FILES
@_FORMAT
@click.option("--runs", type=click.Choice(["outermost", "all"]), default="outermost", show_default=True, help="Runs in runs too?")
@click.option("--config", metavar="FILE", help="YAML file with conventions of your own.")
def trajectory(files: tuple[str, ...], form: str, runs: str, config: str | None) -> int:
    """Show what is understood of stored traces: each run and its tool calls.

    Reads OTLP/JSON, JSON Lines, protobuf, Jaeger and Tempo JSON and what the Python SDK's console exporter prints, each
    optionally gzipped.
    """
    from otel_eval.cli.stored import show_trajectories
    from otel_eval.config import load

    return show_trajectories(files, load(config), form=form, every_run=runs == "all")


@cli.command()
@_FILES
@_FORMAT
@click.option("--config", metavar="FILE", help="YAML file; without it the default evaluation.")
@click.option("--trace", "trace_id", metavar="ID", default="", help="Only traces whose id begins so.")
@click.option("--redact", is_flag=True, help="Names and structure only, no values: for a bug report.")
def explain(files: tuple[str, ...], config: str | None, **options: Any) -> int:
    """Explain why there is a score, or none.

    Shows for each trace the scopes and spans, which convention recognised them and why others were ignored, why there is a
    run or not, which evaluations match, which condition failed, and what each skipped scorer lacked. Judges are not asked.
    """
    from otel_eval.cli.stored import show_explanations
    from otel_eval.config import load

    return show_explanations(files, load(config), **options)


@cli.command()
@_FILES
@_FORMAT
@click.option("--config", metavar="FILE", help="YAML file; without it the default evaluation.")
@click.option("--strict", is_flag=True, help="Exit 1 also if a scorer that had something to score was skipped.")
@click.option("--export", is_flag=True, help="Send the scores to the exporters of the configuration too.")
@click.option("--full-ids", is_flag=True, help="Show trace and span ids in full in the table.")
@click.option("--allow-empty", is_flag=True, help="Exit 0 although nothing was evaluated.")
@click.option("--allow-unused", is_flag=True, help="Exit 0 although a record of a dataset file matched no run.")
def replay(files: tuple[str, ...], config: str | None, **options: Any) -> int:
    """Score stored traces.

    Exit 0: every score passed; 1: one did not, or a scorer failed; 2: the configuration or an input cannot be used;
    3: nothing was evaluated, or a record of a dataset file matched no run.
    """
    from otel_eval.cli.stored import show_scores
    from otel_eval.config import load

    return show_scores(files, load(config), **options)


@cli.command()
@_FILES
def merge(files: tuple[str, ...]) -> int:
    """Merge results that several evaluators gave.

    Reads JSON Lines of results and prints one line for each run, evaluation and scorer. Where evaluators knew different
    spans of a trace, its lines have "split": true: they may be wrong. Exit 2: a file or a line cannot be used.
    """
    from otel_eval.cli.merging import merge as merge_files

    return merge_files(files)


def _scorer_summary(name: str) -> str:
    """What a scorer says of itself; of one whose package is broken, that it is: the others are listed all the same."""
    from otel_eval.errors import ConfigError
    from otel_eval.scorers import get_scorer
    from otel_eval.scorers.outcomes import describe_import_error

    try:
        thing = get_scorer(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody else's package does when it is imported
        return f"(cannot be loaded: {error if isinstance(error, ConfigError) else describe_import_error(error)})"
    return _first_line(thing) if callable(thing) else f"(cannot be used: a value of type {type(thing).__name__})"


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


UNUSABLE: Final = 2  # the configuration, the input or the command line
INTERRUPTED: Final = 130  # as a shell says of SIGINT
NO_READER: Final = 141  # as a shell says of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: words after the command's name; those of the process if None.
    """
    logging.basicConfig(format="otel-eval: %(message)s", level=logging.WARNING, stream=sys.stderr)
    if early_log_format(sys.argv[1:] if arguments is None else arguments) == "json":
        configure_logging("json")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a file may be of an encoding that has no arrow
    try:
        code = cli.main(arguments, prog_name="otel-eval", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        # Nothing is said, now or when the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return NO_READER
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last door: whatever it is, a person gets one line
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    debugs = os.environ.get("OTEL_EVAL_DEBUG") == "1"
    if debugs and not writes_json():
        traceback.print_exc()
    write_line(" ".join(_error_line(error).split()), exc_info=(type(error), error, error.__traceback__) if debugs else None)
    return UNUSABLE


def _error_line(error: Exception) -> str:
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
