"""Evaluates closed traces: which evaluations apply to which run, the results of their scorers, and
their revision.

`Engine.build` makes the runs of a trace, `Engine.score` the reports on them. Neither changes
anything: the same closed trace gives the same reports, and the caller records what
`TraceReports.evaluations` says in the history of the trace.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final, NamedTuple

from otel_eval.assembly import evidence_of
from otel_eval.conventions import TABLES, Convention, Field
from otel_eval.conventions.fields import NO_TABLE
from otel_eval.conventions.reader import DROPPED, parent_is_remote
from otel_eval.evaluations import FailedCondition, RunMatch, ScorerSet, result_id, share_of
from otel_eval.interfaces import (
    LATE,
    NO_RUN,
    ClosedTrace,
    Frame,
    LastEvaluation,
    Role,
    SpanReader,
)
from otel_eval.model import (
    UNRECORDED,
    Completeness,
    Evidence,
    Kind,
    NoRun,
    Outcome,
    Report,
    Skipped,
    Stamp,
    Trajectory,
)
from otel_eval.records import record
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from otel_eval.trajectory.runs import Run

_MAY_BE_JOINED: Final = (Completeness.COMPLETE, Completeness.REMOTE_PARENT)
_NO_STAMP: Final = Stamp()
_SERVER: Final = 2  # the kind of a span in OTLP
# as `LATE`: the reason of a report on a trace itself, and `LastEvaluation.incomplete` of `NO_RUN`
_WITHDRAWN: Final = "withdrawn"
_TOO_LATE: Final = (
    "spans arrived after the run of their trace was forgotten; raise traces.grace_period"
)
_HAS_RESULT: Final = "a result of the trace has arrived since"


@record
class CaseOfRun:
    """What tells the case of a run, by which comparisons pair runs.

    Attributes:
        attribute: the key of the attribute that holds it; "" for a digest of agent and input.
        key: the secret key of the digest, at most 64 bytes.
    """

    attribute: str = ""
    key: bytes = b""

    @property
    def needs(self) -> frozenset[str]:
        """What has to be read for it."""
        return frozenset() if self.attribute else frozenset({"content"})

    def of(self, run: Trajectory) -> str:
        """The case; "" if the attribute or the input was not recorded, or is not whole."""
        if self.attribute:
            value = run.attributes.get(self.attribute)
            return value if isinstance(value, str) else "" if value is None else json.dumps(value)
        if run.input is UNRECORDED or run.incomplete or run.too_large:
            return ""
        identity = json.dumps([run.agent, run.input], sort_keys=True, default=str)
        return blake2b(identity.encode(), key=self.key, digest_size=16).hexdigest()


class BuiltTrace(NamedTuple):
    """The runs of a closed trace that are new or have changed since their last evaluation.

    Attributes:
        trace, stamp: the trace, and evaluator and time for the reports.
        runs: the runs to score.
        why_no_report: why the trace has no result if none of them gives one; "" if that is not
            reported.
    """

    trace: ClosedTrace
    stamp: Stamp
    runs: Sequence[_RunToScore] = ()
    why_no_report: str = ""

    @property
    def matches(self) -> list[RunMatch]:
        """The runs, each with the evaluations that match it."""
        return [RunMatch(run.trajectory, matching) for run, _, matching, _ in self.runs]


class _RunToScore(NamedTuple):
    """A run with the evaluations that report on it.

    Attributes:
        run, revision: the run, and the revision of the reports on it.
        matching: the evaluations that score it.
        withdrawing: those that reported on it before it turned out to lie inside another run, and
            do not evaluate it now.
    """

    run: Run
    revision: int
    matching: tuple[ScorerSet, ...]
    withdrawing: tuple[ScorerSet, ...] = ()


class TraceReports(NamedTuple):
    """The reports on a closed trace.

    Attributes:
        reports: the reports on its runs, or on the trace itself.
        evaluations: the evaluations to record in the history of the trace.
    """

    reports: Sequence[Report]
    evaluations: Mapping[bytes, LastEvaluation]


class Engine:
    """Evaluates closed traces: returns a report for each run and evaluation.

    Args:
        exported: keys of the attributes of runs that are in reports.
        records_tool_spans: globs of instrumentation scopes that record each tool call as a span.
        no_run: whether a trace without results gets a report with the reason.
        case: what tells the case of a run; None: runs have none.
        reads: what is read of runs beyond what the scorers need.

    Attributes:
        waits: whether reports may have pending results.
    """

    def __init__(
        self,
        evaluations: Sequence[ScorerSet],
        tables: Sequence[Convention] = TABLES,
        exported: Sequence[str] = (),
        records_tool_spans: Sequence[str] = (),
        *,
        no_run: bool = False,
        case: CaseOfRun | None = None,
        reads: frozenset[str] = frozenset(),
    ) -> None:
        self.evaluations: Final = tuple(evaluations)
        self._exported: Final = tuple(exported)
        self._reports_no_run: Final = no_run
        self._case: Final = case
        self._most_sampled: Final = max(
            (evaluation.sample for evaluation in self.evaluations), default=0.0
        )
        self._reads_inner: Final = any(
            evaluation.match.runs == "all" for evaluation in self.evaluations
        )
        self.waits: Final = any(evaluation.later for evaluation in self.evaluations)
        self._samples: Final = any(
            share < 1
            for evaluation in self.evaluations
            for share in (evaluation.sample, *map(share_of, evaluation.later))
        )
        self.plan: Final = Plan(
            tables=tuple(tables),
            needs=reads.union(
                *(scorer.needs for evaluation in evaluations for scorer in evaluation.scorers),
                case.needs if case else (),
            ),
            attributes=_attribute_keys(evaluations).union(
                exported, [case.attribute] if case and case.attribute else ()
            ),
            records_tool_spans=tuple(records_tool_spans),
        )

    def failed_conditions(
        self, trajectory: Trajectory
    ) -> list[tuple[ScorerSet, tuple[FailedCondition, ...]]]:
        """Each evaluation with the conditions that the run does not meet; it matches if there are
        none.
        """
        draw = self._draw(bytes.fromhex(trajectory.trace_id))
        return [
            (evaluation, tuple(evaluation.applies.failed(trajectory, draw)))
            for evaluation in self.evaluations
        ]

    def role_of(self, frame: Frame) -> Role:
        """What a span is for assembly; `OTHER` also if it cannot be decoded."""
        parent, payload, resource_scope = frame
        try:
            span = resource_scope.reader(payload)
            classification = self.plan.reader.of_scope(resource_scope.scope_name).read(span)
            if classification is DROPPED:
                return Role.OTHER
            if classification.kind is Kind.TOOL:
                is_served = (
                    span.span_kind == _SERVER or not parent or bool(parent_is_remote(frame, span))
                )
                return Role.SERVED if is_served else Role.STEP
        except Exception:  # noqa: BLE001
            # in `evaluate` an error affects one trace; here it would affect all
            return Role.OTHER
        if classification.kind is Kind.OTHER:
            return Role.PLAIN if classification.table is NO_TABLE else Role.OTHER
        return Role.AGENT if classification.kind is Kind.AGENT else Role.STEP

    def slim(self, frame: Frame) -> Frame:
        """A span that no convention recognises, without the attributes that no evaluation reads;
        any other span as it is.
        """
        parent, payload, resource_scope = frame
        if self.role_of(frame) is not Role.PLAIN:
            return frame
        slim = resource_scope.slim(payload, self.plan.run_wanted)
        return frame if slim is payload else (parent, slim, resource_scope)

    def describes_agent(self, span: SpanReader, scope_name: str) -> bool:
        """Whether a span, which may still be open, is an agent span."""
        return self.agent_of(span, scope_name, named=False) is not None

    def agent_of(self, span: SpanReader, scope_name: str, *, named: bool = True) -> str | None:
        """The agent's name in an agent span, "" if it is not recorded or `named` is False; None if
        it is not an agent span.
        """
        try:
            classification = self.plan.reader.of_scope(scope_name).read(span)
            if classification.kind is not Kind.AGENT:
                return None
            table = classification.table
            return (
                table.agent_name(span.attributes(table.keys_wanted(Field.AGENT_NAME)), span.name)
                if named
                else ""
            )
        except Exception:  # noqa: BLE001
            # in `evaluate` an error affects one trace; here it would affect all
            return None

    def evaluate(
        self, trace: ClosedTrace, stamp: Stamp = _NO_STAMP, instead: Outcome | None = None
    ) -> list[Report]:
        """Build and score the runs of a trace, and record the evaluation in it."""
        scored = self.score(self.build(trace, stamp), instead)
        trace.history.record(scored.evaluations)
        return list(scored.reports)

    def build(self, trace: ClosedTrace, stamp: Stamp = _NO_STAMP) -> BuiltTrace:
        """Build every run of the trace that is new or has changed since its last evaluation.

        Args:
            trace: the closed trace.
            stamp: evaluator and time, for the reports.
        """
        if trace.is_late:
            return BuiltTrace(trace, stamp)
        draw = self._draw(trace.trace_id)
        runs = build(trace, self.plan, inner=self._reads_inner, lone_calls=True)
        to_score: list[_RunToScore] = []
        for run in runs:
            last = trace.history.last(run.span_id)
            revision = _revision(trace, run, last)
            if revision is None:
                continue
            _mark_joined(run, stamp.since_ns)
            is_scored = not run.former and _is_changed(trace, run, last)
            matching = self._matching(run.trajectory, draw) if is_scored else ()
            withdrawing = self._no_longer_outermost(run, last, draw)
            to_score.append(_RunToScore(run, revision, matching, withdrawing))
        return BuiltTrace(trace, stamp, to_score, _why_nothing(trace, runs))

    def score(self, built: BuiltTrace, instead: Outcome | None = None) -> TraceReports:
        """The reports on the runs of a trace.

        Args:
            built: the runs.
            instead: the outcome of every scorer; if it is given no scorer is called, and no result
                is pending.
        """
        trace, stamp = built.trace, built.stamp
        if trace.is_late:
            return self._late(trace, stamp)
        draw = self._draw(trace.trace_id)
        was_reported = bool(trace.history.runs) and trace.history.last(NO_RUN) is None
        evaluations: dict[bytes, LastEvaluation] = {}
        reports: list[Report] = []
        evidence = trace.evidence
        for run, revision, matching, withdrawing in built.runs:
            trajectory = run.trajectory
            evaluations[run.span_id] = LastEvaluation(
                revision, trajectory.incomplete, trajectory.outermost
            )
            if not (matching or withdrawing):
                continue
            evidence = evidence or evidence_of(trace.frames)
            blank = self._blank_report(trajectory, revision, evidence, stamp)
            reports += [evaluation.report(blank, draw, instead) for evaluation in matching]
            # a part of another run has no verdict
            reports += [
                replace(evaluation.report(blank, draw, _part_of(run)), standing=None)
                for evaluation in withdrawing
            ]
        # An evaluation whose scorers are all asynchronous, and none of which samples this trace,
        # has nothing to report.
        if self.waits:
            reports = [report for report in reports if report.results or report.pending]
        if reports:
            of_trace = self._withdrawn(trace, stamp)
        elif was_reported or not built.why_no_report:
            of_trace = _NO_REPORTS
        else:
            of_trace = self.no_run(trace, stamp, built.why_no_report)
        evaluations.update(of_trace.evaluations)
        return TraceReports([*reports, *of_trace.reports], evaluations)

    def _draw(self, trace_id: bytes) -> float:
        """The trace's number in [0, 1) for sampling; 0 if nothing is sampled."""
        return sampling_hash(trace_id) if self._samples else 0.0

    def _blank_report(
        self, run: Trajectory, revision: int, evidence: Evidence, stamp: Stamp
    ) -> Report:
        """What the reports of all evaluations on a run share."""
        attributes = run.attributes
        return Report(
            run,
            "",
            revision,
            (),
            attributes={key: attributes[key] for key in self._exported if key in attributes},
            case=self._case.of(run) if self._case else "",
            evidence=evidence,
            stamp=stamp,
        )

    def build_run(self, run: Trajectory, stamp: Stamp = _NO_STAMP) -> BuiltTrace:
        """The counterpart of `build` for a run that has no trace; its ids are hexadecimal, as those
        of a trace.
        """
        trace = ClosedTrace(bytes.fromhex(run.trace_id), {}, run.completeness)
        matching = self._matching(run, self._draw(trace.trace_id))
        of_trace = Run(run, (), bytes.fromhex(run.span_id))
        return BuiltTrace(trace, stamp, [_RunToScore(of_trace, 0, matching)])

    def only_later(self) -> Engine:
        """An engine with the asynchronous scorers only."""
        later = [
            dataclasses.replace(evaluation, scorers=evaluation.later)
            for evaluation in self.evaluations
            if evaluation.later
        ]
        return Engine(
            later,
            self.plan.tables,
            self._exported,
            self.plan.records_tool_spans,
            case=self._case,
        )

    def report_unbuilt(self, trace: ClosedTrace, stamp: Stamp, outcome: Outcome) -> TraceReports:
        """Reports with the same outcome for every evaluation that samples the trace, made without
        decoding its spans.

        The root of the trace, or else its first span, stands for the run; conditions of evaluations
        are not checked.
        """
        draw = sampling_hash(trace.trace_id)
        span_id = _first_root(trace)
        revision = _following(trace.history.last(span_id))
        run = Trajectory(
            trace_id=trace.trace_id.hex(), span_id=span_id.hex(), completeness=trace.reason
        )
        evidence = trace.evidence or evidence_of(trace.frames)
        blank = Report(run, "", revision, (), evidence=evidence, stamp=stamp)
        reports = [
            evaluation.report(blank, draw, outcome)
            for evaluation in self.evaluations
            if draw < evaluation.sample
        ]
        withdrawn = self._withdrawn(trace, stamp)
        return TraceReports(
            [*reports, *withdrawn.reports],
            {span_id: LastEvaluation(revision, ""), **withdrawn.evaluations},
        )

    def no_run(self, trace: ClosedTrace, stamp: Stamp, why: str) -> TraceReports:
        """A report on why the trace has no result; none if it had one before, is not sampled, or
        such reports are disabled.
        """
        before = trace.history.last(NO_RUN)
        was_evaluated = trace.changed is not None if before is None else trace.part is not None
        is_settled = before is not None and bool(before.incomplete)
        if was_evaluated or is_settled or not self._tells_no_run(trace):
            return _NO_REPORTS
        return _report_on_trace(trace, stamp, why, "", _following(before))

    def _tells_no_run(self, trace: ClosedTrace) -> bool:
        return self._reports_no_run and not (
            self._samples and sampling_hash(trace.trace_id) >= self._most_sampled
        )

    def _late(self, trace: ClosedTrace, stamp: Stamp) -> TraceReports:
        """One report for a trace with spans that came after their run was forgotten."""
        before = trace.history.last(NO_RUN)
        is_told = before is not None and before.incomplete == LATE
        if is_told or not self._tells_no_run(trace):
            return _NO_REPORTS
        return _report_on_trace(trace, stamp, _TOO_LATE, LATE, 0)

    def _withdrawn(self, trace: ClosedTrace, stamp: Stamp) -> TraceReports:
        """A report that withdraws that the trace has no result; none if there was none."""
        before = trace.history.last(NO_RUN)
        if before is None or before.incomplete:
            return _NO_REPORTS
        return _report_on_trace(trace, stamp, _HAS_RESULT, _WITHDRAWN, before.revision + 1)

    def _matching(self, run: Trajectory, draw: float) -> tuple[ScorerSet, ...]:
        return tuple(
            [evaluation for evaluation in self.evaluations if evaluation.applies(run, draw)]
        )

    def _no_longer_outermost(
        self, run: Run, last: LastEvaluation | None, draw: float
    ) -> tuple[ScorerSet, ...]:
        """The evaluations that reported the run before it turned out to lie inside another one, and
        do not evaluate it now.
        """
        if not _is_inner(run, last):
            return ()
        before = self._matching(replace(run.trajectory, outermost=True), draw)
        return tuple(
            [
                evaluation
                for evaluation in before
                if run.former or evaluation.match.runs == "outermost"
            ]
        )


