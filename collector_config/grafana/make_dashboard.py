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
AGENT = 'otel_eval_service=~"$service",gen_ai_agent_name=~"$agent"'
RUN = f'{AGENT},otel_eval_service_version=~"$version"'
SCORE = f'{RUN},gen_ai_evaluation_name=~"$scorer"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
PASS, FAIL, UNKNOWN = "green", "red", "orange"
START = "otel_eval_start_time_seconds"
# targets that Prometheus saw before the window, or that are younger than it
WATCHED = f"({START} offset ${{window}}s or {START} > time() - ${{window}})"
WINDOWS = {"5m": 300, "30m": 1800, "1h": 3600, "1d": 86400}


def counted(metric: str, labels: str) -> str:
    """What was counted in the window. The first value of a series counts too, which `increase`
    ignores, if the series is new and not only seen for the first time.
    """
    series = f"{metric}{{{labels}}}"
    new = f"(({series} unless {series} offset ${{window}}s) and on (job, instance) {WATCHED})"
    return f"({new} or increase({series}[${{window}}s]))"


def summed(by: str, metric: str, labels: str) -> str:
    """The same by labels; without labels the sum of all."""
    return f"sum by ({by}) ({counted(metric, labels)})" if by else f"sum({counted(metric, labels)})"


def runs(by: str, verdict: str = "") -> str:
    """Evaluated runs, all or those with a verdict."""
    condition = f',otel_eval_verdict=~"{verdict}"' if verdict else ""
    return summed(by, "otel_eval_runs_total", RUN + condition)


def results(by: str, condition: str) -> str:
    """Results that meet a condition."""
    return summed(by, "otel_eval_results_total", f"{SCORE},{condition}")


PASSED, FAILED = (f'gen_ai_evaluation_score_label="{label}"' for label in ("pass", "fail"))
SCORED = 'otel_eval_outcome="scored"'


def share(part: str, whole: str) -> str:
    """A share; there is none of nothing."""
    return f"{part} / ({whole} > 0)"


def pass_rate(by: str) -> str:
    """The share of the decided runs that pass; unknown is neither."""
    return share(runs(by, "pass"), runs(by, "pass|not_passed"))


CALLS = summed(TOOL, "otel_eval_tool_calls_total", AGENT)
ERRORS = summed(TOOL, "otel_eval_tool_errors_total", AGENT)
INCOMPLETE = counted("otel_eval_results_skipped_total", 'reason=~"incomplete|calls_unknown"')
ALL_RESULTS = counted("otel_eval_results_total", "")
NOT_PASSING = (
    f"count({results('otel_eval_evaluation, gen_ai_evaluation_name', FAILED)} > 0) or vector(0)"
)
Target = tuple[str, str]
"""An expression and its legend."""


class Grid:
    """Panels from left to right and from top to bottom, in a grid of 24 columns."""

    def __init__(self) -> None:
        self.panels: list[dict[str, Any]] = []
        self._x = self._y = self._height = 0

    def add(self, width: int, height: int, panel: dict[str, Any]) -> None:
        """Add a panel where the last one ends, or below."""
        if self._x + width > 24:
            self._x, self._y = 0, self._y + self._height
        place = {"x": self._x, "y": self._y, "w": width, "h": height}
        self.panels.append({"id": len(self.panels) + 1, "gridPos": place} | panel)
        self._x, self._height = self._x + width, height


def panel(
    kind: str, title: str, description: str, targets: list[Target], **more: Any
) -> dict[str, Any]:
    """A panel with its queries; those of figures and tables ask for the present only."""
    is_now = kind in ("stat", "table")
    queries = [
        {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": expression,
            "legendFormat": legend,
            "exemplar": not is_now,
            "instant": is_now,
            "range": not is_now,
            "format": {"table": "table", "heatmap": "heatmap"}.get(kind, "time_series"),
        }
        for index, (expression, legend) in enumerate(targets)
    ]
    shared = {"type": kind, "title": title, "description": description, "datasource": DATASOURCE}
    return shared | {"targets": queries} | more


def thresholds(*steps: tuple[str, float | None]) -> dict[str, Any]:
    """Colours from a value on."""
    return {
        "mode": "absolute",
        "steps": [{"color": color, "value": value} for color, value in steps],
    }


RATE = {"unit": "percentunit", "min": 0, "max": 1, "decimals": 1} | {
    "thresholds": thresholds((FAIL, None), (UNKNOWN, 0.8), (PASS, 0.95))
}
ALARM = {"unit": "short", "decimals": 0, "thresholds": thresholds((PASS, None), (FAIL, 1))}


