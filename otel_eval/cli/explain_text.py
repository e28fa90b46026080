"""An explained trace as text for a person, at most 100 columns wide."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_eval.cli.tables import WIDTH, columns, cut, plain

__all__ = ["closing_lines", "explanation_block"]

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
    "attributes under `conventions` in the configuration (docs/reference/conventions.md)."
)


def explanation_block(fields: Mapping[str, Any]) -> list[str]:
    """The fields of `explanation_fields` as lines: scopes, tree, what was not recognised, runs."""
    parts = [_scopes(fields), _tree(fields), _unrecognised(fields), _missing_parents(fields), *map(_run, fields["runs"])]
    if fields["no_run"]:
        parts.append(_indented(f"no agent run: {fields['no_run']}. {_REMEDY}"))
    return [*_headline(fields), *(line for part in parts if part for line in ("", *part)), ""]


def closing_lines(traces: int, with_run: int, looked_for: Iterable[str]) -> list[str]:
    """How many traces there were and how many had a run; the attributes that rules look at, where spans fit none of them."""
    keys = ", ".join(sorted(looked_for))
    looked = _indented(f"Attributes that rules look at: {keys}", 0) if keys else []
    return [*looked, f"{_count(traces, 'trace')}, {with_run} with an agent run"]


def _headline(fields: Mapping[str, Any]) -> list[str]:
    services = fields["services"]
    facts = [
        f"trace {fields['trace_id']}",
        _count(len(fields["spans"]), "span"),
        f"service{'' if len(services) == 1 else 's'} {_listed(services)}" if services else "no service.name",
        fields["completeness"],
    ]
    return textwrap.wrap(plain(" · ".join(facts)), WIDTH, subsequent_indent="    ")


def _scopes(fields: Mapping[str, Any]) -> list[str]:
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
    spans = fields["spans"][:_MOST_SPANS]
    names = [cut("  " * min(span["depth"], _DEEPEST) + plain(span["name"]), _NAME_WIDTH) for span in spans]
    width = max(map(len, names), default=0)
    rows = ((f"  {_kind(span):<6} {name:<{width}}  ", _why(span)) for span, name in zip(spans, names, strict=True))
    lines = [line for start, why in rows for line in _hanging(start, why)]
    return [*lines, *_more(len(fields["spans"]) - len(spans), "more span")]


def _kind(span: Mapping[str, Any]) -> str:
    return "-" if span["kind"] == "other" else str(span["kind"])


def _why(span: Mapping[str, Any]) -> str:
    """The convention and rule that decided, and why the span was left out if it was."""
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
    """The rule with the span's own value where it is short; it may hold content, so the pattern stands for a long one."""
    rule = span["rule"]
    if rule is None:
        return ""
    key, pattern, name = rule["attribute"], rule.get("pattern", ""), rule.get("span_name", "")
    value = str(span["looked_at"].get(key, ""))
    value = value if len(value) <= _SHORT else pattern
    parts = [f"{key}={value}" if key and pattern else key, f"span name {name}" if name else ""]
    return f"{span['convention'] or 'evaluation'}: {' and '.join(part for part in parts if part)}"


def _unrecognised(fields: Mapping[str, Any]) -> list[str]:
    spans: dict[str, list[Mapping[str, Any]]] = {scope: [] for scope in fields["looked_for"]}
    for span in fields["spans"]:
        if span["ignored"] and not span["convention"] and span["scope"] in spans:
            spans[span["scope"]].append(span)
    lines: list[str] = []
    for scope, unread in list(spans.items())[:_MOST_SCOPES]:
        keys = sorted({key for span in unread for key in span["attribute_keys"]})
        lines += _indented(f"{_count(len(unread), 'span')} of {scope or '(unnamed scope)'} fit no rule; their attributes:")
        lines += _indented(_listed(keys, _MOST_KEYS) or "none", 4)
    return [*lines, *_more(len(spans) - _MOST_SCOPES, "more scope")]


def _more(number: int, noun: str) -> list[str]:
    return [f"  … {_count(number, noun)}; --format json lists all"] if number > 0 else []


def _missing_parents(fields: Mapping[str, Any]) -> list[str]:
    names = {span["span_id"]: span["name"] for span in fields["spans"]}
    tops = [top for top in fields["tops"] if top["parent_id"]]
    lines = [f"top span {names[top['span_id']]}: {top['origin']} ({top['parent_id']})." for top in tops[:_MOST_NAMES]]
    more = [f"{_count(len(tops) - _MOST_NAMES, 'more top span')} with a missing parent."] if len(tops) > _MOST_NAMES else []
    return [line for text in (*lines, *more) for line in _indented(text)]


def _run(run: Mapping[str, Any]) -> list[str]:
    agent = f" (agent {run['agent']})" if run["agent"] and run["agent"] != run["name"] else ""
    nested = "" if run["outermost"] else "; inside another run"
    source = " read from messages" if run["calls_from_messages"] else ""
    calls = f"{_count(len(run['calls']), 'tool call')}{source}{': ' if run['calls'] else ''}{_listed(run['calls'])}"
    facts = [
        f"run {run['name'] or run['span_id']}{agent}: {run['why']}{nested}; {calls}; {_count(run['model_calls'], 'model call')}."
    ]
    facts += [f"calls unknown: {run['calls_unknown']}"] if run["calls_unknown"] else []
    facts += [f"incomplete: {run['incomplete']}"] if run["incomplete"] else []
    lines = [line for place, fact in enumerate(facts) for line in _indented(fact, 4 if place else 2)]
    known = [text for text in (run["calls_unknown"], run["incomplete"]) if text]
    return [*lines, *(line for each in run["evaluations"] for line in _evaluation(each, known))]


def _evaluation(evaluation: Mapping[str, Any], known: list[str]) -> Iterator[str]:
    """The lines of an evaluation; a reason that stands with the run already is not repeated for every scorer."""
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
        (scorer, "not asked", "it waits for a judge or coroutine; `otel-eval replay` asks it")
        for scorer in evaluation["not_asked"]
    ]
    yield from (f"      {line}" for line in columns(("scorer", "outcome", "what it lacked"), rows, width=WIDTH - 6))


def _failed_condition(condition: Mapping[str, Any]) -> str:
    key, wanted, actual = condition["condition"], _json(condition["wanted"]), condition["actual"]
    if key == "sample":
        return f"sample is {wanted}, and the trace id draws {_json(actual)}"
    if key == "match.runs":
        return f"{key} wants {wanted}, and this run is inside another one"
    return f"{key} wants {wanted}, and the run {'has none' if actual is None else f'has {_json(actual)}'}"


def _outcome(result: Mapping[str, Any]) -> str:
    if result["outcome"] == "skipped":
        return f"skipped, {result['reason']}"
    if result["outcome"] == "failed" or result["value"] is None:
        return str(result["outcome"])
    return f"{result['value']:.3f} {'pass' if result['passed'] else 'fail'}"


def _indented(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        plain(text), WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
    )


def _hanging(start: str, text: str) -> list[str]:
    """A row whose last cell wraps below itself."""
    wrapped = textwrap.wrap(plain(text), max(20, WIDTH - len(start)), max_lines=3, placeholder=" …", break_on_hyphens=False) or [
        ""
    ]
    return [(start + wrapped[0]).rstrip(), *(" " * len(start) + more for more in wrapped[1:])]


def _listed(names: Iterable[str], most: int = _MOST_NAMES) -> str:
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _json(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str), 60)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
