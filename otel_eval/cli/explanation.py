"""An explained trace (`otel-eval explain`) as text, with or without values."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from otel_eval.app.stored_traces import EvaluationOfRun, ExplainedRun, ExplainedTrace
from otel_eval.cli.render import OUTCOME_COLORS, json_text
from otel_eval.exporters.text_table import PLAIN_LAYOUT, Layout, columns, plain
from otel_eval.model import Failed, Kind, Result, Scored
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.tool_names import plural, shortened, some_of
from otel_eval.trajectory.explanation import Ignored, SpanExplanation, TraceExplanation

_MOST_NAMES: Final = 12
_MOST_KEYS: Final = 40
_DEEPEST: Final = 12
_NAME_WIDTH: Final = 44
_SCOPE_WIDTH: Final = 40
_SHORT: Final = 24
_KINDS: Final = (Kind.AGENT, Kind.MODEL, Kind.TOOL)
_NO_RUN: Final = (
    "no agent run: no span was recognised as an agent, a model call or a tool call. Spans are"
    " recognised by their attributes: use an instrumentation that `otel-eval conventions` lists, or"
    " describe your own attributes under `conventions` in the configuration"
    " (docs/how-to/custom-convention.md)."
)
_LONE_CALLS: Final = (
    "no agent run: no agent span, and a tool span that is a local root or that of an MCP server is"
    " the call of an agent elsewhere. Trace the agent that calls, or evaluate each call by itself:"
    " `match: {runs: tools}`."
)


class Disclosure:
    """Which values of a trace are shown, all or with `redact` none, and in which layout.

    Redaction keeps the names of spans, scopes, agents, tools, evaluations and scorers and the keys
    of attributes. Ids become short hashes, services numbers, values the names of their types, and
    texts of user-defined scorers are left out.
    """

    def __init__(self, *, redact: bool, layout: Layout = PLAIN_LAYOUT) -> None:
        self.redact: Final = redact
        self.layout: Final = layout

    def id(self, text: str) -> str:
        """An id, or a short hash of it that still distinguishes it from others."""
        # Ids are random, so that hashes of them reveal nothing; four bytes still distinguish the
        # spans of one trace.
        return (
            text
            if not self.redact or not text
            else f"#{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"
        )

    def services(self, names: Iterable[str]) -> list[str]:
        """The names of the services; redacted they are numbered, since the hash of a name can be
        guessed.
        """
        services = sorted({*names} - {""})
        return [f"#{number}" for number in range(1, len(services) + 1)] if self.redact else services

    def value(self, value: Any) -> str:
        """The beginning of a value as JSON; redacted its type."""
        return f"<{type(value).__name__}>" if self.redact else shortened(json_text(value), 60)


def explanation_block(explained: ExplainedTrace, shown: Disclosure) -> list[str]:
    """The lines of a trace: scopes, tree, unrecognised spans, missing parents, runs with the
    outcome of each evaluation.
    """
    trace = explained.trace
    parts = [
        _scopes(trace, shown),
        _tree(trace, shown),
        _unrecognised(trace, shown),
        _missing_parents(trace, shown),
    ]
    parts += [
        _run(run, str(trace.runs.get(run.trajectory.span_id, "")), shown) for run in explained.runs
    ]
    if not explained.runs:
        has_tools = any(span.kind is Kind.TOOL for span in trace.spans)
        parts.append(_indent(_LONE_CALLS if has_tools else _NO_RUN, shown))
    return [
        *_headline(explained, shown),
        *(line for part in parts if part for line in ("", *part)),
        "",
    ]


def tested_attributes(trace: TraceExplanation) -> set[str]:
    """The attributes that rules test in scopes with spans that no rule matched."""
    return {key for scope in _unread(trace) for key in trace.looked_for.get(scope, ())}


def closing_lines(
    traces: int, with_run: int, tested: Iterable[str], shown: Disclosure
) -> list[str]:
    """The number of traces and of those with a run; before it the attributes that rules test, if
    spans matched no rule.
    """
    keys = ", ".join(sorted(tested))
    looked = _indent(f"Attributes that rules test: {keys}", shown, 0) if keys else []
    return [*looked, f"{plural(traces, 'trace')}, {with_run} with an agent run"]


def _headline(explained: ExplainedTrace, shown: Disclosure) -> list[str]:
    """Trace id, number of spans, services and completeness."""
    spans = explained.trace.spans
    services = shown.services(span.service for span in spans)
    parts = [
        f"trace {shown.id(explained.trace.trace_id)}",
        plural(len(spans), "span"),
        (
            f"service{'' if len(services) == 1 else 's'} {_list_names(services)}"
            if services
            else "no service.name"
        ),
        str(explained.completeness),
    ]
    return textwrap.wrap(plain(" · ".join(parts)), shown.layout.width, subsequent_indent="    ")


def _by_scope(spans: Iterable[SpanExplanation]) -> dict[str, list[SpanExplanation]]:
    """The spans grouped by instrumentation scope."""
    scopes: dict[str, list[SpanExplanation]] = {}
    for span in spans:
        scopes.setdefault(span.scope, []).append(span)
    return scopes


def _scopes(trace: TraceExplanation, shown: Disclosure) -> list[str]:
    """A table of the instrumentation scopes with their spans by kind."""
    header = ("scope", "spans", "agent", "model", "tool", "ignored", "conventions")
    rows = []
    for scope, spans in _by_scope(trace.spans).items():
        kinds = Counter("ignored" if span.ignored else span.kind for span in spans)
        tables = ", ".join(sorted({span.recognition.table for span in spans} - {""}))
        numbers = (str(kinds[kind] or "") for kind in (*_KINDS, "ignored"))
        rows.append((scope or "(unnamed)", str(len(spans)), *numbers, tables or "none"))
    return columns(header, rows, indent=2, layout=shown.layout, widest=_SCOPE_WIDTH)


def _tree(trace: TraceExplanation, shown: Disclosure) -> list[str]:
    """The spans, indented by depth, each with its kind and why it was recognised or ignored."""
    rows = []
    for span in trace.spans:
        kind = "-" if span.kind is Kind.OTHER else str(span.kind)
        reason = _why(span, shown, is_run=span.span_id in trace.runs)
        rows.append((kind, "  " * min(span.depth, _DEEPEST) + span.name, reason))
    return columns(("kind", "span", "why"), rows, indent=2, layout=shown.layout, widest=_NAME_WIDTH)


def _why(span: SpanExplanation, shown: Disclosure, *, is_run: bool) -> str:
    """The convention and rule that matched, and why the span was ignored, if it was."""
    rule = _rule(span, shown)
    if not span.ignored:
        return rule
    if is_run:
        return f"the run's own span; {span.ignored}"
    if rule:
        return f"ignored: {span.ignored} ({rule})"
    unmatched = ", ".join(
        f"{key}={shown.value(value)}" for key, value in sorted(span.recognition.looked_at.items())
    )
    return (
        f"ignored: {span.ignored}; rules tested {unmatched}"
        if unmatched
        else f"ignored: {span.ignored}"
    )


def _rule(span: SpanExplanation, shown: Disclosure) -> str:
    """The rule with the span's own value; the pattern instead of a long value, which may be
    content; redacted neither.
    """
    decided = span.recognition.rule or span.recognition.evaluation_mark
    if decided is None:
        return ""
    key, name = decided.key, getattr(decided, "name", "")  # marks of evaluations have no name
    # Instrumentations mark spans with short words; what is longer may be a prompt.
    value = str(span.recognition.looked_at.get(key, ""))
    value = value if len(value) <= _SHORT else decided.value
    attribute = key if shown.redact or not decided.value else f"{key}={value}"
    parts = [attribute if key else "", f"span name {name}" if name else ""]
    return f"{span.recognition.table or 'evaluation'}: {' and '.join(filter(None, parts))}"


def _unread(trace: TraceExplanation) -> dict[str, list[SpanExplanation]]:
    """The spans that no rule matched, by scope."""
    return _by_scope(span for span in trace.spans if span.ignored is Ignored.NO_RULE)


def _unrecognised(trace: TraceExplanation, shown: Disclosure) -> list[str]:
    """The attribute keys of spans that no rule matched, by scope: what a convention of the user's
    own could use.
    """
    lines: list[str] = []
    for scope, spans in _unread(trace).items():
        keys = sorted({key for span in spans for key in span.keys})
        lines += _indent(
            f"{plural(len(spans), 'span')} of {scope or '(unnamed scope)'} match no rule; their"
            " attributes:",
            shown,
        )
        lines += _indent(_list_names(keys, _MOST_KEYS) or "none", shown, 4)
    return lines


def _missing_parents(trace: TraceExplanation, shown: Disclosure) -> list[str]:
    """The spans whose parent is not in the trace, and where it is as far as known."""
    names = {span.span_id: span.name for span in trace.spans}
    roots = (
        f"root {names[root.span_id]}: {root.origin} ({shown.id(root.parent_id)})."
        for root in trace.roots
        if root.parent_id
    )
    return [line for text in roots for line in _indent(text, shown)]


def _run(explained: ExplainedRun, reason: str, shown: Disclosure) -> list[str]:
    """Why there is this run, its calls, and the outcome of each evaluation."""
    run = explained.trajectory
    names = [call.name for call in run.calls]
    agent = f" (agent {run.agent})" if run.agent and run.agent != run.name else ""
    nested = "" if run.outermost else "; inside another run"
    source = "" if all(call.span_id for call in run.calls) else " read from messages"
    calls = f"{plural(len(names), 'tool call')}{source}{': ' if names else ''}{_list_names(names)}"
    lines = _indent(
        f"run {run.name or shown.id(run.span_id)}{agent}: {reason}{nested}; {calls};"
        f" {plural(run.model_calls, 'model call')}.",
        shown,
    )
    reasons = [
        (label, text)
        for label, text in (
            ("calls unknown", run.calls_unknown),
            ("incomplete", run.incomplete),
            ("waiting", run.waiting),
        )
        if text
    ]
    for label, text in reasons:
        lines += _indent(f"{label}: {text}", shown, 4)
    run_reasons = [text for _, text in reasons]
    for evaluation in explained.evaluations:
        lines += _evaluation(evaluation, run_reasons, shown)
    return lines


def _evaluation(
    explained: EvaluationOfRun, run_reasons: list[str], shown: Disclosure
) -> Iterator[str]:
    """The lines of an evaluation; a reason that is shown with the run is not repeated for every
    scorer.
    """
    evaluation = explained.evaluation
    if explained.failed:
        failed = "; ".join(condition.text(shown.value) for condition in explained.failed)
        yield from _indent(f"evaluation {evaluation.name} does not match: {failed}", shown, 4)
        return
    yield from _indent(f"evaluation {evaluation.name} matches:", shown, 4)
    # texts of others may quote content
    built_in = {scorer.name for scorer in evaluation.scorers if is_own_scorer(scorer)}
    rows = []
    for result in explained.results:
        outcome, text = _outcome(result, shown)
        hidden = shown.redact and result.scorer not in built_in
        rows.append(
            (
                result.scorer,
                outcome,
                ""
                if hidden
                else "see above"
                if any(reason in text for reason in run_reasons)
                else text,
            )
        )
    rows += [
        (scorer.name, "not run", "it waits for a judge or coroutine; `otel-eval replay` runs it")
        for scorer in evaluation.later
    ]
    yield from columns(
        ("scorer", "outcome", "reason"),
        rows,
        indent=6,
        layout=shown.layout,
        colors=OUTCOME_COLORS,
        colored=1,
    )


def _outcome(result: Result, shown: Disclosure) -> tuple[str, str]:
    """Outcome and value, and the explanation; redacted a score has neither. Of a failed scorer only
    the error's type: its message may quote content.
    """
    outcome = result.outcome
    if isinstance(outcome, Scored):
        word = "pass" if outcome.passed else "not passed"
        return (
            ("scored", "")
            if shown.redact
            else (f"{word}, {outcome.value:.3f}", outcome.explanation)
        )
    if isinstance(outcome, Failed):
        return "failed", outcome.error_type
    return f"skipped, {outcome.reason}", outcome.explanation


def _indent(text: str, shown: Disclosure, indent: int = 2) -> list[str]:
    """The text, wrapped and indented."""
    return textwrap.wrap(
        plain(text),
        shown.layout.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )


def _list_names(names: Sequence[str], limit: int = _MOST_NAMES) -> str:
    """The first names, and how many more there are."""
    return some_of(names[:limit], len(names))
