"""From the spans of a closed trace to the trajectories of its agent runs.

Knows trees, times and kinds; attribute names are the conventions' business, scores the scorers'. The rooms inside,
in the order in which a trace goes through them: `plan` (what is read), `forest` (trees), `survey` (what each span
is, by `walks`), `runs` (which are runs, and whether they are whole), `calls` and `same_call` (tool spans to calls),
`dialogue` and `conversation` (what messages add), `facts` (the run's own), `build` (all of it together; `plain` is its
shortcut for the traces that most traces are), `explanation` (the same decisions with their reasons).
"""

from __future__ import annotations

from otel_eval.trajectory.build import build
from otel_eval.trajectory.explanation import Ignored, RunOrigin, SpanExplanation, TraceExplanation, explain_trace
from otel_eval.trajectory.plan import ALL_NEEDS, Plan
from otel_eval.trajectory.run import Run
from otel_eval.trajectory.runs import CUT
from otel_eval.trajectory.walks import recognise

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
    "recognise",
]
