"""The command `otel-eval`: the commands, their options and exit codes, and the lines on stderr
for each error.

Each command imports what it needs when it runs, so that `--version` stays quick. A traceback is
printed only with OTEL_EVAL_DEBUG=1.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from otel_eval.cli.exit_codes import INTERRUPTED, NO_READER, UNUSABLE
from otel_eval.cli.log_format import (
    configure_logging,
    is_json_configured,
    warn,
    write_line,
    writes_json,
)
from otel_eval.errors import ConfigError, OtelEvalError
from otel_eval.heap import tune_gc
from otel_eval.native import build_info

if TYPE_CHECKING:
    from otel_eval.config import EvalConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])
_PATHS: Final = click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER...")
_CONFIG: Final = click.option(
    "--config",
    metavar="FILE",
    help="YAML file; without it runs are scored for tool errors and duration.",
)
_TRACES_CONFIG: Final = click.option(
    "--config", metavar="FILE", help="YAML file; needed to score stored traces."
)
_OUTPUT: Final = click.option(
    "--output", metavar="FILE", help="Write to this file instead of standard output."
)
_MAX_RUNS: Final = click.option(
    "--max-runs",
    type=click.IntRange(0),
    default=10_000,
    show_default=True,
    help="On a page: after so many runs, show calls only of runs that did not pass.",
)


def _format_option(help_text: str, *forms: str) -> Callable[[_Command], _Command]:
    """The option that chooses one of the forms; the first one is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=help_text,
    )


class OutputClosed(Exception):
    """The reader of standard output closed it (a broken pipe)."""


class _Commands(click.Group):
    """Keeps a broken pipe from click, which would end the process with exit code 1: that means that
    a score did not pass.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise OutputClosed from error


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    message="otel-eval {version} ({extension}, Python {python})".format(**build_info())
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Score the tool calls of traced agents.

    Evaluate live OpenTelemetry spans (serve) or stored traces (replay). Exit codes: 0 success, 1 a
    score did not pass, or a scorer failed or was skipped (replay), 2 the configuration or an input
    is invalid, 3 nothing was evaluated (replay).
    """
    tune_gc()  # before a command imports what it needs, which frees nothing
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@_CONFIG
@click.option(
    "--drain",
    "drains",
    is_flag=True,
    help="Do not listen: score and deliver what storage kept, then exit.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Processes that evaluate; overrides `workers` of the file.",
)
@click.option(
    "--ui",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value="",
    help="Serve a page with the last runs, at 127.0.0.1:4319 if no address follows.",
)
def serve(config: str | None, drains: bool, workers: int | None, ui: str | None) -> int:
    """Receive OTLP spans and score each run.

    Prints one line when it is ready: ready grpc=HOST:PORT http=HOST:PORT. SIGTERM scores pending
    traces, delivers the scores and exits; with storage, open traces stay there for the next start.
    SIGHUP reloads evaluations, judges and conventions from the file.
    """
    from otel_eval.cli.serving import drain, run
    from otel_eval.config import DEFAULT_UI_ENDPOINT, load, located, with_ui

    def read() -> EvalConfig:
        loaded = load(config)
        if ui is not None:
            loaded = with_ui(loaded, ui or loaded.ui.endpoint or DEFAULT_UI_ENDPOINT)
        return loaded.model_copy(update={"workers": workers}) if workers else loaded

    try:
        return drain(read()) if drains else run(read, config)
    except ConfigError as error:
        raise located(error, config) if config else error from None


