"""An explained trace (`otel-eval explain`) as JSON fields, with or without values, and as text of at most 100 columns."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from otel_eval.app import EvaluationOfRun, ExplainedRun, ExplainedTrace
from otel_eval.cli.render import WIDTH, columns, counted, cut, plain
from otel_eval.conventions import Recognition
from otel_eval.exporters.result_rows import own_fields
from otel_eval.model import UNRECORDED, Result
from otel_eval.trajectory import Ignored, SpanExplanation

__all__ = ["Disclosure", "closing_lines", "explanation_block", "explanation_fields"]

_LONGEST: Final = 200
_NO_RUN: Final = "no span was recognised as an agent, a model call or a tool call"


class Disclosure:
    """Which values of a trace are shown: all, or with `redact` none.

    Redaction keeps the names of spans, scopes, agents, tools, evaluations and scorers and the keys of attributes. Ids become
    short hashes, services numbers, values the names of their types, and texts of user-defined scorers are left out.
    """

    def __init__(self, *, redact: bool) -> None:
        self.redact: Final = redact

    def id(self, text: str) -> str:
        """An id, or a short hash of it that still distinguishes it from others."""
        # Ids are random, so that hashes of them reveal nothing; four bytes still distinguish the spans of one trace.
        return text if not self.redact or not text else f"#{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"

    def services(self, names: Iterable[str]) -> list[str]:
        """The names of the services; redacted they are numbered, since the hash of a name can be guessed."""
        known = sorted({*names} - {""})
        return [f"#{number}" for number in range(1, len(known) + 1)] if self.redact else known

    def value(self, value: Any) -> Any:
        """A value; of a long text only its beginning; None for one that was not recorded."""
        if value is UNRECORDED:
            return None
        if self.redact:
            return f"<{type(value).__name__}>"
        return value if not isinstance(value, str) or len(value) <= _LONGEST else f"{value[:_LONGEST]}…"

    def rule(self, recognition: Recognition) -> dict[str, str] | None:
        """The attribute and the patterns of the rule that matched; redacted only the attribute."""
        decided = recognition.rule or recognition.evaluation_mark
        if decided is None:
            return None
        patterns = {"pattern": decided.value, "span_name": getattr(decided, "name", "")}
        return {"attribute": decided.key, **({} if self.redact else patterns)}


def explanation_fields(explained: ExplainedTrace, disclosure: Disclosure) -> dict[str, Any]:
    """The trace, its spans as a tree in order of time, and its runs with the outcome of each evaluation."""
    trace, shown = explained.trace, disclosure
    # Scopes with unrecognised spans: for these the attributes that rules test are listed.
    unread = {span.scope for span in trace.spans if span.ignored is Ignored.NO_RULE}
    return {
        "trace_id": shown.id(trace.trace_id),
        "completeness": str(explained.completeness),
        "services": shown.services(span.service for span in trace.spans),
        "scopes": [_scope_fields(scope, spans) for scope, spans in _by_scope(trace.spans).items()],
        "spans": [_span_fields(span, shown, is_run=span.span_id in trace.runs) for span in trace.spans],
        "tops": [{"span_id": shown.id(t.span_id), "parent_id": shown.id(t.parent_id), "origin": t.origin} for t in trace.tops],
        "looked_for": {scope: sorted(keys) for scope, keys in sorted(trace.looked_for.items()) if scope in unread},
        "no_run": None if explained.runs else _NO_RUN,
        "runs": [_run_fields(run, str(trace.runs.get(run.trajectory.span_id, "")), shown) for run in explained.runs],
    }


def _by_scope(spans: Iterable[SpanExplanation]) -> dict[str, list[SpanExplanation]]:
    """The spans grouped by instrumentation scope."""
    found: dict[str, list[SpanExplanation]] = {}
    for span in spans:
        found.setdefault(span.scope, []).append(span)
    return found


def _scope_fields(scope: str, spans: list[SpanExplanation]) -> dict[str, Any]:
    """How many spans of a scope are of which kind, and how many were ignored for which reason."""
    kinds = Counter(str(span.kind) for span in spans if not span.ignored)
    return {
        "scope": scope,
        "spans": len(spans),
        "kinds": dict(sorted(kinds.items())),
        "conventions": sorted({span.recognition.table for span in spans} - {""}),
        "ignored": dict(Counter(str(span.ignored) for span in spans if span.ignored)),
    }


def _span_fields(span: SpanExplanation, shown: Disclosure, *, is_run: bool) -> dict[str, Any]:
    return {
        "span_id": shown.id(span.span_id),
        "parent_id": shown.id(span.parent_id),
        "depth": span.depth,
        "name": span.name,
        "scope": span.scope,
        "kind": str(span.kind),
        "run": is_run,
        "convention": span.recognition.table,
        "rule": shown.rule(span.recognition),
        "ignored": str(span.ignored or ""),
        "looked_at": {key: shown.value(value) for key, value in sorted(span.recognition.looked_at.items())},
        "attribute_keys": list(span.keys),
    }


def _run_fields(run: ExplainedRun, why: str, shown: Disclosure) -> dict[str, Any]:
    trajectory = run.trajectory
    return {
        "span_id": shown.id(trajectory.span_id),
        "agent": trajectory.agent,
        "name": trajectory.name,
        "why": why,
        "outermost": trajectory.outermost,
        "calls": [call.name for call in trajectory.calls],
        "calls_from_messages": any(not call.span_id for call in trajectory.calls),
        "model_calls": trajectory.model_calls,
        "calls_unknown": trajectory.calls_unknown,
        "incomplete": trajectory.incomplete,
        "evaluations": [_evaluation_fields(each, shown) for each in run.evaluations],
    }


def _evaluation_fields(evaluation: EvaluationOfRun, shown: Disclosure) -> dict[str, Any]:
    failed = [
        {"condition": each.condition, "wanted": shown.value(each.wanted), "actual": shown.value(each.actual)}
        for each in evaluation.failed
    ]
    return {
        "evaluation": evaluation.name,
        "matched": not failed,
        "failed_conditions": failed,
        "results": [_result_fields(each, shown, safe=each.scorer not in evaluation.user_defined) for each in evaluation.results],
        "not_asked": list(evaluation.not_asked),
    }


def _result_fields(result: Result, shown: Disclosure, *, safe: bool) -> dict[str, Any]:
    """A result; redacted without value, and without the text of a user-defined scorer, which may quote content."""
    row = own_fields(result)
    fields = {key: row[key] for key in ("scorer", "type", "outcome", "value", "passed", "reason")}
    # Why there is no score. Of a failed scorer only the type of the error: its message may quote content.
    fields["text"] = "" if row["outcome"] == "scored" else row["explanation"]
    if shown.redact:
        fields.update({"value": None, "passed": None}, **({} if safe else {"text": ""}))
    return fields


_MOST_SPANS: Final = 60
_MOST_SCOPES: Final = 20
_MOST_NAMES: Final = 12
_MOST_KEYS: Final = 40
_DEEPEST: Final = 12
_NAME_WIDTH: Final = 44
_SCOPE_WIDTH: Final = 40
_SHORT: Final = 24
_REMEDY: Final = (
    "Spans are recognised by their attributes: use an instrumentation that `otel-eval conventions` lists, or describe your own "
    "attributes under `conventions` in the configuration (docs/how-to/custom-convention.md)."
)


def explanation_block(fields: Mapping[str, Any]) -> list[str]:
    """The fields of `explanation_fields` as lines: scopes, tree, unrecognised spans, runs."""
    parts = [_scopes(fields), _tree(fields), _unrecognised(fields), _missing_parents(fields), *map(_run, fields["runs"])]
    if fields["no_run"]:
        parts.append(_indented(f"no agent run: {fields['no_run']}. {_REMEDY}"))
    return [*_headline(fields), *(line for part in parts if part for line in ("", *part)), ""]


def closing_lines(traces: int, with_run: int, looked_for: Iterable[str]) -> list[str]:
    """The number of traces and of those with a run; before it the attributes that rules test, if spans matched no rule."""
    keys = ", ".join(sorted(looked_for))
    looked = _indented(f"Attributes that rules test: {keys}", 0) if keys else []
    return [*looked, f"{counted(traces, 'trace')}, {with_run} with an agent run"]


def _headline(fields: Mapping[str, Any]) -> list[str]:
    """Trace id, number of spans, services and completeness."""
    services = fields["services"]
    facts = [
        f"trace {fields['trace_id']}",
        counted(len(fields["spans"]), "span"),
        f"service{'' if len(services) == 1 else 's'} {_listed(services)}" if services else "no service.name",
        fields["completeness"],
    ]
    return textwrap.wrap(plain(" · ".join(facts)), WIDTH, subsequent_indent="    ")


def _scopes(fields: Mapping[str, Any]) -> list[str]:
    """A table of the instrumentation scopes with their spans by kind."""
    header = ("scope", "spans", "agent", "model", "tool", "ignored", "conventions")
    rows = [
        (
            each["scope"] or "(unnamed)",
            str(each["spans"]),
            *(str(each["kinds"].get(kind, "")) for kind in ("agent", "model", "tool")),
            str(sum(each["ignored"].values()) or ""),
            ", ".join(each["conventions"]) or "none",
        )
        for each in fields["scopes"][:_MOST_SCOPES]
    ]
    lines = [f"  {line}" for line in columns(header, rows, width=WIDTH - 2, widest=_SCOPE_WIDTH)]
    return [*lines, *_more(len(fields["scopes"]) - _MOST_SCOPES, "more scope")]


def _tree(fields: Mapping[str, Any]) -> list[str]:
    """The spans, indented by depth, each with its kind and why it was recognised or ignored."""
    spans = fields["spans"][:_MOST_SPANS]
    names = [cut("  " * min(span["depth"], _DEEPEST) + plain(span["name"]), _NAME_WIDTH) for span in spans]
    width = max(map(len, names), default=0)
    rows = ((f"  {_kind(span):<6} {name:<{width}}  ", _why(span)) for span, name in zip(spans, names, strict=True))
    lines = [line for start, why in rows for line in _hanging(start, why)]
    return [*lines, *_more(len(fields["spans"]) - len(spans), "more span")]


def _kind(span: Mapping[str, Any]) -> str:
    return "-" if span["kind"] == "other" else str(span["kind"])


def _why(span: Mapping[str, Any]) -> str:
    """The convention and rule that matched, and why the span was ignored, if it was."""
    rule, ignored = _rule(span), f"ignored: {span['ignored']}"
    if not span["ignored"]:
        return rule
    if span["run"]:
        return f"the run's own span; {span['ignored']}"
    if rule:
        return f"{ignored} ({rule})"
    unmatched = ", ".join(f"{key}={_json(value)}" for key, value in span["looked_at"].items())
    return f"{ignored}; none accepts {unmatched}" if unmatched else ignored


def _rule(span: Mapping[str, Any]) -> str:
    """The rule with the span's own value; the pattern instead of a long value, which may be content."""
    rule = span["rule"]
    if rule is None:
        return ""
    key, pattern, name = rule["attribute"], rule.get("pattern", ""), rule.get("span_name", "")
    # Instrumentations mark spans with short words; what is longer may be a prompt.
    value = str(span["looked_at"].get(key, ""))
    value = value if len(value) <= _SHORT else pattern
    parts = [f"{key}={value}" if key and pattern else key, f"span name {name}" if name else ""]
    return f"{span['convention'] or 'evaluation'}: {' and '.join(part for part in parts if part)}"


