"""The pytest plugin: fixtures that record and score the agents of a test, cases from a dataset, and
a report that `otel-eval compare` reads.

It is loaded with every pytest run where the package is installed, so this module imports nothing
but pytest; the rest is imported by the first test that uses it.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from otel_eval.pytest_plugin.recording import SpanRecorder
    from otel_eval.pytest_plugin.runs import RecordedRuns

_MARK: Final = "otel_eval_cases"
_KEY_COLUMNS: Final = ("case", "id", "key", "name")
# lines of the report: as text they pass from the workers of pytest-xdist as they are
_lines_key: Final[pytest.StashKey[list[str]]] = pytest.StashKey()
_recorder_key: Final[pytest.StashKey[SpanRecorder]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--otel-eval-report`."""
    parser.getgroup("otel_eval").addoption(
        "--otel-eval-report",
        metavar="FILE",
        help="Write the scored runs as JSON Lines, which `otel-eval compare` reads.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and check that the report can be written."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(path, key=None): run the test for each record of a dataset (JSON Lines or CSV),"
        " which the fixture otel_eval_case gives; key: the column that names a record",
    )
    config.stash[_lines_key] = []
    report = config.getoption("--otel-eval-report")
    if report:
        folder = Path(report).absolute().parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise pytest.UsageError(
                f"--otel-eval-report {report}: the folder is missing or cannot be written to"
            )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests with the marker over the records of their dataset."""
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return
    if "otel_eval_case" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: marked with {_MARK}, but it does not take the fixture"
            " otel_eval_case"
        )
    records = _records_of(mark, metafunc.definition.path.parent, metafunc.definition.nodeid)
    metafunc.parametrize(
        "otel_eval_case",
        [record for _, record in records.values()],
        ids=[*records],
        indirect=True,
        scope="function",
    )


def _records_of(
    mark: pytest.Mark, folder: Path, test: str
) -> Mapping[str, tuple[int, Mapping[str, Any]]]:
    """Line and record by the record's key: of the first column whose values can be keys."""
    from otel_eval.datasets import FORMATS, InvalidDataset, parse_records

    if len(mark.args) != 1 or mark.kwargs.keys() - {"key"}:
        raise pytest.UsageError(f'{test}: write @pytest.mark.{_MARK}("cases.jsonl", key="id")')
    path = folder / mark.args[0]
    is_folder = path.is_dir()
    if not is_folder and path.suffix not in FORMATS:
        raise pytest.UsageError(
            f"{test}: {path}: name a file that ends in {', '.join(FORMATS)}, or a folder of cases"
        )
    try:
        raw = _cases_in(path) if is_folder else path.read_bytes()
        suffix = ".jsonl" if is_folder else path.suffix
        *first_columns, last_column = [mark.kwargs["key"]] if "key" in mark.kwargs else _KEY_COLUMNS
        for column in first_columns:
            with suppress(InvalidDataset):
                return parse_records(raw, suffix, column)
        return parse_records(raw, suffix, last_column)
    except OSError as error:
        raise pytest.UsageError(f"{test}: {path}: {error.strerror or error}") from None
    except InvalidDataset as error:
        raise pytest.UsageError(f"{test}: {path}: {error}") from None


def _cases_in(folder: Path) -> bytes:
    """The records that `exporters.cases` wrote into a folder, as JSON Lines."""
    from otel_eval.datasets import InvalidDataset

    records = [path.read_bytes().strip() for path in sorted(folder.glob("*.case"))]
    if not records:
        raise InvalidDataset("holds no record of a case (*.case)")
    return b"\n".join(records)


@pytest.fixture
def otel_eval_case(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The record of a test that is marked with `otel_eval_cases`."""
    if not hasattr(request, "param"):
        raise pytest.UsageError(
            f"otel_eval_case: mark the test with @pytest.mark.{_MARK}(path of a dataset)"
        )
    record: Mapping[str, Any] = request.param
    return record


@pytest.fixture
def otel_eval_runs(request: pytest.FixtureRequest) -> Iterator[RecordedRuns]:
    """The agent runs of the test, recorded from its spans: see `RecordedRuns`."""
    from otel_eval.pytest_plugin.recording import SpanRecorder, attach_to_global_provider
    from otel_eval.pytest_plugin.runs import RecordedRuns

    stash = request.config.stash
    if _recorder_key not in stash:
        stash[_recorder_key] = SpanRecorder()
    recorder = stash[_recorder_key]
    attach_to_global_provider(recorder)
    with recorder.recording() as recording:
        yield RecordedRuns(
            recorder,
            recording,
            test=request.node.nodeid,
            lines=stash[_lines_key],
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over the scored runs of a worker of pytest-xdist."""
    node.config.stash[_lines_key] += getattr(node, "workeroutput", {}).get("otel_eval", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report, or hand the scored runs to the process that does."""
    config = session.config
    lines = config.stash[_lines_key]
    worker_output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if worker_output is not None:
        worker_output["otel_eval"] = lines
        return
    report = config.getoption("--otel-eval-report")
    if report:
        from otel_eval.errors import InputError
        from otel_eval.exporters.whole_file import write_whole

        try:
            write_whole(report, "".join(f"{line}\n" for line in lines))
        except InputError as error:
            raise pytest.UsageError(f"--otel-eval-report {error}") from None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a table of the scorers, if anything was scored."""
    lines = terminalreporter.config.stash[_lines_key]
    if lines:
        terminalreporter.section("otel-eval", sep="-")
        for line in _summary_lines(lines):
            terminalreporter.write_line(line)


def _summary_lines(lines: Sequence[str]) -> Iterator[str]:
    """A line for each scorer: how many scores passed, and the mean."""
    results: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for document in map(json.loads, lines):
        for result in document["results"]:
            results[f"{document['evaluation']}/{result['scorer']}"].append(result)
    width = max(map(len, results), default=0)
    for name, of_scorer in sorted(results.items()):
        values = [result["value"] for result in of_scorer if result["value"] is not None]
        outcomes = Counter(result["outcome"] for result in of_scorer)
        counts = [
            f"{sum(result['passed'] is True for result in of_scorer)} of {len(of_scorer)} passed",
            f"mean {fmean(values):.3f}" if values else "no score",
            *(f"{outcomes[word]} {word}" for word in ("skipped", "failed") if outcomes[word]),
        ]
        yield f"{name:<{width}}  {', '.join(counts)}"
