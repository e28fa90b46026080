"""Print what each shape of request costs, as a table in Markdown.

    python -m tests.cost [--scale 1] [--memory-scale 8] [--json] [NAME ...]

CPU milliseconds of `n` and of eight times as many, and by how much they grew; memory of
`--memory-scale` times as many as that divided by its estimate, of the form for which it is most.
`--json` prints the figures of memory alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tests.cost.costs.measuring import FREE, Cpu, cpu_of, engine, memory_of
from tests.cost.costs.shapes import SHAPES, Shape


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--memory-scale", type=float, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    made = engine()
    shapes = [
        each
        for each in SHAPES
        if not options.names or any(name in each.name for name in options.names)
    ]
    if options.json:
        print(
            json.dumps({each.name: memory_of(made, each, options.memory_scale) for each in shapes})
        )
        return 0
    print(
        "| elements | n | intake, ms | evaluation, ms | at 8 n | memory ÷ estimate"
        " |\n|---|---|---|---|---|---|"
    )
    for each in shapes:
        print(_row(made, each, options), flush=True)
    return 0


def _row(made: Any, shape: Shape, options: argparse.Namespace) -> str:
    measured = {form: cpu_of(made, shape, form, 10, options.scale) for form in ("protobuf", "json")}
    grew = max(great.grew(small) for small, great in measured.values())
    small, great = measured["protobuf"]
    memory = max(
        took / (estimated + FREE / 3)
        for estimated, took in memory_of(made, shape, options.memory_scale).values()
    )
    times = f"{_both(small, great, 'intake')} | {_both(small, great, 'evaluation')} | × {grew:.1f}"
    return f"| {shape.name} | {int(shape.small * options.scale)} | {times} | {memory:.1f} |"


def _both(small: Cpu, great: Cpu, name: str) -> str:
    return f"{getattr(small, name) * 1000:.1f}, {getattr(great, name) * 1000:.1f}"


if __name__ == "__main__":
    sys.exit(main())
