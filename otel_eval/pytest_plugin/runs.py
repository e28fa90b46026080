"""What the fixture `otel_eval_runs` gives: the runs of a test, and assertions about them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_eval.app.stored_traces import explain_spans, score_spans, trajectories
from otel_eval.cli.explanation import Disclosure, explanation_block
from otel_eval.config import EvalConfig, load
from otel_eval.errors import ConfigError
from otel_eval.exporters.result_rows import line_of
from otel_eval.exporters.run_documents import run_document
from otel_eval.exporters.text_table import plain
from otel_eval.interfaces import Scorer
from otel_eval.model import INAPPLICABLE_REASONS, Report, Result, Scored, Skipped, Trajectory
from otel_eval.pytest_plugin.recording import Recording, SpanRecorder
from otel_eval.scorers.tool_names import plural, shortened

Policy = str | os.PathLike[str] | Mapping[str, Any] | Scorer | Sequence[Scorer | Mapping[str, Any]]
"""The file of a configuration, a configuration as a mapping, or one or several scorers."""

_TIMEOUT_S: Final = 5.0
_EVALUATION: Final = "pytest"
_LONGEST: Final = 60  # characters of the arguments of a call


class RecordedRuns:
    """The agent runs of the test that uses the fixture `otel_eval_runs`.

    Spans are recorded from the global tracer provider, and from those that `attach` is given. A
    span belongs to the test in which its trace began.
    """

    def __init__(
        self,
        recorder: SpanRecorder,
        recording: Recording,
        *,
        test: str,
        lines: list[str],
    ) -> None:
        self._recorder, self._recording = recorder, recording
        self._test, self._lines = test, lines

    def attach(self, provider: TracerProvider) -> None:
        """Also record the spans of a provider that is not the global one."""
        self._recorder.attach(provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of the test that have ended so far."""
        return list(self._recording.ended)

    def all(self, timeout: float = _TIMEOUT_S) -> list[Trajectory]:
        """Return every outermost run, after waiting for spans that are still open.

        Args:
            timeout: how many seconds to wait at most.

        Raises:
            AssertionError: spans are still open after that time.
        """
        __tracebackhide__ = True
        still_open = self._recorder.wait_until_ended(self._recording, timeout)
        if still_open:
            names = ", ".join(plain(name) for name in still_open[:5])
            raise AssertionError(
                f"{plural(len(still_open), 'span')} still open after {timeout:g} s: {names}"
            )
        return [run for run in trajectories(self.spans) if run.outermost]

    def one(self, timeout: float = _TIMEOUT_S) -> Trajectory:
        """Return the only outermost run.

        Raises:
            AssertionError: there is none, or there are several; the message lists what was
                recorded.
        """
        __tracebackhide__ = True
        runs = self.all(timeout)
        if len(runs) == 1:
            return runs[0]
        if runs:
            listed = "\n".join(f"  {_run_line(run)}" for run in runs)
            raise AssertionError(f"{len(runs)} runs were recorded, not one:\n{listed}")
        raise AssertionError("\n".join(["no run was recorded", *self._why_none()]))

    def _why_none(self) -> Iterator[str]:
        """Yield lines that say why no run was recorded."""
        if not self.spans:
            yield "  no span was recorded: is the agent instrumented, and does it use the global"
            yield "  tracer provider? Otherwise pass its provider to otel_eval_runs.attach()."
        for explained in explain_spans(self.spans):
            yield from explanation_block(explained, Disclosure(redact=not shows_content()))

    def assert_tools(
        self,
        expected: Sequence[Any],
        *,
        run: Trajectory | None = None,
        allow_skipped: bool = False,
        include_content: bool | None = None,
        **options: Any,
    ) -> None:
        """Assert that a run called the expected tools.

        Args:
            expected: what `trajectory_match` takes: names, or mappings with name, arguments and
                result; a list within the list is in any order.
            run: the run; by default the only one.
            allow_skipped: whether the test passes where the comparison is skipped.
            include_content: whether a failure shows arguments; by default on a terminal, where the
                variable `CI` is not set.
            options: further parameters of `trajectory_match`, such as `match`, `extra`,
                `arguments`.

        Raises:
            AssertionError: the score does not pass, or there is none.
        """
        __tracebackhide__ = True
        spec = {"type": "trajectory_match", "name": "tools", "expected": expected, **options}
        run = run or self.one()
        report = self._scored(run, [spec], include_content)[0]
        shown = shows_content() if include_content is None else include_content
        problems = _problem_lines(report.results, allow_skipped=allow_skipped)
        if problems:
            compared = _side_by_side(expected, run, content=shown)
            raise AssertionError("\n".join([_headline(report), *compared, *problems]))

    def assert_scores(
        self,
        policy: Policy,
        *,
        run: Trajectory | None = None,
        allow_skipped: bool = False,
        include_content: bool | None = None,
    ) -> None:
        """Assert that every score of a run passes.

        Args:
            policy: the file of a configuration or the configuration as a mapping, whose evaluations
                apply as they match; or one or several scorers.
            run: the run; by default the only one.
            allow_skipped: whether the test passes where a scorer that applies is skipped.
            include_content: whether scorers may show content in their explanations; by default as
                each of them is configured.

        Raises:
            AssertionError: a score does not pass, a scorer failed or was skipped, or no evaluation
                applies to the run.
        """
        __tracebackhide__ = True
        run = run or self.one()
        failures = []
        for report in self._scored(run, policy, include_content):
            problems = _problem_lines(report.results, allow_skipped=allow_skipped)
            if problems:
                failures += [_headline(report), *problems]
        if failures:
            calls = ", ".join(call.name for call in run.calls) or "none"
            raise AssertionError("\n".join([*failures, f"  calls: {plain(calls)}"]))

    def _scored(
        self, run: Trajectory, policy: Policy, include_content: bool | None
    ) -> list[Report]:
        """Score the recorded spans, and return the reports on a run, which are noted for the report
        file.
        """
        __tracebackhide__ = True
        config = _config_of(policy)
        reports = [
            report
            for report in score_spans(self.spans, config)
            if (report.trajectory.trace_id, report.trajectory.span_id)
            == (run.trace_id, run.span_id)
        ]
        if not reports:
            names = ", ".join(evaluation.name for evaluation in config.evaluations)
            raise AssertionError(
                f"no evaluation of the policy matches the run {_run_line(run)}; its evaluations:"
                f" {names}"
            )
        for report in reports:
            document = run_document(report, content=include_content is True)
            self._lines.append(line_of({**document, "case": self._test}))
        return reports