@cli.command()
@click.argument("config")
@click.option(
    "--against",
    is_flag=True,
    help="Also show what each rule decides on the runs of the TRACES that follow.",
)
@click.argument("traces", nargs=-1)
def check(config: str, against: bool, traces: tuple[str, ...]) -> int:
    """Check a configuration file and report every problem.

    With --against TRACES...: how many runs pass each rule, do not pass it or are skipped, and which
    rules nothing could break. Judges are not called.
    """
    from otel_eval.app.checking import check as verify
    from otel_eval.app.checking import suggestions
    from otel_eval.config import load, located
    from otel_eval.scorers.tool_names import plural

    if against != bool(traces):
        raise click.UsageError("write otel-eval check CONFIG --against FILE, or several")
    loaded = load(config)
    try:
        verify(loaded)  # what the schema cannot check: files, credentials, conflicts of sections
    except ConfigError as error:
        raise located(error, config) from None
    warn(suggestions(loaded))
    scorers = plural(sum(len(evaluation.scorers) for evaluation in loaded.evaluations), "scorer")
    default = "" if "evaluations" in loaded.model_fields_set else " (the default: none is named)"
    click.echo(
        f"{config}: valid; {plural(len(loaded.evaluations), 'evaluation')}{default}, {scorers}"
    )
    if not against:
        return 0
    from otel_eval.cli.stored import show_coverage

    return show_coverage(traces, loaded)


@cli.command()
def schema() -> int:
    """Print the JSON Schema of the configuration."""
    from otel_eval.app.build import config_schema

    click.echo(json.dumps(config_schema(), indent=2))
    return 0


@cli.command()
def scorers() -> int:
    """List the types of scorers, each with what it scores."""
    from otel_eval.exporters.text_table import columns
    from otel_eval.scorers import list_scorers

    rows = [(name, _scorer_summary(name)) for name in list_scorers()]
    click.echo("\n".join(columns(("type", "what it scores"), rows)))
    return 0


@cli.command()
@click.argument("config")
def dag(config: str) -> int:
    """Draw decision trees as Mermaid flowcharts.

    A comment before each names its evaluation and scorer.
    """
    from otel_eval.config import load
    from otel_eval.scorers.dag import Dag

    trees = [(name, tree) for name, tree in load(config).named_scorers() if isinstance(tree, Dag)]
    if not trees:
        raise ConfigError(
            f"{config}: there is no scorer of type dag; add one, see docs/reference/dag.md"
        )
    click.echo(
        "\n".join(
            f"%% {_comment(of)} / {_comment(tree.name)}\n{tree.drawing()}" for of, tree in trees
        ),
        nl=False,
    )
    return 0


def _comment(name: str) -> str:
    """The name on one line and without `%%{`: Mermaid executes directives in comments too."""
    return " ".join(name.split()).replace("%%{", "%% {")


@cli.command()
def conventions() -> int:
    """List the supported instrumentations.

    With each: whether every tool call leaves a span, and the source of its convention.
    """
    from otel_eval.conventions import TABLES
    from otel_eval.exporters.text_table import columns

    rows = [
        (table.name, {True: "yes", False: "no", None: "unknown"}[table.tool_spans], table.source)
        for table in TABLES
    ]
    click.echo("\n".join(columns(("convention", "tool spans", "source"), rows)))
    return 0


@cli.command()
@_PATHS
@_format_option("A table, or JSON Lines.", "table", "json")
@click.option(
    "--runs",
    type=click.Choice(["outermost", "all", "tools"]),
    default="outermost",
    show_default=True,
    help="Show runs within runs too, or instead the tool calls of no agent run.",
)
@click.option("--config", metavar="FILE", help="YAML file; its conventions are used too.")
def trajectory(paths: tuple[str, ...], form: str, runs: str, config: str | None) -> int:
    """Show the runs in stored traces with their tool calls.

    Reads OTLP/JSON, JSON Lines, protobuf, Jaeger and Tempo JSON and the output of the Python SDK's
    console exporter, each optionally gzipped.
    """
    from otel_eval.cli.stored import show_trajectories
    from otel_eval.config import load

    return show_trajectories(paths, load(config), form=form, runs=runs)


