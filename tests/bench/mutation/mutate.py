"""Break the scorers in small ways and see whether a test notices.

Knows operators, comparisons and constants of Python; knows no scorer. Works on a copy of the package, one mutant at a
time, each with the tests of the scorers until the first that fails. Prints the mutants that no test noticed.

    python tests/bench/mutation/mutate.py --sample 200 --seed 1 --seconds 900 [module ...]
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
MODULES = (
    "alignment",
    "ordered",
    "staircase",
    "assignment",
    "subsequence",
    "batches",
    "agreement",
    "counts",
    "times",
    "structure",
    "matching",
    "repeats",
    "failures",
    "precedence",
)
TESTS = ("tests/unit/scorers", "tests/conformance", "otel_eval/scorers")
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


class Mutant(NamedTuple):
    """A module with one change."""

    module: str
    line: int
    change: str
    source: str


def places(module: str, source: str) -> list[tuple[str, int, int]]:
    """Where a module can be changed: (module, number of the node, way)."""
    nodes = list(ast.walk(ast.parse(source)))
    # Annotations are text that nobody evaluates.
    said = [getattr(node, key, None) for node in nodes for key in ("annotation", "returns")]
    idle = {id(below) for each in said if each is not None for below in ast.walk(each)}
    open_ = [(at, node) for at, node in enumerate(nodes) if id(node) not in idle]
    return [(module, at, way) for at, node in open_ for way in range(2) if changed(deepcopy(node), way)]


def mutant_at(module: str, source: str, at: int, way: int) -> Mutant:
    """The module with that one change."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[at]
    line = getattr(node, "lineno", 0)
    before = ast.unparse(node)
    changed(node, way)
    return Mutant(
        module, line, f"{before}  ->  {ast.unparse(node)}   in: {source.splitlines()[line - 1].strip()}", ast.unparse(tree)
    )


def changed(node: ast.AST, variant: int) -> bool:
    """Change the node in its n-th way; False if it has no such way."""
    match node:
        case ast.Compare() if variant == 0 and type(node.ops[0]) in COMPARED:
            node.ops[0] = COMPARED[type(node.ops[0])]()
        case ast.BinOp() | ast.AugAssign() if variant == 0 and type(node.op) in COMPUTED:
            node.op = COMPUTED[type(node.op)]()
        case ast.BoolOp() if variant == 0:
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.Constant(value=bool()) if variant == 0:
            node.value = not node.value
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            node.value += 1 - 2 * variant
        case ast.UnaryOp(op=ast.Not()) if variant == 0:
            node.op = ast.UAdd()  # true stays true as a number
        case _:
            return False
    return True


def noticed(copy: Path, seconds: float) -> bool:
    """Whether a test fails, or does not end in time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "-W", "ignore", *TESTS]
    try:
        return subprocess.run(command, cwd=copy, capture_output=True, timeout=seconds, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> int:
    """Draw mutants, try them, print the survivors; 0 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in ("otel_eval", "tests", "docs", "pyproject.toml"):
            whole = ROOT / part
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, copy / part)
        rooms = {name: copy / "otel_eval" / "scorers" / f"{name}.py" for name in given.modules}
        sources = {name: path.read_text(encoding="utf-8") for name, path in rooms.items()}
        pool = [place for name, source in sources.items() for place in places(name, source)]
        drawn = random.Random(given.seed).sample(pool, min(given.sample, len(pool)))
        tried, alive = 0, 0
        for module, at, way in drawn:
            if time.monotonic() > until:
                break
            mutant = mutant_at(module, sources[module], at, way)
            rooms[mutant.module].write_text(mutant.source, encoding="utf-8")
            killed = noticed(copy, 60)
            rooms[mutant.module].write_text(sources[mutant.module], encoding="utf-8")
            tried += 1
            if not killed:
                alive += 1
                print(f"{mutant.module}.py:{mutant.line}: {mutant.change}", flush=True)
    print(f"{tried} of {len(pool)} mutants tried, {alive} not noticed")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
