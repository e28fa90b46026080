"""Stored traces of the same cases from before and after a change of an agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

POLICY = """\
evaluations:
  - name: refunds
    match: {agent: shop}
    scorers:
      - {type: precedence, rules: ["refund only after check_refund"], name: checked}
      - {type: tool_errors}
results: {attributes: [test.case.id]}
"""
_FIRST_NS = 1_780_000_000_000_000_000
_CHECKED = ("find_order", "check_refund", "refund")
_UNCHECKED = ("find_order", "refund")


def write_both_sides(folder: Path) -> None:
    """Write `last-week/traces.jsonl` and `today/traces.jsonl`, 12 cases each, and `eval.yaml`.

    Today the agent refunds orders 3 and 7 without checking them first.
    """
    (folder / "eval.yaml").write_text(POLICY, encoding="utf-8")
    for name, first, unchecked in (("last-week", 0, ()), ("today", 100, (3, 7))):
        (folder / name).mkdir()
        lines = [
            json.dumps(
                _trace(first + number, number, _UNCHECKED if number in unchecked else _CHECKED)
            )
            for number in range(1, 13)
        ]
        (folder / name / "traces.jsonl").write_text("\n".join(lines), encoding="utf-8")


def _trace(trace: int, case: int, tools: Sequence[str]) -> dict[str, Any]:
    begin = _FIRST_NS + trace * 10**9
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "shop",
        "test.case.id": f"order-{case}",
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": f"refund order {case}"}]}]
        ),
    }
    spans = [_span(trace, 1, begin, 400, "invoke_agent shop", attributes)]
    spans += [
        _span(
            trace,
            number,
            begin + number * 50_000_000,
            40,
            f"execute_tool {tool}",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool},
        )
        for number, tool in enumerate(tools, 2)
    ]
    service = {"key": "service.name", "value": {"stringValue": "shop"}}
    scope = {"scope": {"name": "shop.tracing"}, "spans": spans}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [scope]}]}


def _span(
    trace: int, number: int, begin: int, duration_ms: int, name: str, attributes: dict[str, str]
) -> dict[str, Any]:
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": "" if number == 1 else f"{1:016x}",
        "flags": 0x100,
        "name": name,
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(begin + duration_ms * 1_000_000),
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in attributes.items()
        ],
    }
