"""The dashboard has the form that Grafana publishes as types: the package @grafana/schema, which
the compiler of TypeScript holds against the JSON.

Keys that are not in the types are errors, too, in panels' options as well.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[2] / "collector_config/grafana/dashboard.json"
PANELS = {"timeseries": "TimeSeries", "stat": "Stat", "table": "Table", "heatmap": "Heatmap"}
# the members of an enumeration are written as their texts in JSON
PLAIN = """\
type Plain<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""
OPTIONS = ["--noEmit", "--skipLibCheck", "--strict", "--target", "es2022", "--module", "esnext"]


def program(schema: Path, dashboard: dict[str, Any]) -> str:
    """A program that is free of errors of type if the dashboard has the form."""
    types = schema / "dist/types/raw/dashboard/x/types.gen"
    lines = [PLAIN, f"import type {{ Dashboard }} from {json.dumps(str(types))};"]
    for kind, name in PANELS.items():
        module = schema / f"dist/esm/raw/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen"
        lines.append(f"import type * as {kind} from {json.dumps(str(module))};")
    lines.append(f"export const dashboard: Plain<Dashboard> = {json.dumps(dashboard)};")
    for number, panel in enumerate(dashboard["panels"]):
        parts = {"Options": panel.get("options")}
        parts["FieldConfig"] = panel["fieldConfig"]["defaults"].get("custom")
        for part, value in parts.items():
            if value is not None:
                form = f"Plain<Partial<{panel['type']}.{part}>>"
                lines.append(f"export const {part}{number}: {form} = {json.dumps(value)};")
    return "\n".join(lines)


def problems(schema: Path, dashboard: dict[str, Any], folder: Path) -> str:
    """What the compiler says."""
    source = folder / "dashboard.ts"
    source.write_text(program(schema, dashboard), encoding="utf-8")
    compiler = schema.parents[1] / ".bin" / "tsc"
    done = subprocess.run(
        [compiler, *OPTIONS, "--moduleResolution", "bundler", source],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert bool(done.stdout) == bool(done.returncode), done.stderr
    return done.stdout


def test_the_dashboard_has_the_published_form(grafana_schema_path: Path, tmp_path: Path) -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert problems(grafana_schema_path, dashboard, tmp_path) == ""
    dashboard["panels"][0]["options"]["colorMode"] = "no such mode"
    assert "no such mode" in problems(grafana_schema_path, dashboard, tmp_path)