def shows_content() -> bool:
    """Whether failures show content: a person looks at the output, on a terminal and not in CI."""
    terminal = sys.__stdout__
    return terminal is not None and terminal.isatty() and "CI" not in os.environ


def _config_of(policy: Policy) -> EvalConfig:
    """The configuration of a policy; scorers without one evaluate every run."""
    if isinstance(policy, str | os.PathLike):
        return load(policy)
    if isinstance(policy, Mapping) and "type" not in policy:
        return load(policy)
    scorers = list(policy) if isinstance(policy, Sequence) else [policy]
    if not scorers:
        raise ConfigError("policy: []; name a scorer")
    return load(
        {"evaluations": [{"name": _EVALUATION, "match": {"runs": "all"}, "scorers": scorers}]}
    )


def _run_line(run: Trajectory) -> str:
    name = plain(run.agent or run.name or "(unnamed)")
    calls = ", ".join(plain(call.name) for call in run.calls[:10])
    return f"{name} (trace {run.trace_id}, {plural(len(run.calls), 'call')}: {calls})"


def _headline(report: Report) -> str:
    verdict = f": {report.verdict.replace('_', ' ')}" if report.verdict else ""
    return f"{report.evaluation}{verdict}, run {_run_line(report.trajectory)}"


def _problem_lines(results: Iterable[Result], *, allow_skipped: bool) -> list[str]:
    """A line for each result that makes a test fail."""
    lines = []
    for result in results:
        outcome = result.outcome
        if outcome.passed or result.severity == "warn":
            continue
        if isinstance(outcome, Skipped) and (
            allow_skipped or outcome.reason in INAPPLICABLE_REASONS
        ):
            continue
        if isinstance(outcome, Scored):
            least = "" if result.threshold is None else f", at least {result.threshold:g} passes"
            word = f"{outcome.value:.3g}{least}"
        else:
            word = type(outcome).__name__.lower()
        lines.append(f"  {result.scorer}: {word}: {plain(outcome.explanation)}")
    return lines


def _side_by_side(expected: Sequence[Any], run: Trajectory, *, content: bool) -> Iterator[str]:
    """Expected and actual calls in two columns; `-` marks a missing and `+` a further call."""
    expected_calls = [*_expected_calls(expected, content=content)]
    actual = [(call.name, _call_text(call.name, call.arguments, content)) for call in run.calls]
    width = max([len("expected"), *(len(text) for _, text in expected_calls)])
    yield f"    {'expected':<{width}}   actual"
    matcher = SequenceMatcher(
        None, [name for name, _ in expected_calls], [name for name, _ in actual], autojunk=False
    )
    for operation, begin, end, other_begin, other_end in matcher.get_opcodes():
        rows = max(end - begin, other_end - other_begin)
        for row in range(rows):
            one = expected_calls[begin + row][1] if begin + row < end else ""
            two = actual[other_begin + row][1] if other_begin + row < other_end else ""
            mark = " " if operation == "equal" else "-" if not two else "+" if not one else "!"
            yield f"  {mark} {one:<{width}}   {two}".rstrip()


def _expected_calls(expected: Sequence[Any], *, content: bool) -> Iterator[tuple[str, str]]:
    """Yield name and text of each expected call, in order."""
    for item in expected:
        if isinstance(item, str):
            yield item, plain(item)
        elif isinstance(item, Mapping):
            name = str(item.get("name", ""))
            yield name, _call_text(name, item.get("arguments"), content)
        else:
            yield from _expected_calls(item, content=content)


def _call_text(name: str, arguments: Any, content: bool) -> str:
    if not content or not isinstance(arguments, Mapping) or not arguments:
        return plain(name)
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return plain(f"{name} {shortened(text, _LONGEST)}")
