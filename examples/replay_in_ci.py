"""Check stored traces against a policy in CI: fail if a run violates it or if nothing was
evaluated.

    python examples/replay_in_ci.py [FILE...]

The files are what a Collector's file exporter or a backend's download holds; without any, a
recorded trace of the demonstration is used. The command line does the same: `otel-eval replay
traces.json --config eval.yaml`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from otel_eval import Failed, Scored, Skipped
from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.sources.files import CollectedMessages

policy = load(
    {
        "evaluations": [
            {
                "name": "travel-policy",
                "scorers": [
                    {"type": "required_tools", "patterns": ["get_weather"]},
                    {"type": "precedence", "rules": ["get_weather before book_flight"]},
                    {"type": "tool_errors", "threshold": 0.5},
                ],
            }
        ]
    }
)
recorded = str(Path(__file__).with_name("demo_trace.json"))


def describe(outcome: Scored | Skipped | Failed) -> str:
    """The outcome in a few words."""
    match outcome:
        case Scored():
            return f"{outcome.value:.2f} {'passed' if outcome.passed else 'did not pass'}"
        case Skipped():
            return f"skipped: {outcome.explanation}"
        case Failed():
            return f"failed: {outcome.error_type}"


messages = CollectedMessages()
broken = evaluated = False
for report in stored_traces.replay(sys.argv[1:] or [recorded], policy, messages):
    for result in report.results:
        print(report.trajectory.trace_id, result.scorer, describe(result.outcome))
        evaluated |= isinstance(result.outcome, Scored)
    broken |= report.verdict not in (None, "pass")
for line in messages.problems:
    print(line, file=sys.stderr)
sys.exit(2 if messages.problems else 1 if broken else 0 if evaluated else 3)