_NO_REPORTS: Final = TraceReports((), {})


def _report_on_trace(
    trace: ClosedTrace, stamp: Stamp, why: str, reason: str, revision: int
) -> TraceReports:
    """The report on a trace itself."""
    run = Trajectory(trace_id=trace.trace_id.hex(), completeness=trace.reason)
    evidence = trace.evidence or evidence_of(trace.frames)
    # a late one is no revision of that on a trace without a result, nor of another late one
    scorer = f"{LATE} {evidence.digest}" if reason == LATE else ""
    no_run = NoRun(why, result_id(run.trace_id, "", "", scorer, "", revision), reason)
    report = Report(run, "", revision, (), evidence=evidence, stamp=stamp, no_run=no_run)
    return TraceReports([report], {NO_RUN: LastEvaluation(revision, reason)})


def _mark_joined(run: Run, since_ns: int) -> None:
    """Mark a complete run, or one with a remote parent, as joined if it began before `since_ns` or
    its start is unknown.
    """
    trajectory = run.trajectory
    if (trajectory.start_ns or 0) < since_ns and trajectory.completeness in _MAY_BE_JOINED:
        run.trajectory = replace(trajectory, completeness=Completeness.JOINED)


def _first_root(trace: ClosedTrace) -> bytes:
    """The id of a span without a parent in the trace, of the part that is evaluated if it is
    one.
    """
    if trace.part is not None and trace.part.roots:
        return trace.part.roots[0]
    roots = [span_id for span_id, frame in trace.frames.items() if frame[0] not in trace.frames]
    return min(roots or trace.frames, default=bytes(8))


