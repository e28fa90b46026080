"""The data model: tool calls, trajectories, outcomes, results and reports.

Their instances are not to be changed, which type checkers tell; those that a scorer of your own
receives refuse it at run time, too. They contain plain Python values.
Times are Unix nanoseconds as recorded in the spans; ids are lower-case hexadecimal text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final, Literal, NoReturn

from otel_eval.records import Immutable, record


class Unrecorded(Enum):
    """The type of `UNRECORDED`: a value that was not recorded, which is not the same as null."""

    UNRECORDED = "unrecorded"

    def __repr__(self) -> str:
        return "UNRECORDED"

    def __bool__(self) -> Literal[False]:
        return False


UNRECORDED: Final = Unrecorded.UNRECORDED


class Unnamed(dict[str, Any]):
    """Arguments that were recorded as a bare value, without a name for it: ``{"__value__":
    value}``.

    They equal the same mapping, and are never compared with arguments that have names.
    """


class Kind(StrEnum):
    """What a span is to an agent run."""

    AGENT = "agent"
    MODEL = "model"
    TOOL = "tool"
    OTHER = "other"


class Completeness(StrEnum):
    """Why a trace was closed; exported with each of its scores.

    `joined` is not a reason to close a trace: it replaces `complete` or `remote_parent` where the
    run may have begun before the evaluator received its input, so that some of its spans may have
    gone to another evaluator.
    """

    COMPLETE = "complete"
    REMOTE_PARENT = "remote_parent"
    IDLE = "idle"
    AGED = "aged"
    OVERFLOW = "overflow"
    SHUTDOWN = "shutdown"
    DETACHED = "detached"
    JOINED = "joined"


@dataclass(frozen=True, slots=True)
class ToolError:
    """How a call failed: `type` is a low-cardinality class name, `message` free text (content)."""

    type: str
    message: str = ""


@record
class ToolCall:
    """One call of a tool, however many spans describe it.

    Attributes:
        name: the tool's name, exactly as recorded.
        arguments: a JSON value, normally an object; `UNRECORDED` if it was not recorded.
            A bare value that cannot be named is `Unnamed`: ``{"__value__": value}``.
        result: a JSON value, or `UNRECORDED`.
        error: how it failed, or None.
        call_id: the model's id of the call, or "".
        span_id: hex id of the outermost span that describes the call, or "".
        start_ns, end_ns: Unix nanoseconds, or None where no time was recorded.
        enclosing: span ids of the calls inside which this one was made, outermost first.
        agent_path: names of the agents from that of the run to the one that made the call.
        failure_unknown: whether no error was recorded, but the result, which was not recorded
            either, might show one.
        message: hex id of the model call that requested it where other requests of the same answer
            left no span, else "": such calls were made in any order.
        refusal: whether the framework did not run the tool, where the error has another type than
            `REFUSED`; None if what would show it was not recorded.
    """

    _: KW_ONLY
    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED
    error: ToolError | None = None
    call_id: str = ""
    span_id: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    enclosing: tuple[str, ...] = ()
    agent_path: tuple[str, ...] = ()
    failure_unknown: bool = False
    message: str = ""
    refusal: bool | None = False

    @property
    def timed(self) -> bool:
        """Whether start and end were recorded."""
        return self.start_ns is not None and self.end_ns is not None

    @property
    def refused(self) -> bool | None:
        """Whether the framework did not run the tool; None if that is unknown."""
        return (self.error is not None and self.error.type == REFUSED) or self.refusal


HOSTED_TOOLS: Final = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "tool_search_call",
        "mcp_call",
    }
)
"""Names under which calls of tools that OpenAI runs are recorded: types of items in an answer of
its Responses API. Patterns match them also without `_call`.
"""

REFUSED: Final = "refused"
"""The type of the error of a call that the framework did not run: there is no such tool, its
arguments were invalid, or it was denied at once. Spans keep the type that they recorded.
"""


@dataclass(frozen=True, slots=True)
class SpanRef:
    """Name and time of a span of a run, for scorers with `of: spans`."""

    message: ClassVar[str] = ""
    name: str
    start_ns: int
    end_ns: int
    span_id: str = ""
    enclosing: tuple[str, ...] = ()


@record
class Trajectory:
    """The tool calls of one agent run in order of `(start_ns, end_ns, span_id)`, with the
    attributes of the run.

    Attributes:
        calls: the calls, ordered; calls without times keep the order given.
        trace_id, span_id: hex ids of the trace and of the run's own span.
        agent, name, service: the agent's name, the name of the run's span, the service that ran it
            ("" unknown).
        service_version, environment: `service.version` and `deployment.environment.name` of that
            service, or "".
        start_ns, end_ns: times of the run's own span, or None.
        model_calls: number of model spans of the run.
        input_tokens, output_tokens: sums over the model calls, or None; read only if a scorer needs
            them.
        input, output: the input and the answer of the run, or `UNRECORDED`.
        spans: every span of the run in order of time; empty unless a scorer needs them.
        attributes: the span, resource or scope attributes that the configuration names.
        conversation_id: the session the run belongs to, or "".
        completeness: why the trace was closed.
        incomplete: "" or the evidence that is missing: then every scorer skips the run.
        calls_unknown: "" or why the run made, or may have made, calls that are not in `calls`;
            names scopes, no content.
        outermost: False for a run inside another run.
        too_large: "" or why the run was not read: then its calls are unknown, and every scorer
            skips it.
        resource: the resource of the run's own span, all of it unless it is very long; shared by
            runs, not to be changed.
        response_id: the id of the response that the run's own span records, or "".
        last_end_ns: the latest end of the run's spans if its own span never arrived, else None.
        unseen_tools: names of tools whose calls leave no trace; a rule about one of them skips the
            run.
        is_tool_call: it is no agent run but a tool call that belongs to none, by itself.
        waiting: "" or what the run waits for, with the names of tools: then every scorer skips it.
    """

    _: KW_ONLY
    calls: tuple[ToolCall, ...] = ()
    trace_id: str = ""
    span_id: str = ""
    agent: str = ""
    name: str = ""
    service: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    model_calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    input: Any = UNRECORDED
    output: Any = UNRECORDED
    spans: tuple[SpanRef, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    conversation_id: str = ""
    completeness: Completeness = Completeness.COMPLETE
    incomplete: str = ""
    calls_unknown: str = ""
    outermost: bool = True
    service_version: str = ""
    environment: str = ""
    too_large: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict)
    response_id: str = ""
    last_end_ns: int | None = None
    unseen_tools: frozenset[str] = frozenset()
    waiting: str = ""
    is_tool_call: bool = False

    @property
    def ended_ns(self) -> int | None:
        """When the run ended, never before its start; None if no time was recorded."""
        return max(self.start_ns or 0, self.end_ns or 0, self.last_end_ns or 0) or None


class ImmutableCall(Immutable, ToolCall):
    """A call as scorers of users get it."""

    __slots__ = ()


class ImmutableTrajectory(Immutable, Trajectory):
    """A run as scorers of users get it."""

    __slots__ = ()


def elapsed_ns(timed: ToolCall | Trajectory) -> int | None:
    """The duration in nanoseconds; None if a time was not recorded (a span then has 0) or the end
    is before the start.
    """
    start, end = timed.start_ns, timed.end_ns
    return None if start is None or not end or end < start else end - start


def _refuse_truth(outcome: object) -> NoReturn:
    raise TypeError(
        f"{type(outcome).__name__} is neither true nor false: a fail and a skip are outcomes as"
        " well; test outcome.passed"
    )


@record
class Scored:
    """A score. As every outcome it has `passed` and `explanation`, and no truth value.

    Attributes:
        value: from 0 to 1; 1 is best.
        passed: whether the value reaches the threshold, or what else decides for this scorer.
        explanation: why, for people.
        details: the scorer's documented details (JSON).
        encoded: the other fields as JSON, if runs share this outcome: "" until an exporter has
            encoded them. None if they do not: then it may be a user's, who may change it.
    """

    value: float
    passed: bool
    explanation: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    encoded: str | None = field(default=None, init=False, repr=False, compare=False)

    __bool__ = _refuse_truth


SkipReason = Literal[
    "incomplete",
    "calls_unknown",
    "not_recorded",
    "no_reference",
    "not_applicable",
    "too_large",
    "recorded",
    "waiting",
    "late",
]
"""Why a result was skipped, in one word: the label of metrics beside `Skipped.explanation`.

