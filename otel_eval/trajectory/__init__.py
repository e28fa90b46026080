"""From the spans of a closed trace to the trajectories of its agent runs.

The modules, in the order in which a trace passes through them: `span_tree` (parent links), `classify` (what each span is), `runs`
(which spans are runs, and whether their evidence is complete), `calls` and `same_call` (tool spans to calls), `dialogue` and
`conversation` (what messages add), `facts` (attributes of the run), `build` (all of it), `explanation` (the same decisions with
their reasons).
"""

from __future__ import annotations

from otel_eval.trajectory.build import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from otel_eval.trajectory.explanation import Ignored, RunOrigin, SpanExplanation, TraceExplanation, explain_trace
from otel_eval.trajectory.run import Run
from otel_eval.trajectory.runs import CUT

__all__ = [
    "ALL_NEEDS",
    "CUT",
    "Ignored",
    "Plan",
    "Run",
    "RunOrigin",
    "SpanExplanation",
    "TraceExplanation",
    "build",
    "explain_trace",
]