NO_AGENT: Final = "the tool calls of the trace belong to no agent run"


def _why_nothing(trace: ClosedTrace, runs: Sequence[Run]) -> str:
    if not trace.frames:
        return "log records of the trace arrived, but none of its spans"
    for run in runs:
        if not run.trajectory.is_tool_call:
            return "no run of the trace was evaluated"
    return NO_AGENT if runs else "no agent run was found in the trace"


def _attribute_keys(evaluations: Sequence[ScorerSet]) -> frozenset[str]:
    """The attributes that conditions and scorers read."""
    scorers = (scorer for evaluation in evaluations for scorer in evaluation.scorers)
    named: list[frozenset[str]] = [
        getattr(scorer, "attribute_keys", frozenset()) for scorer in scorers
    ]
    return frozenset(
        key for evaluation in evaluations for key in evaluation.match.attributes
    ).union(*named)


def _revision(trace: ClosedTrace, run: Run, last: LastEvaluation | None) -> int | None:
    """The revision of the next report on a run; None if the run has not changed or is not to be
    evaluated.
    """
    if trace.part is not None and run.members[0] not in trace.part.spans:
        return None
    if not _is_inner(run, last) and not _is_changed(trace, run, last):
        return None
    return _following(last)


def _following(last: LastEvaluation | None) -> int:
    """The revision that follows the last reported one."""
    return 0 if last is None else last.revision + 1


def _is_inner(run: Run, last: LastEvaluation | None) -> bool:
    """Whether the run was reported as an outermost one and turned out to be none."""
    return last is not None and last.outermost and not run.trajectory.outermost


def _is_changed(trace: ClosedTrace, run: Run, last: LastEvaluation | None) -> bool:
    """Whether the run is to be scored: it is new, or its spans or missing parts have changed."""
    return (
        last is None
        or trace.changed is None
        or not trace.changed.isdisjoint(run.members)
        or last.incomplete != run.trajectory.incomplete
    )


def _part_of(run: Run) -> Skipped:
    if not run.enclosing:
        return Skipped("no run: the trace has agent spans, and this span is inside none of them")
    return Skipped(f"part of run {run.enclosing.hex()}")


def sampling_hash(trace_id: bytes) -> float:
    """A number in [0, 1) from a hash of the trace id; upstream samplers decide by bits of the id,
    so these are not used.
    """
    return int.from_bytes(blake2b(trace_id, digest_size=7).digest(), "big") / 2**56