def _unrecognised(fields: Mapping[str, Any]) -> list[str]:
    """The attribute keys of spans that no rule matched, by scope: what a convention of the user's own could use."""
    spans: dict[str, list[Mapping[str, Any]]] = {scope: [] for scope in fields["looked_for"]}
    for span in fields["spans"]:
        if span["ignored"] and not span["convention"] and span["scope"] in spans:
            spans[span["scope"]].append(span)
    lines: list[str] = []
    for scope, unread in list(spans.items())[:_MOST_SCOPES]:
        keys = sorted({key for span in unread for key in span["attribute_keys"]})
        lines += _indented(f"{counted(len(unread), 'span')} of {scope or '(unnamed scope)'} match no rule; their attributes:")
        lines += _indented(_listed(keys, _MOST_KEYS) or "none", 4)
    return [*lines, *_more(len(spans) - _MOST_SCOPES, "more scope")]


def _more(number: int, noun: str) -> list[str]:
    """A line with the number of rows that were left out; empty for none."""
    return [f"  … {counted(number, noun)}; --format json lists all"] if number > 0 else []


def _missing_parents(fields: Mapping[str, Any]) -> list[str]:
    """The spans whose parent is not in the trace, and where it is as far as known."""
    names = {span["span_id"]: span["name"] for span in fields["spans"]}
    tops = [top for top in fields["tops"] if top["parent_id"]]
    lines = [f"top span {names[top['span_id']]}: {top['origin']} ({top['parent_id']})." for top in tops[:_MOST_NAMES]]
    more = [f"{counted(len(tops) - _MOST_NAMES, 'more top span')} with a missing parent."] if len(tops) > _MOST_NAMES else []
    return [line for text in (*lines, *more) for line in _indented(text)]