* ``incomplete``: spans of the run are missing.
* ``calls_unknown``: the run made, or may have made, tool calls that were not recorded.
* ``not_recorded``: a value that the scorer reads was not recorded.
* ``no_reference``: the run has no expectation to compare with.
* ``not_applicable``: nothing to score, for instance no failed call for `error_recovery`.
* ``too_large``: the run is larger than what is read of one, or than a limit of the scorer.
* ``recorded``: nothing to score by design; the value was recorded for a distribution.
* ``waiting``: the run waits for a person, for instance for an approval.
* ``late``: spans arrived after the trace was forgotten.
"""


UNKNOWN_REASONS: Final = (
    "calls_unknown",
    "incomplete",
    "not_recorded",
    "no_reference",
    "waiting",
    "late",
)
"""Reasons of skips that leave a run unevaluated; the other reasons mean that there was nothing to
score.
"""

INAPPLICABLE_REASONS: Final = ("not_applicable", "no_reference", "recorded")
"""Reasons of skips by a scorer that does not apply to the run: they count neither for the verdict
of the run nor for exit codes.
"""


@record
class Skipped:
    """No score, because it is unknown or does not apply. Unknown is never zero, and never a pass.

    Attributes:
        explanation: why, as a sentence for people.
        reason: why, in one word; see `SkipReason`.
        details: the scorer's documented details (JSON).
    """

    passed: ClassVar[bool] = False

    explanation: str
    reason: SkipReason = "not_applicable"
    details: Mapping[str, Any] = field(default_factory=dict)

    __bool__ = _refuse_truth


_RECORD_CONTENT: Final = "docs/how-to/record-content.md"


def with_remedy(outcome: Outcome) -> Outcome:
    """The outcome; the text of one that is skipped because a value was not recorded names the page
    on how to record it.
    """
    if not isinstance(outcome, Skipped) or outcome.reason != "not_recorded":
        return outcome
    remedy = f"{outcome.explanation} (how to record it: {_RECORD_CONTENT})"
    return replace(outcome, explanation=remedy)


@record
class Failed:
    """No score, because the scorer raised an error, or did not finish.

    Attributes:
        error_type: the class name of an exception, or a word such as `timeout`.
        message: may quote content and stays in the process.
        details: JSON.
        place: file and line of a user's scorer that raised, or what is wrong with the value it
            returned, else ""; without content, stays in the process.
    """

    passed: ClassVar[bool] = False

    error_type: str
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    __bool__ = _refuse_truth

    @property
    def explanation(self) -> str:
        """The type of the error in a sentence, without its message."""
        return f"the scorer failed with {self.error_type}"


Outcome = Scored | Skipped | Failed

Severity = Literal["error", "warn"]
"""Whether the results of a scorer count for verdicts and exit codes (``error``) or are only
exported (``warn``).
"""


class Verdict(StrEnum):
    """What the results of one run under one evaluation amount to; results of scorers with the
    severity `warn` do not count.

    * ``not_passed``: a score did not pass.
    * ``not_evaluated``: otherwise, a scorer that applies was skipped or failed.
    * ``pass``: otherwise.

    The members are in order from best to worst.
    """

    PASS = "pass"
    NOT_EVALUATED = "not_evaluated"
    NOT_PASSED = "not_passed"


@record
class Result:
    """One outcome of one scorer on one run.

    Attributes:
        evaluation, scorer: their names in the configuration; `type`, `version`: the scorer's own.
        revision: 0 for the first scoring of a run, n+1 each time late spans changed it.
        result_id: 32 hex digits, the same for the same run, evaluation, scorer, policy and
            revision.
        threshold: the least value that passes, in [0, 1]; None if the value does not decide
            (`time_cost` without a threshold passes within its budget; a user's scorer may decide by
            itself).
        policy: 16 hex digits, the same for scorers of one type and version with the same
            parameters (`scorers.policy`).
        severity: whether the result counts for the verdict of its run.
    """

    _: KW_ONLY
    evaluation: str
    scorer: str
    type: str
    version: str
    outcome: Outcome
    revision: int
    result_id: str
    threshold: float | None = None
    policy: str = ""
    severity: Severity = "error"


def worst(*verdicts: Verdict) -> Verdict:
    """The verdict of several parts of the results of a run."""
    return max(verdicts, key=[*Verdict].index)


def verdict_of(results: Iterable[Result], earlier: Verdict = Verdict.PASS) -> Verdict:
    """The verdict of results, together with the verdict of earlier ones of the same run and
    evaluation.
    """
    verdict = earlier
    for result in results:
        outcome = result.outcome
        if result.severity == "warn" or outcome.passed:
            continue
        if isinstance(outcome, Scored):
            return Verdict.NOT_PASSED
        if verdict is Verdict.PASS and not (
            isinstance(outcome, Skipped) and outcome.reason in INAPPLICABLE_REASONS
        ):
            verdict = Verdict.NOT_EVALUATED
    return verdict


@record
class Pending:
    """A result that is not available yet because its scorer is asynchronous.

    Attributes:
        template: the result, with a placeholder as outcome.
        evaluate: what to await for the outcome.
    """

    template: Result
    evaluate: Callable[[Trajectory], Awaitable[Outcome]] = field(compare=False)

    @property
    def result_id(self) -> str:
        """The id of the result."""
        return self.template.result_id

    def result(self, outcome: Outcome) -> Result:
        """The result with its outcome."""
        return replace(self.template, outcome=with_remedy(outcome))


@record
class Evidence:
    """Which spans of its trace a result was computed from, so that evaluators of one trace can be
    compared.

    Attributes:
        spans: number of spans that were known.
        digest: 16 hex digits, the sum modulo 2**64 of the 64-bit blake2b of their ids.
    """

    spans: int
    digest: str


@record
class NoRun:
    """Why a trace has no result, so that merged results show which evaluators saw other spans of
    it.

    Attributes:
        why: the explanation for people.
        result_id: 32 hex digits, the same for the same trace and revision.
        reason: "late" if spans came after their run was forgotten, "withdrawn" if a result has
            arrived since the trace was reported to have none; else "".
    """

    why: str
    result_id: str
    reason: str = ""


@record
class Stamp:
    """Who evaluated a run, and when.

    Attributes:
        evaluator: the id of the evaluating process, or of its storage; "" for stored traces.
        at_ns: Unix nanoseconds, or None.
        since_ns: Unix nanoseconds since when all spans of its input reach this evaluator; 0:
            always.
    """

    evaluator: str = ""
    at_ns: int | None = None
    since_ns: int = 0


@record
class Report:
    """The results of one evaluation of one run, with the run itself.

    Attributes:
        results: the results that are available; empty if all are pending.
        pending: the results that follow, each in a report of its own.
        late: whether an earlier report of the run had these results as pending.
        standing: the verdict of all results of this revision that are in this report or in earlier
            ones; None for a run that has no verdict, because it is a part of another run or has no
            result.
        awaited: how many results of this revision were still missing when this report was made.
        attributes: the attributes of the run that are exported with its results.
        case: the case of the run, by which comparisons pair runs; "" if it has none.
        evidence: which spans of the trace were known; None if that was not kept.
        stamp: who evaluated the run, and when. Reports are compared without it.
        no_run: set if the trace has no result; then the trajectory has only the id of the trace.
        call_count: the number of tool calls of a report whose trajectory was stripped of its calls,
            else None.
    """

    trajectory: Trajectory
    evaluation: str
    revision: int
    results: tuple[Result, ...]
    pending: tuple[Pending, ...] = ()
    late: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    case: str = ""
    evidence: Evidence | None = None
    stamp: Stamp = field(default=Stamp(), compare=False)
    no_run: NoRun | None = None
    standing: Verdict | None = None
    awaited: int = 0
    call_count: int | None = field(default=None, compare=False)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the run under the evaluation; None if it has none, or results are missing
        that may change it. All reports of one revision that have a verdict have the same.
        """
        is_final = not self.awaited or self.standing is Verdict.NOT_PASSED
        return self.standing if is_final else None


def without_values(report: Report) -> Report:
    """Return the report without arguments and results of calls, input, output and spans, for those
    that hold reports and show or count calls only; the same report if it has none of them.
    """
    run = report.trajectory
    calls = run.calls
    if any(call.arguments is not UNRECORDED or call.result is not UNRECORDED for call in calls):
        calls = tuple([replace(call, arguments=UNRECORDED, result=UNRECORDED) for call in calls])
    elif not run.spans and run.input is run.output is UNRECORDED:
        return report
    light = replace(run, calls=calls, spans=(), input=UNRECORDED, output=UNRECORDED)
    return replace(report, trajectory=light)