@cli.command()
@_PATHS
@_CONFIG
@click.option(
    "--trace", "trace_id", metavar="ID", default="", help="Only traces whose id begins with this."
)
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out all values, for a bug report: names and structure only.",
)
def explain(paths: tuple[str, ...], config: str | None, **options: Any) -> int:
    """Explain why there is a score, or none.

    Shows for each trace the scopes and spans, the convention that recognised each span, why other
    spans were ignored, why there is a run or none, the evaluations that match, the condition that
    failed otherwise, and what each skipped scorer lacked. Judges are not called.
    """
    from otel_eval.cli.stored import show_explanations
    from otel_eval.config import load

    return show_explanations(paths, load(config), **options)


@cli.command()
@_PATHS
@_format_option(
    "A table, JSON Lines, JUnit XML for CI, Markdown for a comment on a change, or a page.",
    "table",
    "json",
    "junit",
    "markdown",
    "html",
)
@_OUTPUT
@_CONFIG
@click.option(
    "--not-passed", is_flag=True, help="Show only what did not pass, was skipped or failed."
)
@click.option(
    "--min-pass-rate",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Accept scores that do not pass, if of each scorer this share passes, e.g. 0.95.",
)
@click.option("--allow-skipped", is_flag=True, help="Exit 0 even if a scorer was skipped.")
@click.option("--export", is_flag=True, help="Also send the scores to the configured exporters.")
@click.option("--full-ids", is_flag=True, help="Show trace and span ids in full in the table.")
@_MAX_RUNS
@click.option(
    "--allow-empty",
    is_flag=True,
    help="Exit 0 even if nothing was evaluated; includes --allow-skipped.",
)
@click.option(
    "--allow-unused", is_flag=True, help="Exit 0 even if a record of a dataset file matched no run."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Processes that evaluate; the output is the same.",
)
def replay(paths: tuple[str, ...], config: str | None, **options: Any) -> int:
    """Score stored traces.

    Exit codes: 0 every score passed; 1 a score did not pass, or a scorer failed or was skipped
    although it applies; 2 the configuration or an input is invalid, or results were not exported; 3
    nothing was evaluated, or a record of a dataset file matched no run.
    """
    from otel_eval.cli.replaying import show_scores
    from otel_eval.config import load

    return show_scores(paths, load(config), **options)


@cli.command()
@click.argument("inputs", nargs=-1, required=True, metavar="BEFORE AFTER | FILE...")
@_TRACES_CONFIG
@click.option(
    "--case",
    metavar="KEY",
    default="",
    help="The field or attribute that holds the key of a declared case, e.g. test.case.id.",
)
@click.option(
    "--by",
    metavar="FIELD",
    default="",
    help="Take both sides from all files: by this field or attribute, e.g. service.version.",
)
@click.option("--before", metavar="VALUE", help="With --by: its value before.")
@click.option("--after", metavar="VALUE", help="With --by: its value after.")
@click.option(
    "--allow-lost",
    is_flag=True,
    help="Exit 0 even if runs are not scored any more, or a declared case did not run.",
)
@_format_option(
    "A table, Markdown for a pull request, or one JSON object.", "table", "markdown", "json"
)
@_OUTPUT
def compare(inputs: tuple[str, ...], **options: Any) -> int:
    """Compare results with earlier ones.

    Inputs are files or folders with results (JSON Lines, or a report of pytest) or with stored
    traces. Exit codes: 0 nothing got worse; 1 a scorer passes less often than before, beyond noise,
    or scores less; 2 an input is invalid; 3 there is nothing to compare.
    """
    from otel_eval.cli.comparing import show_comparison

    return show_comparison(inputs, **options)


@cli.command()
@_PATHS
@_TRACES_CONFIG
@click.option(
    "--endpoint",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where to serve the page, on this machine; port 0 chooses a free one.",
)
@_MAX_RUNS
def view(paths: tuple[str, ...], config: str | None, endpoint: str, max_runs: int) -> int:
    """Show stored runs on a page, until Ctrl-C.

    Reads results (JSON Lines, or a report of pytest), or stored traces, which are scored by the
    evaluations of --config. Only traces have the calls of runs.
    """
    from otel_eval.cli.inputs import files_of
    from otel_eval.cli.viewing import view as serve_page
    from otel_eval.config import load, with_ui

    loaded = with_ui(load(config), endpoint)
    return serve_page(
        files_of(paths),
        loaded,
        is_configured=config is not None,
        endpoint=endpoint,
        max_runs=max_runs,
    )


