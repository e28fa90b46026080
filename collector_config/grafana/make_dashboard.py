"""Write dashboard.json: the scores of agents in Grafana, from the metrics that Prometheus scrapes
or receives by OTLP.

    python collector_config/grafana/make_dashboard.py

The panels need no recording rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).with_name("dashboard.json")
SCORER = "otel_eval_evaluation, gen_ai_evaluation_name, otel_eval_service, gen_ai_agent_name"
TOOL = "gen_ai_tool_name, otel_eval_service, gen_ai_agent_name"
SCORER_NAME = "{{gen_ai_agent_name}} · {{gen_ai_evaluation_name}}"
TOOL_NAME = "{{gen_ai_agent_name}} · {{gen_ai_tool_name}}"
CHOSEN = 'otel_eval_service=~"$service",gen_ai_agent_name=~"$agent"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 12, 8  # of a panel, in columns of 24 and rows


def counted(metric: str, labels: str = CHOSEN, window: str = "$window") -> str:
    """What was counted in the window. The first value of a series counts too, which `increase`
    ignores.
    """
    series = f"{metric}{{{labels}}}"
    return f"(({series} unless {series} offset {window}) or increase({series}[{window}]))"


def summed(by: str, metric: str, labels: str = CHOSEN) -> str:
    """The same by labels."""
    return f"sum by ({by}) ({counted(metric, labels)})"


def results(by: str, condition: str) -> str:
    """Results of the chosen agents that meet a condition."""
    return summed(by, "otel_eval_results_total", f"{CHOSEN},{condition}")


PASSED = 'gen_ai_evaluation_score_label="pass"'
SCORED = 'otel_eval_outcome="scored"'
INCOMPLETE = counted("otel_eval_results_skipped_total", 'reason=~"incomplete|calls_unknown"')
CALLS = summed(TOOL, "otel_eval_tool_calls_total")
# title, unit, description, (expression, legend) …
PANELS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    (
        "Pass rate",
        "percentunit",
        "Of the results that are scores; skipped and failed ones are neither a pass nor a fail.",
        [(f"{results(SCORER, PASSED)} / ({results(SCORER, SCORED)} > 0)", SCORER_NAME)],
    ),
    (
        "Score: mean and 10th percentile",
        "none",
        "Nine of ten scores are above the 10th percentile.",
        [
            (
                (
                    f"{summed(SCORER, 'otel_eval_score_sum')} /"
                    f" ({summed(SCORER, 'otel_eval_score_count')} > 0)"
                ),
                f"mean {SCORER_NAME}",
            ),
            (
                (
                    f"histogram_quantile(0.1, {summed(f'le, {SCORER}', 'otel_eval_score_bucket')})"
                    " >= 0"
                ),
                f"p10 {SCORER_NAME}",
            ),
        ],
    ),
    (
        "Results by label",
        "short",
        "pass, fail, and not_evaluated: skipped or failed.",
        [
            (
                summed("gen_ai_evaluation_score_label", "otel_eval_results_total"),
                "{{gen_ai_evaluation_score_label}}",
            )
        ],
    ),
    (
        "Evaluated runs",
        "short",
        "Scores by evaluation. 0: nothing was evaluated.",
        [(results("otel_eval_evaluation", SCORED), "{{otel_eval_evaluation}}")],
    ),
    (
        "Tool errors by tool",
        "percentunit",
        "The share of calls that failed.",
        [
            (
                f"({summed(TOOL, 'otel_eval_tool_errors_total')} or 0 * {CALLS}) / ({CALLS} > 0)",
                TOOL_NAME,
            )
        ],
    ),
    (
        "Tool latency by tool: 95th percentile",
        "s",
        "Of the calls whose times are recorded.",
        [
            (
                (
                    "histogram_quantile(0.95,"
                    f" {summed(f'le, {TOOL}', 'otel_eval_tool_call_duration_seconds_bucket')}) >= 0"
                ),
                TOOL_NAME,
            )
        ],
    ),
    (
        "Scorer failures",
        "short",
        "Results without a score because the scorer raised, or its judge did not answer.",
        [
            (
                results(
                    "otel_eval_evaluation, gen_ai_evaluation_name", 'otel_eval_outcome="failed"'
                ),
                "{{gen_ai_evaluation_name}}",
            )
        ],
    ),
    (
        "Completeness",
        "percentunit",
        (
            "The share of results that were not skipped because the trace was incomplete or its"
            " calls are unknown; of all agents."
        ),
        [
            (
                (
                    f"1 - (sum({INCOMPLETE}) or vector(0)) /"
                    f" (sum({counted('otel_eval_results_total', '')}) > 0)"
                ),
                "complete",
            )
        ],
    ),
]


def panel(
    number: int, title: str, unit: str, description: str, targets: list[tuple[str, str]]
) -> dict[str, Any]:
    """A time series at its place in the grid of two columns."""
    scale = {"min": 0, "max": 1} if unit == "percentunit" else {"min": 0}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": number % 2 * WIDTH, "y": number // 2 * HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": {"spanNulls": True}} | scale,
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(targets)
        ],
    }


def chosen(name: str, label: str, title: str) -> dict[str, Any]:
    """A variable with the values of a label; none chosen is all of them, and series without the
    label.
    """
    query = f"label_values(otel_eval_results_total, {label})"
    shown = {"name": name, "label": title, "type": "query", "datasource": DATASOURCE}
    return shown | {
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    windows = [
        {"text": each, "value": each, "selected": each == "5m"}
        for each in ("5m", "30m", "1h", "1d")
    ]
    window = {
        "name": "window",
        "label": "Window",
        "type": "custom",
        "query": "5m,30m,1h,1d",
        "options": windows,
    }
    return {
        "uid": "otel-eval-scores",
        "title": "Agent scores (otel-eval)",
        "tags": ["otel-eval"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                },
                chosen("service", "otel_eval_service", "Service"),
                chosen("agent", "gen_ai_agent_name", "Agent"),
                window | {"current": windows[0]},
            ]
        },
        "panels": [panel(number, *each) for number, each in enumerate(PANELS)],
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
