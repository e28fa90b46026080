"""Explains why scores are missing: counts what was not evaluated, and logs one warning per process
if nothing was evaluated.

Results are counted by scorer, outcome and error type; a scorer that fails is logged once a minute.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from otel_eval.counters import (
    BoundedNames,
    CountName,
    Counts,
    Warnings,
    count_name,
    renew_after_fork,
)
from otel_eval.errors import redacted_repr
from otel_eval.evaluations import FailedCondition, RunMatch, ScorerSet
from otel_eval.exporters.result_rows import outcome_of
from otel_eval.interfaces import NO_RUN, ClosedTrace
from otel_eval.model import (
    UNKNOWN_REASONS,
    UNRECORDED,
    Completeness,
    Failed,
    Report,
    Skipped,
    Trajectory,
)
from otel_eval.scorers.tool_names import ToolNameCheck, plural, some_of

_log = logging.getLogger("otel_eval")


class DiagnosedProcess(Protocol):
    """The process whose missing scores are diagnosed."""

    def counts(self) -> Counts | Mapping[str, Any]:
        """The counters of all its parts."""

    def why_no_span(self) -> str:
        """A possible reason why no span has arrived; "" if there is nothing to warn of."""


CHECK_AFTER_S: Final = 60.0
_END_IT: Final = "a run is evaluated when its own span has ended"
_LONGEST_SCOPE: Final = 200
_MOST_NAMED: Final = 5  # scopes, services and the like in one log line
_MOST_SCOPES: Final = 100
_MOST_ERRORS: Final = 100  # error types: user-defined scorers may raise anything
_FULL: Final = (
    "traces.max_traces or traces.max_bytes is reached: the oldest traces are evaluated on what has"
    " arrived; raise it"
)
# What to look at when a judge gave no score, by error type; docs/how-to/judges.md explains each.
_JUDGE_REMEDIES: Final = {
    "judge_unavailable": "check base_url, and that the endpoint runs",
    "judge_refused": "check base_url, the model's name and the key",
    "judge_rate_limited": "lower per_minute of the judge",
    "judge_timeout": "raise timeout of the judge, or lower async_scoring.concurrency",
    "judge_truncated": "raise max_tokens in parameters of the judge",
    "judge_queue_full": "raise async_scoring.max_queue, or lower sample of the scorer",
}
_REMEDY: Final = "raise the limit, or record less content (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)"


class UnmatchedRuns(NamedTuple):
    """Outermost runs that meet the conditions of no evaluation, so that they have no score; inner
    runs and those outside a sample are not among them.

    Attributes:
        runs: how many there are.
        found: how many runs were found altogether.
        example: the most frequent kind of them, and the conditions that it does not meet; "" if
            unknown.
    """

    runs: int = 0
    found: int = 0
    example: str = ""

    def text(self) -> str:
        """A sentence about them; "" if there are none."""
        if not self.runs:
            return ""
        example = f"; most often {self.example}" if self.example else ""
        return (
            f"{self.runs} of {plural(self.found, 'run')} matched no evaluation, without a score"
            f"{example}"
        )


class Coverage:
    """Counts runs and results of evaluated traces. May be called from any thread.

    Args:
        evaluations: the evaluations in use.
        live: whether traces arrive without an end, so that suspicious names in policies are
            reported at once.

    Attributes:
        runs, matched: agent runs that were found, and those of them that at least one evaluation
            matched.
        traces_without_run, unended: traces without a run, and those of them with a span that never
            ended.
        lone_calls: tool calls that belong to no agent run, and that no evaluation matched.
        evaluations: the evaluations in use.
    """

    def __init__(self, evaluations: Sequence[ScorerSet] = (), *, live: bool) -> None:
        self._live: Final = live
        self.use(evaluations)
        self._lock = threading.Lock()  # guards what follows
        renew_after_fork(self)
        self.runs = self.matched = self.traces_without_run = self.unended = self.lone_calls = 0
        self._scopes: Final = BoundedNames(_MOST_SCOPES)
        self._spans_of: Final[Counter[str]] = Counter()  # spans in traces without a run, by scope
        # runs that no evaluation matched, by service, agent and span name
        self._unmatched: Final[Counter[str]] = Counter()
        self._missed: Final[Counter[str]] = Counter()  # those in `unmatched_runs`, by the same
        self._missed_runs = 0
        # by the same: the conditions of each evaluation that such a run does not meet
        self._mismatches: Final[dict[str, list[str]]] = {}
        # by scorer, outcome and error type
        self._results: Final[Counter[tuple[str, str, str]]] = Counter()
        self._skipped: Final[Counter[str]] = Counter()  # by reason
        self._errors: Final = BoundedNames(_MOST_ERRORS)
        self._pending = 0

    def use(self, evaluations: Sequence[ScorerSet]) -> None:
        """Replace the evaluations in use."""
        self.evaluations = evaluations
        self._tool_names = ToolNameCheck(
            {evaluation.name: evaluation.scorers for evaluation in evaluations}, live=self._live
        )

    def observe(self, trace: ClosedTrace, runs: Sequence[RunMatch]) -> list[Trajectory]:
        """Count the runs of an evaluated trace, and return the new ones."""
        last = trace.history.evaluations
        alone = {
            bytes.fromhex(run.span_id)
            for run, matching in runs
            if run.is_tool_call and not matching
        }
        if (
            trace.frames
            and len(alone) == len(runs)
            and last.keys() <= {NO_RUN, *alone}
            and trace.changed is None
        ):
            self.without_run(trace)
        new = [
            match
            for match in runs
            if (before := last.get(bytes.fromhex(match.trajectory.span_id))) is None
            or not before.revision
        ]
        with self._lock:
            for run, matching in new:
                if run.is_tool_call and not matching:
                    self.lone_calls += 1
                else:
                    self._count(run, bool(matching))
            due = [
                warning
                for run, matching in runs
                for warning in self._tool_names.observe(
                    run, [evaluation.name for evaluation in matching]
                )
            ]
        for warning in due:
            _log.warning("%s", warning)
        return [run for run, _ in new]

    def tool_name_warnings(self) -> list[str]:
        """Warnings, at the end, of tools in policies that no run called, if they are required or
        their names may be misspelt.
        """
        return self._tool_names.finish()

    def _count(self, run: Trajectory, matched: bool) -> None:
        self.runs += 1
        self.matched += matched
        if matched:
            return
        called = (
            f"service {redacted_repr(run.service)} agent {redacted_repr(run.agent)} span"
            f" {redacted_repr(run.name)}"
        )
        # whatever the draw of its trace: at 0 every sample holds
        is_missed = run.outermost and not any(
            evaluation.sample < 1 and evaluation.applies(run, 0.0)
            for evaluation in self.evaluations
        )
        self._missed_runs += is_missed
        if called not in self._mismatches:
            if len(self._mismatches) >= _MOST_SCOPES:
                return
            self._mismatches[called] = [
                f"evaluation {redacted_repr(evaluation.name)} does not match:"
                f" {_conditions_text(failed)}"
                for evaluation in self.evaluations[:_MOST_NAMED]
                if (failed := [*evaluation.applies.failed(run, 0.0)])
            ]
        self._unmatched[called] += 1
        self._missed[called] += is_missed

    def understood(
        self, trace: ClosedTrace, found: Sequence[Trajectory], runs: Sequence[Trajectory]
    ) -> None:
        """Count what was found in a trace that is not evaluated: whether it has runs, and calls
        that are none.
        """
        with self._lock:
            self.lone_calls += len(found) - len(runs)
        if not runs:
            self.without_run(trace)

    def without_run(self, trace: ClosedTrace) -> None:
        """Count a trace without a run."""
        scopes = Counter([_printable(frame[2].scope_name) for frame in trace.frames.values()])
        with self._lock:
            self.traces_without_run += 1
            self.unended += trace.reason is Completeness.SHUTDOWN
            for scope, spans in scopes.items():
                self._spans_of[self._scopes.name(scope)] += spans

    def add(self, report: Report) -> list[tuple[str, Failed, str, int]]:
        """Count the results of a report, and return the failed ones: scorer, outcome, error type,
        and how often both occurred.
        """
        failed = []
        with self._lock:
            self._pending += len(report.pending)
            for result in report.results:
                outcome = result.outcome
                error = self._errors.name(outcome.error_type) if isinstance(outcome, Failed) else ""
                key = (result.scorer, outcome_of(result), error)
                self._results[key] += 1
                if isinstance(outcome, Skipped):
                    self._skipped[outcome.reason] += 1
                if isinstance(outcome, Failed):
                    failed.append((result.scorer, outcome, error, self._results[key]))
        return failed

    @property
    def has_results(self) -> bool:
        """Whether a result is pending, scored, failed or too large, or none was skipped for missing
        evidence.
        """
        unknown = self._unknown()
        with self._lock:
            skipped = self._skipped.total() - self._skipped["too_large"]
            return self._pending > 0 or self._results.total() > (skipped if unknown else 0)

    def _unknown(self) -> list[tuple[str, int]]:
        """Results that were skipped for a reason that leaves a run unevaluated, the most frequent
        reason first.
        """
        with self._lock:
            unknown = {
                reason: count
                for reason, count in self._skipped.items()
                if reason in UNKNOWN_REASONS
            }
        return Counter(unknown).most_common()

    def counts(self) -> dict[CountName, int]:
        """The counters of runs, of what was not evaluated, and of results by scorer and outcome."""
        with self._lock:
            unmatched = self.runs - self.matched
            counts: dict[CountName, int] = {
                "runs": self.runs,
                "runs_unmatched": unmatched,
                "traces_without_run": self.traces_without_run,
                "tool_calls_without_run": self.lone_calls,
            }
            spans, skipped, results = (
                sorted(self._spans_of.items()),
                sorted(self._skipped.items()),
                sorted(self._results.items()),
            )
        counts |= {count_name("spans_without_run", scope=scope): count for scope, count in spans}
        for (scorer, outcome, error), count in results:
            labels = {"scorer": scorer, "outcome": outcome} | (
                {"error_type": error} if error else {}
            )
            counts[count_name("scorers.results", **labels)] = count
        return counts | {
            count_name("results.skipped", reason=reason): count for reason, count in skipped
        }

    def why_nothing(self) -> str:
        """Why no run was evaluated, as far as known; "" if one matched and no result was skipped
        for missing evidence.
        """
        if not self.runs:
            return self.no_run()
        if not self.matched:
            return f"{'; '.join(self._no_match())}; correct match or sample in the configuration"
        unknown = self._unknown()
        return (
            "every scorer was skipped"
            f" ({', '.join(f'{reason} {count}' for reason, count in unknown)})"
            if unknown
            else ""
        )

    def why_no_score(self) -> list[str]:
        """Why no run was evaluated, as far as known, in lines."""
        if self.runs and not self.matched:
            return self._no_match()
        why = self.why_nothing() if self.runs or self.traces_without_run else ""
        return [why] if why else []

    def unmatched_runs(self) -> UnmatchedRuns:
        """The runs that no evaluation matched although others did; none while none matched, of
        which `why_nothing` tells.
        """
        with self._lock:
            if not self._missed_runs or not self.matched:
                return UnmatchedRuns(found=self.runs)
            examples = [
                f"{called} ({count}): {self._mismatch_text(called)}"
                for called, count in self._missed.most_common(1)
            ]
            return UnmatchedRuns(self._missed_runs, self.runs, "".join(examples))

    def no_run(self) -> str:
        """A text with the number of spans in traces without a run, by scope."""
        with self._lock:
            scopes, lone_calls = self._spans_of.most_common(), self.lone_calls
        named = [
            f"{redacted_repr(name) if name else '(unnamed)'} ({count})"
            for name, count in scopes[:_MOST_NAMED]
        ]
        spans = plural(sum(count for _, count in scopes), "span")
        lone = f"; {lone_calls_text(lone_calls)}" if lone_calls else ""
        of_scopes = f" of scopes {some_of(named, len(scopes))}" if scopes else ""
        return f"no agent run found in {spans}{of_scopes}{lone}"

    def _no_match(self) -> list[str]:
        """That no evaluation matched, and for the most frequent kinds of runs which condition of
        each evaluation they do not meet, as `otel-eval explain` shows it.
        """
        with self._lock:
            kinds = self._unmatched.most_common(_MOST_NAMED)
            return [
                f"no evaluation matched any of {plural(self.runs, 'run')}",
                *(f"{called} ({count}): {self._mismatch_text(called)}" for called, count in kinds),
            ]

    def _mismatch_text(self, called: str) -> str:
        return "; ".join(self._mismatches[called]) or "outside the sample"


def lone_calls_text(calls: int) -> str:
    """What to do about tool calls that belong to no agent run."""
    return (
        f"{plural(calls, 'tool call')} of no agent run, such as an MCP server's, not evaluated:"
        " trace the agent that calls, or evaluate each call by itself (match: {runs: tools})"
    )


class Diagnostics(Coverage):
    """Counts runs and results of live traces, and warns of missing spans and scores. May be called
    from any thread.

    Args:
        process: knows the counters of all parts, and why no span may have arrived.
        evaluations: the evaluations in use; none if other processes evaluate and diagnose: then the
            only warning is of missing spans.
        one_process: whether every span is of this process, so that a tool span outside an open run
            belongs to that run.
    """

    def __init__(
        self,
        process: DiagnosedProcess,
        evaluations: Sequence[ScorerSet] = (),
        *,
        one_process: bool = False,
    ) -> None:
        super().__init__(evaluations, live=True)
        self._process: Final = process
        self._lost_context: Final = LostContext() if one_process else None
        self._warnings: Final = Warnings()
        self._shows_place: Final = os.environ.get("OTEL_EVAL_DEBUG") == "1"
        self._timer: Final = threading.Timer(CHECK_AFTER_S, _check, (weakref.ref(self),))
        self._timer.daemon, self._timer.name = True, "otel-eval-check"
        with suppress(RuntimeError):  # the interpreter is ending
            self._timer.start()

    def examine(
        self, trace: ClosedTrace, runs: Sequence[RunMatch], reports: Sequence[Report]
    ) -> None:
        """Examine an evaluated trace, its new or changed runs, and the reports on them."""
        for run in self.observe(trace, runs):
            if self._lost_context is not None:
                self._lost_context.add(run)
        if self.lone_calls:
            self._warnings.once("lone", "%s", lone_calls_text(self.lone_calls))
        if trace.cut:
            self._warnings.once(
                "cut", "a trace has %s: its runs are skipped as incomplete; %s", trace.cut, _REMEDY
            )
        elif trace.reason is Completeness.OVERFLOW and self._lost_context is None:
            # within a process the source warns of that
            self._warnings.once("full", _FULL)
        if _log.isEnabledFor(logging.DEBUG):
            for run, _ in runs:
                _log.debug(
                    "%s", _run_line(run, [each for each in reports if each.trajectory is run])
                )

    def count(self, report: Report) -> None:
        """Count the results of a report, and log failed scorers."""
        for failure in self.add(report):
            self._warn(*failure)

    def _warn(self, scorer: str, failed: Failed, error: str, times: int) -> None:
        place = f" ({failed.place})" if self._shows_place and failed.place else ""
        why = failure_text(error, failed.details)
        self._warnings.say(
            f"{scorer} {error}", "scorer %s failed: %s%s; %d so far", scorer, why, place, times
        )

    def counts(self) -> dict[CountName, int]:
        """The counters of `Coverage`, and in one process the number of tool spans without the
        context of their run.
        """
        lost = (
            {} if self._lost_context is None else {"context_lost_spans": self._lost_context.spans}
        )
        return super().counts() | lost

    def check(self, when: str) -> None:
        """Log one warning in this process if nothing has been evaluated; `when` names the time of
        the check in the message.
        """
        if self.has_results:
            return
        try:
            why = self.why_nothing() if self.runs else self._why_no_run()
        except Exception as error:  # noqa: BLE001 - a diagnosis must not harm the process
            why = f"the reason is unknown ({type(error).__name__})"
        # There is no reason if results are pending, or no run was in the sample of a judge.
        if why and _first_in_process():
            _log.warning("nothing was evaluated %s: %s", when, why)

    def end(self) -> None:
        """Check for the last time, when the process or its evaluation ends, and log how many runs
        no evaluation matched; that is no warning, because a policy may be of some agents only.
        """
        self._timer.cancel()
        self.warn_of_names()
        self.check("before the end")
        if text := self.unmatched_runs().text():
            _log.info("%s", text)

    def warn_of_names(self) -> None:
        """Log which names of tools in policies may be misspelt, after the last run."""
        for warning in self.tool_name_warnings():
            _log.warning("%s", warning)

    def _why_no_run(self) -> str:
        counts, traces, unended = self._process.counts(), self.traces_without_run, self.unended
        opened = counts.get("open_traces", 0)
        if not traces and not opened and not counts.get("spans_kept", 0):
            why = "" if _has_forked else self._process.why_no_span()
            return why and f"no span arrived; {why}"
        if not self.evaluations:
            return ""
        oldest_s = counts.get("oldest_trace_s", 0)
        still = (
            f"{opened} traces are still open, the oldest for {oldest_s:.0f} s; {_END_IT}"
            if opened
            else ""
        )
        if not traces:
            return still or "no trace was closed"
        cut = f"{unended} of the traces had a span that never ended; {_END_IT}" if unended else ""
        parts = (
            self.no_run(),
            cut,
            still,
            "`otel-eval explain FILE` with the stored traces shows why",
        )
        return "; ".join(each for each in parts if each)


def failure_text(error: str, details: Mapping[str, Any]) -> str:
    """The type of a scorer's failure; of a judge's also the HTTP status of its endpoint, and what
    to do.
    """
    status = details.get("http_status")
    known = f"{error} (HTTP status {status})" if status is not None else error
    return f"{known}; {_JUDGE_REMEDIES[error]}" if error in _JUDGE_REMEDIES else known


def _printable(text: str) -> str:
    """The name of a scope without control characters, for metrics and pages: senders choose it."""
    return (
        text
        if text.isprintable()
        else "".join([each if each.isprintable() else "?" for each in text[:_LONGEST_SCOPE]])
    )


def _conditions_text(failed: Sequence[FailedCondition]) -> str:
    """The conditions that a run does not meet; for a run inside another one that meets all others,
    how it would match.
    """
    text = "; ".join(map(_condition_text, failed))
    is_inner = failed[0].required == "outermost" and failed[0].condition == "match.runs"
    return f"{text}; runs: all would match it" if is_inner and len(failed) == 1 else text


def _condition_text(failed: FailedCondition) -> str:
    """The condition, and what the run has instead; of an attribute, which may hold content, only
    whether it has another value.
    """
    if failed.condition.startswith("match.attributes.") and failed.actual is not UNRECORDED:
        failed = replace(failed, actual="another value")
        return failed.text(str)
    return failed.text(redacted_repr)


def _run_line(run: Trajectory, reports: Sequence[Report]) -> str:
    """A run as a log line: its names and the number of results by outcome, without content."""
    outcomes = Counter([outcome_of(result) for report in reports for result in report.results])
    outcomes["pending"] = sum(len(report.pending) for report in reports)
    counts = " ".join(f"{name}={count}" for name, count in sorted(outcomes.items()) if count)
    matched = ",".join(report.evaluation for report in reports) or "none"
    called = (
        f"agent={redacted_repr(run.agent)} service={redacted_repr(run.service)}"
        f" calls={len(run.calls)} {run.completeness}"
    )
    ids = f"trace_id={run.trace_id} span_id={run.span_id}"
    return f"run {ids} {called} evaluations={matched} {counts}".rstrip()


# ---------------------------------------------------------------------- once per process, after a
# minute

_warned_in = 0  # the id of the process that has logged the warning
# whether others get the spans: a server that forks workers serves no requests itself
_has_forked = False


def _first_in_process() -> bool:
    global _warned_in
    first, _warned_in = _warned_in != os.getpid(), os.getpid()
    return first


def _check(watched: weakref.ref[Diagnostics]) -> None:
    if (alive := watched()) is not None:
        alive.check(f"in {CHECK_AFTER_S:.0f} s")


def expect_no_spans() -> None:
    """Do not warn of missing spans in this process: it forked workers or is one of several, and
    others may get all spans.
    """
    global _has_forked
    _has_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=expect_no_spans)


_REMEMBERED: Final = 256  # runs and tool spans whose times are compared
_CONTEXT_LOST: Final = (
    "context was lost: %d tool spans started in threads without the run's context and are missing"
    " from it; propagate it with opentelemetry-instrumentation-threading or"
    " contextvars.copy_context().run; %d so far"
)


class LostContext:
    """Finds tool spans that are roots of their own traces although they started while a run was
    open.

    A thread that is started without the run's context begins a new trace. Within one process such a
    trace has a tool span as its root, and lies within the time of the run that made the call.

    Attributes:
        spans: the number of such tool spans.
    """

    def __init__(self) -> None:
        self.spans = 0
        self._warnings: Final = Warnings()
        # start in ns, number of calls
        self._root_tool_spans: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._runs: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # start and end in ns

    def add(self, run: Trajectory) -> None:
        """Compare a run with earlier ones. Called for one run at a time."""
        if run.start_ns is None or run.end_ns is None:
            return
        if run.is_tool_call:
            if any(first <= run.start_ns <= last for first, last in self._runs):
                self._report(len(run.calls))
            else:
                self._root_tool_spans.append((run.start_ns, len(run.calls)))
            return
        self._runs.append((run.start_ns, run.end_ns))
        within = [each for each in self._root_tool_spans if run.start_ns <= each[0] <= run.end_ns]
        if within:
            self._root_tool_spans = deque(
                [each for each in self._root_tool_spans if each not in within], maxlen=_REMEMBERED
            )
            self._report(sum(calls for _, calls in within))

    def _report(self, spans: int) -> None:
        self.spans += spans
        self._warnings.say("context", _CONTEXT_LOST, spans, self.spans)