@cli.command()
@_PATHS
@click.option("--config", metavar="FILE", help="YAML file; its conventions and limits are used.")
@click.option("--output", metavar="FILE", help="Write to this new file; none is overwritten.")
def suggest(paths: tuple[str, ...], config: str | None, output: str | None) -> int:
    """Write a policy from observed runs.

    For each agent of the stored traces: the tools that every run called and those that none did,
    their order and number, time and tokens, each with the number of runs in which it was seen.
    Every observed run passes what is suggested. Exit codes: 2 an input is invalid, 3 there is no
    run whose calls are known.
    """
    from otel_eval.cli.suggesting import write_suggestion
    from otel_eval.config import load

    return write_suggestion(paths, load(config), output)


@cli.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def merge(files: tuple[str, ...]) -> int:
    """Merge the results of several evaluators.

    Reads JSON Lines of results and prints one line for each run, evaluation and scorer. Lines of a
    trace of which the evaluators received different spans have "split": true: they may be wrong.
    Exit code 2: a file or a line is invalid.
    """
    from otel_eval.cli.results import valid_rows
    from otel_eval.exporters.result_rows import encoded
    from otel_eval.merging import merge_results

    problems: list[str] = []
    for row in merge_results(*(valid_rows(file, problems) for file in files)):
        click.echo(encoded([row]), nl=False)
    warn(problems)
    return UNUSABLE if problems else 0


def _scorer_summary(name: str) -> str:
    """The first paragraph of a scorer's docstring, or why the scorer cannot be loaded, so that the
    others are still listed.
    """
    from otel_eval.scorers import get_scorer
    from otel_eval.scorers.user_code import describe_import_error

    try:
        registered = get_scorer(name)
    # a plug-in may raise anything on import
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return (
            "(cannot be loaded:"
            f" {error if isinstance(error, ConfigError) else describe_import_error(error)})"
        )
    # An entry point may name anything, for instance a constant.
    if not callable(registered):
        return f"(cannot be used: a value of type {type(registered).__name__})"
    return (registered.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: the words after the command's name; None: those of the process.
    """
    logging.basicConfig(format="otel-eval: %(message)s", level=logging.WARNING, stream=sys.stderr)
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    # Errors are printed before the configuration is loaded, and a collector of logs expects JSON
    # from the first line on.
    if "serve" in words and any(
        is_json_configured(word.removeprefix("--config=")) for word in words
    ):
        configure_logging("json")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # the encoding of a file may lack a character, such as an arrow
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Not standalone: click would exit the process itself, with codes that mean something else
        # here.
        code = cli.main(words, prog_name="otel-eval", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosed, BrokenPipeError):
        # No message, neither now nor when the interpreter flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return NO_READER
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last handler: every error becomes one line
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    """Write the lines of an error to stderr, with a traceback if OTEL_EVAL_DEBUG=1, and return the
    exit code.
    """
    debugs = os.environ.get("OTEL_EVAL_DEBUG") == "1"
    if debugs and not writes_json():
        traceback.print_exc()
    for line in error.problem_lines() if isinstance(error, ConfigError) else [_error_line(error)]:
        write_line(
            " ".join(line.split()),
            exc_info=(type(error), error, error.__traceback__) if debugs else None,
        )
    return UNUSABLE


def _error_line(error: Exception) -> str:
    """The message of an error; only unexpected errors show their type."""
    if isinstance(error, OtelEvalError):
        return str(error)
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "otel-eval"
        problem = error.format_message().rstrip(".")
        return (
            f"{problem} See {command} --help"
            if problem.endswith("?")
            else f"{problem}; see {command} --help"
        )
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"unexpected {type(error).__name__}: {error}; OTEL_EVAL_DEBUG=1 shows the traceback"