def _run(run: Mapping[str, Any]) -> list[str]:
    """Why there is this run, its calls, and the outcome of each evaluation."""
    agent = f" (agent {run['agent']})" if run["agent"] and run["agent"] != run["name"] else ""
    nested = "" if run["outermost"] else "; inside another run"
    source = " read from messages" if run["calls_from_messages"] else ""
    calls = f"{counted(len(run['calls']), 'tool call')}{source}{': ' if run['calls'] else ''}{_listed(run['calls'])}"
    facts = [
        f"run {run['name'] or run['span_id']}{agent}: {run['why']}{nested}; {calls}; {counted(run['model_calls'], 'model call')}."
    ]
    facts += [f"calls unknown: {run['calls_unknown']}"] if run["calls_unknown"] else []
    facts += [f"incomplete: {run['incomplete']}"] if run["incomplete"] else []
    lines = [line for place, fact in enumerate(facts) for line in _indented(fact, 4 if place else 2)]
    known = [text for text in (run["calls_unknown"], run["incomplete"]) if text]  # shown above, so not once more per scorer
    return [*lines, *(line for each in run["evaluations"] for line in _evaluation(each, known))]


def _evaluation(evaluation: Mapping[str, Any], known: list[str]) -> Iterator[str]:
    """The lines of an evaluation; a reason that is shown with the run is not repeated for every scorer."""
    name = evaluation["evaluation"]
    if not evaluation["matched"]:
        failed = "; ".join(map(_failed_condition, evaluation["failed_conditions"]))
        yield from _indented(f"evaluation {name} does not match: {failed}", 4)
        return
    yield from _indented(f"evaluation {name} matches:", 4)
    rows = [
        (each["scorer"], _outcome(each), "see above" if any(text in each["text"] for text in known) else each["text"])
        for each in evaluation["results"]
    ]
    rows += [
        (scorer, "not run", "it waits for a judge or coroutine; `otel-eval replay` runs it") for scorer in evaluation["not_asked"]
    ]
    yield from (f"      {line}" for line in columns(("scorer", "outcome", "reason"), rows, width=WIDTH - 6))


