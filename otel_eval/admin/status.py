"""The state of a receiver on one page, for a person or a program.

Shows numbers by names of exporters, scorers and instrumentation scopes, and the id of the trace that is evaluated: no content of
spans.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from otel_eval.native import build_info

__all__ = ["Readiness", "status_fields", "status_json", "status_page"]

# Counts that mean that something is not scored, not whole or not delivered, with the reason.
DROPS: Final[Mapping[str, str]] = {
    "rejected_spans": "unusable ids or fields",
    "rejected_logs": "unusable ids or fields",
    "spans_over_limit": "their trace is over max_spans_per_trace or max_bytes_per_trace",
    "spans_too_late": "their trace was evaluated and forgotten",
    "traces_over_limit": "max_traces or max_bytes was reached: evaluated too early",
    "traces_failed": "could not be evaluated",
    "traces_crashed": "the process crashed twice while they were evaluated",
    "late_given_up": "no room to wait for late spans",
    "late_timeouts": "a judge took too long",
    "late_refused": "the queue of judges was full",
    "late_lost": "a judge hung",
    "scorers.hung": "a scorer of your own did not return",
    "references.broken": "a new version of a dataset could not be used",
    "results.export_failed": "could not be delivered",
    "results.undeliverable": "could not be delivered",
    "results.dropped": "not delivered and not in a dead-letter file",
    "results.refused": "the queue of the exporter was full",
    "forward.refused": "refused by the backend",
    "forward.discarded": "the backend does not support the signal",
    "forward.lost": "not passed on before the end",
    "storage.records_damaged": "damaged on disk",
}


class Readiness(NamedTuple):
    """Whether the receiver works, and how its evaluation stands.

    Attributes:
        ready: requests are taken, and evaluation makes progress or waits for something else.
        why: why it is not ready, or what evaluation waits for.
        evaluation: facts for the page, by name.
    """

    ready: bool
    why: str = ""
    evaluation: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return ("ready" if self.ready else "not ready") + (f": {self.why}" if self.why else "")


_TRACES: Final = {"open": "open_traces", "oldest_s": "oldest_trace_s", "bytes": "held_bytes"}
_UNEVALUATED: Final = ("traces_without_run", "spans_without_run", "runs_unmatched", "results.skipped", "context_lost_spans")
_QUEUES: Final = (
    "late_pending",
    "results.queued",
    "forward.waiting_bytes",
    "forward.held_spans",
    "storage.bytes",
    "storage.reports_waiting",
)
_UNSUPPORTED: Final = ("exports.unsupported", "forward.unsupported")


def status_fields(counts: Mapping[str, Any], readiness: Readiness, uptime_s: float) -> dict[str, Any]:
    """What matters first, then everything."""
    flat = {key: sum(value.values()) if isinstance(value, Mapping) else value for key, value in counts.items()}
    return {
        "ready": readiness.ready,
        "why": readiness.why,
        "uptime_s": round(uptime_s, 1),
        "build": build_info(),
        "traces": {fields: flat.get(key, 0) for fields, key in _TRACES.items()},
        "evaluation": dict(readiness.evaluation),
        "queues": {key: value for key, value in flat.items() if key.startswith(_QUEUES)},
        "unevaluated": {key: value for key, value in flat.items() if value and key.startswith(_UNEVALUATED)},
        "unsupported": [key for key, value in flat.items() if value and key.startswith(_UNSUPPORTED)],
        "failures": {key: value for key, value in flat.items() if key.startswith("scorers.results") and "outcome=failed" in key},
        "drops": {
            key: {"count": value, "why": DROPS[key.partition("{")[0]]}
            for key, value in flat.items()
            if value and key.partition("{")[0] in DROPS
        },
        "counts": dict(counts),
    }


def status_json(fields: Mapping[str, Any]) -> str:
    """As JSON."""
    return json.dumps(fields, indent=2) + "\n"


def status_page(fields: Mapping[str, Any]) -> str:
    """As plain HTML, without a script, a picture or a word from elsewhere."""
    unsupported: dict[str, Any] = dict.fromkeys(fields["unsupported"], "one result is tried again every minute")
    drops = {f"{key}: {each['why']}": each["count"] for key, each in fields["drops"].items()}
    state = Readiness(fields["ready"], fields["why"])
    tables = [
        ("Build", fields["build"]),
        ("Open traces", fields["traces"]),
        ("Evaluation", fields["evaluation"]),
        ("Queues", fields["queues"]),
        ("Not evaluated", fields["unevaluated"] or {"nothing": 0}),
        (
            "Signals that an endpoint does not support",
            unsupported or {"none": 0},
        ),
        ("Scorers that failed", fields["failures"] or {"none": 0}),
        ("Not scored, not whole or not delivered", drops or {"nothing": 0}),
        ("Everything", fields["counts"]),
    ]
    body = "".join(f"<h2>{html.escape(title)}</h2>{_table(rows)}" for title, rows in tables)
    head = '<!doctype html><meta charset="utf-8"><title>otel-eval</title><style>td{padding:0 2em 0 0}</style>'
    return f"{head}<h1>otel-eval: {html.escape(str(state))}, up {fields['uptime_s']:g} s</h1>{body}\n"


def _table(rows: Mapping[str, Any]) -> str:
    cells = "".join(f"<tr><td>{html.escape(str(key))}<td>{html.escape(_cell(value))}" for key, value in rows.items())
    return f"<table>{cells}</table>"


def _cell(value: Any) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, Mapping) else str(value)