def figure(
    title: str, description: str, expression: str, defaults: dict[str, Any]
) -> dict[str, Any]:
    """One figure with its colour."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background",
        "graphMode": "none",
    }
    config = {"defaults": defaults, "overrides": []}
    return panel(
        "stat", title, description, [(expression, "")], fieldConfig=config, options=options
    )


def colored(name: str, color: str) -> dict[str, Any]:
    """The colour of a series."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
    }


VERDICTS = [colored("pass", PASS), colored("not_passed", FAIL), colored("not_evaluated", UNKNOWN)]


def series(
    title: str,
    unit: str,
    description: str,
    targets: list[Target],
    *,
    stacked: bool = False,
    overrides: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Values over time; where there is none, the line has a gap."""
    custom: dict[str, Any] = {"spanNulls": False, "showPoints": "auto"}
    if stacked:
        custom |= {"drawStyle": "bars", "fillOpacity": 80, "stacking": {"mode": "normal"}}
    scale = {"min": 0, "max": 1} if unit == "percentunit" else {"min": 0}
    return panel(
        "timeseries",
        title,
        description,
        targets,
        fieldConfig={
            "defaults": {"unit": unit, "custom": custom} | scale,
            "overrides": overrides or [],
        },
        options={
            "legend": {
                "showLegend": True,
                "displayMode": "list",
                "placement": "bottom",
                "calcs": [],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def table(title: str, description: str, rate: str, count: str, hidden: list[str]) -> dict[str, Any]:
    """The lowest pass rates, each with the number of runs or scores behind it."""
    worst = f"bottomk(10, {rate})"
    names = {
        "Value #A": "Pass rate",
        "Value #B": "Count",
        "gen_ai_agent_name": "Agent",
        "otel_eval_service": "Service",
        "otel_eval_service_version": "Version",
        "gen_ai_evaluation_name": "Scorer",
        "otel_eval_evaluation": "Evaluation",
    }
    rates = [{"id": key, "value": value} for key, value in RATE.items()]
    rates.append({"id": "custom.cellOptions", "value": {"type": "color-background"}})
    override = {"matcher": {"id": "byName", "options": "Pass rate"}, "properties": rates}
    counts = {"matcher": {"id": "byName", "options": "Count"}} | {
        "properties": [{"id": "decimals", "value": 0}]
    }
    columns = {"excludeByName": dict.fromkeys(["Time", *hidden], True), "renameByName": names}
    return panel(
        "table",
        title,
        description,
        [(worst, ""), (f"{count} and {worst}", "")],
        fieldConfig={"defaults": {}, "overrides": [override, counts]},
        options={"sortBy": [{"displayName": "Pass rate", "desc": False}]},
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": columns}],
    )


def panels() -> list[dict[str, Any]]:
    """All panels with their places."""
    grid = Grid()
    grid.add(6, 4, figure("Pass rate", "Of the decided runs.", pass_rate(""), RATE))
    plain = {"unit": "short", "decimals": 0, "thresholds": thresholds(("blue", None))}
    grid.add(6, 4, figure("Runs", "Evaluated runs in the window.", runs(""), plain))
    grid.add(
        6, 4, figure("Scorers that do not pass", "With a score that failed.", NOT_PASSING, ALARM)
    )
    unknown = f"{runs('', 'not_evaluated')} or vector(0)"
    grid.add(
        6, 4, figure("Runs not evaluated", "Skipped or failed: nothing is known.", unknown, ALARM)
    )
    grid.add(
        12,
        8,
        series(
            "Evaluated runs by verdict",
            "short",
            "In the window before each point. 0: nothing was evaluated.",
            [(runs("otel_eval_verdict"), "{{otel_eval_verdict}}")],
            stacked=True,
            overrides=VERDICTS,
        ),
    )
    grid.add(
        12,
        8,
        series(
            "Pass rate by scorer",
            "percentunit",
            "Of the results that are scores: what was skipped or failed is unknown.",
            [(share(results(SCORER, PASSED), results(SCORER, SCORED)), SCORER_NAME)],
        ),
    )
    by_agent = "gen_ai_agent_name, otel_eval_service"
    decided = runs(by_agent, "pass|not_passed")
    grid.add(12, 8, table("Worst agents", "By runs that pass.", pass_rate(by_agent), decided, []))
    scored = results(SCORER, SCORED)
    rate = share(results(SCORER, PASSED), scored)
    grid.add(12, 8, table("Worst scorers", "By scores that pass.", rate, scored, []))
    grid.add(
        12,
        8,
        panel(
            "heatmap",
            "Distribution of scores",
            "How many scores of the chosen scorers fall into each range.",
            [(summed("le", "otel_eval_score_bucket", SCORE), "{{le}}")],
            fieldConfig={"defaults": {}, "overrides": []},
            options={"calculate": False, "cellGap": 1, "yAxis": {"unit": "none", "decimals": 1}},
        ),
    )
    p10 = summed(f"le, {SCORER}", "otel_eval_score_bucket", SCORE)
    mean = share(
        summed(SCORER, "otel_eval_score_sum", SCORE), summed(SCORER, "otel_eval_score_count", SCORE)
    )
    grid.add(
        12,
        8,
        series(
            "Score: mean and 10th percentile",
            "none",
            "Nine of ten scores are above the 10th percentile.",
            [
                (mean, f"mean {SCORER_NAME}"),
                (f"histogram_quantile(0.1, {p10}) >= 0", f"p10 {SCORER_NAME}"),
            ],
        ),
    )
    by_version = "otel_eval_service_version, otel_eval_service, gen_ai_agent_name"
    grid.add(
        24,
        8,
        series(
            "Versions compared: pass rate of runs",
            "percentunit",
            "One line for all versions unless results.metrics_by_version is set.",
            [
                (
                    pass_rate(by_version),
                    "{{gen_ai_agent_name}} {{otel_eval_service}} {{otel_eval_service_version}}",
                )
            ],
        ),
    )
    grid.add(
        12,
        8,
        series(
            "Tool errors by tool",
            "percentunit",
            "The share of calls that failed.",
            [(share(f"({ERRORS} or 0 * {CALLS})", CALLS), TOOL_NAME)],
        ),
    )
    durations = summed(f"le, {TOOL}", "otel_eval_tool_call_duration_seconds_bucket", AGENT)
    grid.add(
        12,
        8,
        series(
            "Tool latency by tool: 95th percentile",
            "s",
            "Of the calls whose times are recorded.",
            [(f"histogram_quantile(0.95, {durations}) >= 0", TOOL_NAME)],
        ),
    )
    health(grid)
    return grid.panels


def health(grid: Grid) -> None:
    """Whether otel-eval itself is well."""
    failed = results("otel_eval_evaluation, gen_ai_evaluation_name", 'otel_eval_outcome="failed"')
    grid.add(
        12,
        8,
        series(
            "Scorer failures",
            "short",
            "Results without a score because the scorer raised, or its judge did not answer.",
            [(failed, "{{gen_ai_evaluation_name}}")],
        ),
    )
    grid.add(
        12,
        8,
        series(
            "Completeness",
            "percentunit",
            (
                "The share of results that were not skipped because the trace was incomplete or its"
                " calls are unknown; of all agents."
            ),
            [
                (
                    f"1 - (sum({INCOMPLETE}) or vector(0)) / (sum({ALL_RESULTS}) > 0)",
                    "complete",
                )
            ],
        ),
    )
    grid.add(
        12,
        8,
        series(
            "Queues and dead letters",
            "short",
            "Results that wait for an exporter, and those in the window that it refused for good.",
            [
                (
                    "sum by (exporter) (otel_eval_exporter_queued_results)",
                    "queued for {{exporter}}",
                ),
                (
                    "sum(increase(otel_eval_results_dead_letters_total[${window}s])) or vector(0)",
                    "dead letters",
                ),
            ],
        ),
    )
    grid.add(
        12,
        8,
        series(
            "Judge calls",
            "short",
            "Attempts in the window; 0 without judges.",
            [
                (
                    "sum by (judge) (increase(otel_eval_judges_attempts_total[${window}s]))"
                    " or vector(0)",
                    "attempts {{judge}}",
                ),
            ],
        ),
    )


def chosen(name: str, label: str, title: str, metric: str) -> dict[str, Any]:
    """A variable with the values of a label; none chosen is all of them, and series without the
    label.
    """
    query = f"label_values({metric}, {label})"
    shown = {"name": name, "label": title, "type": "query", "datasource": DATASOURCE}
    return shown | {
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    windows = [
        {"text": name, "value": str(seconds), "selected": name == "30m"}
        for name, seconds in WINDOWS.items()
    ]
    window = {
        "name": "window",
        "label": "Window",
        "type": "custom",
        "query": ",".join(f"{name} : {seconds}" for name, seconds in WINDOWS.items()),
        "options": windows,
        "current": windows[1],
    }
    variables = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
        },
        chosen("service", "otel_eval_service", "Service", "otel_eval_runs_total"),
        chosen("agent", "gen_ai_agent_name", "Agent", "otel_eval_runs_total"),
        chosen("scorer", "gen_ai_evaluation_name", "Scorer", "otel_eval_results_total"),
        chosen("version", "otel_eval_service_version", "Version", "otel_eval_runs_total"),
        window,
    ]
    return {
        "uid": "otel-eval-scores",
        "title": "Agent scores (otel-eval)",
        "tags": ["otel-eval"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels(),
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