def _failed_condition(condition: Mapping[str, Any]) -> str:
    """A condition of `match`, or `sample`, that kept the evaluation from the run."""
    key, wanted, actual = condition["condition"], _json(condition["wanted"]), condition["actual"]
    if key == "sample":
        return f"sample is {wanted}, and the hash of the trace id is {_json(actual)}"
    if key == "match.runs":
        return f"{key} requires {wanted}, and this run is inside another one"
    return f"{key} requires {wanted}, and the run {'has none' if actual is None else f'has {_json(actual)}'}"


def _outcome(result: Mapping[str, Any]) -> str:
    """The outcome as words of a table: value and pass or fail, or why there is none."""
    if result["outcome"] == "skipped":
        return f"skipped, {result['reason']}"
    if result["outcome"] == "failed" or result["value"] is None:
        return str(result["outcome"])
    return f"{result['value']:.3f} {'pass' if result['passed'] else 'fail'}"


def _indented(text: str, indent: int = 2) -> list[str]:
    """The text, wrapped and indented."""
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
    )


def _hanging(start: str, text: str) -> list[str]:
    """A row whose last cell wraps with a hanging indent."""
    wrapped = textwrap.wrap(plain(text), max(20, WIDTH - len(start)), max_lines=3, placeholder=" …", break_on_hyphens=False) or [
        ""
    ]
    return [(start + wrapped[0]).rstrip(), *(" " * len(start) + more for more in wrapped[1:])]


def _listed(names: Iterable[str], most: int = _MOST_NAMES) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _json(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str), 60)
