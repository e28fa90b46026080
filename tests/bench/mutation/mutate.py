"""Break the scorers in small ways and see whether a test notices.

Knows how tests are run on a broken copy of the package; knows no scorer. Each mutant meets the
tests of the scorers until one
fails: those that run its line, the quickest first, then those of its module; a line that runs at
import meets all. Each trial is a fork of a process in which everything but the package itself is
loaded. Prints the mutants that no test noticed.

    python tests/bench/mutation/mutate.py [--sample 200] [--seconds 900] [--outcomes FILE]
    [--native] [module[:line] ...]

Modules are named from `otel_eval/scorers`: `times`, `dag/walk`. Without any, all. With a file of
outcomes, each trial is noted there, and what stands there is not tried again: a run that was ended
goes on, and after a change only what changed is tried. Trials do without the extensions in C, which
do what is broken here. With `--native` they have them, and meet the tests of the extensions too:
for the lines that only lead there. What was not noticed without them is then tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import pytest
from covering import Chosen, Covering
from hypothesis import HealthCheck, Phase
from mutants import Mutant, mutants

ROOT = Path(__file__).parents[3]
ROOM = Path("otel_eval/scorers")
TESTS = ("tests/unit/scorers", "tests/conformance", "tests/docs/test_docstrings.py")
NATIVE = "tests/unit/native"
LIMIT_S = 30  # for one test; the longest take two seconds
OPTIONS = (
    "-q",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:anyio",
    "--hypothesis-profile",
    "mutants",
    "--timeout",
)
WARNINGS = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # hypothesis is loaded before


class Tests:
    """The tests of the scorers, run on a copy of the package."""

    def __init__(self, copy: Path, found: list[str]) -> None:
        for part in ("otel_eval", "tests", "docs", "pyproject.toml"):
            whole = ROOT / part
            (shutil.copytree if whole.is_dir() else shutil.copy)(whole, copy / part)
        self._copy = copy
        self._sound: set[tuple[str, ...]] = set()  # files that can be run together
        # The same examples each time, so what is noticed once is noticed always; and no search for
        # the smallest one.
        hypothesis.settings.register_profile(
            "mutants",
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        failed = self._run(found, 0, Covering(copy / "covering.json"))
        seen = json.loads((copy / "covering.json").read_text(encoding="utf-8"))
        self._lines: dict[str, list[str]] = seen["lines"]
        self._seconds: dict[str, float] = seen["seconds"]
        # Once more as the mutants will meet them: what fails without any would be noticed whatever
        # it is.
        if failed or self._run(found, LIMIT_S, Chosen(list(self._seconds))):
            raise SystemExit("the tests of the scorers fail as they are; mend them first")

    def notice(self, mutant: Mutant) -> bool:
        """Whether a test fails with the mutant in place of the module."""
        file = self._copy / ROOM / f"{mutant.module}.py"
        whole = file.read_text(encoding="utf-8")
        chosen = self._meant(mutant)
        files = sorted({test.partition("::")[0] for test in chosen})
        if tuple(files) not in self._sound and self._run(files, LIMIT_S, Chosen(chosen[:1])):
            raise SystemExit(
                f"the tests of {mutant.module} cannot be run by themselves; mend that first"
            )
        self._sound.add(tuple(files))
        try:
            file.write_text(mutant.source, encoding="utf-8")
            return self._run(files, LIMIT_S, Chosen(chosen)) != 0
        finally:
            file.write_text(whole, encoding="utf-8")

    def _meant(self, mutant: Mutant) -> list[str]:
        """The tests that run a line of the mutant, then those of its module; of a line that runs at
        import all.
        """
        name = f"{mutant.module}.py:"
        found = {test for line in mutant.lines for test in self._lines.get(f"{name}{line}", ())}
        # Not only those: what a line makes may be kept, and then the others meet it without running
        # the line.
        near = {
            test for place, tests in self._lines.items() if place.startswith(name) for test in tests
        }
        return sorted(
            near if found else self._seconds,
            key=lambda each: (each not in (found or near), self._seconds[each], each),
        )

    def _run(self, files: list[str], limit: int, plugin: Covering | Chosen) -> int:
        """The state in which a fork ends that runs these tests: 0 if all pass."""
        if child := os.fork():
            state = ended(child, limit * 10 if limit else 3600)
            if state == pytest.ExitCode.NO_TESTS_COLLECTED << 8:
                raise SystemExit(f"no test was found in {files}")
            return state
        code = 1
        try:
            os.chdir(self._copy)
            sys.path.insert(0, str(self._copy))
            # what is written within a second of another is not told apart
            sys.dont_write_bytecode = limit > 0
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            if limit:  # what never ends is noticed, and so is what eats all memory
                resource.setrlimit(resource.RLIMIT_CPU, (limit * 2, limit * 2))
                resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
            code = int(pytest.main([*OPTIONS, str(limit), *WARNINGS, *files], [plugin]))
        finally:
            os._exit(code)


def ended(child: int, seconds: float) -> int:
    """The state in which a child ends, or is ended when the time is over: some wait for ever
    without a limit of tests to help.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, state = os.waitpid(child, os.WNOHANG)
        if done:
            return state
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


class Outcomes:
    """What became of mutants in this run and in those before, one a line: `noticed` or `alive`, and
    the name.
    """

    def __init__(self, file: Path | None, *, again: bool) -> None:
        self._file = file
        written = file.read_text(encoding="utf-8").splitlines() if file and file.exists() else []
        self._known = {
            line.partition(" ")[2] for line in written if not (again and line.startswith("alive "))
        }

    def missing(self, found: list[Mutant]) -> list[Mutant]:
        """Those that were not tried."""
        return [each for each in found if each.name not in self._known]

    def note(self, mutant: Mutant, noticed: bool) -> None:
        """Write it down at once: the run may be ended."""
        if self._file:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{'noticed' if noticed else 'alive'} {mutant.name}\n")


def drawn(given: argparse.Namespace, outcomes: Outcomes) -> list[Mutant]:
    """The mutants asked for: module by module if some are named, else by chance, so as to see
    something of everything early.
    """
    found: list[Mutant] = []
    for name in given.modules or sorted(
        str(each.relative_to(ROOT / ROOM).with_suffix("")) for each in (ROOT / ROOM).rglob("*.py")
    ):
        module, _, line = name.partition(":")
        source = (ROOT / ROOM / f"{module}.py").read_text(encoding="utf-8")
        found += [each for each in mutants(module, source) if not line or int(line) in each.lines]
    found = outcomes.missing(found)
    if given.modules and not given.sample:
        return found
    return random.Random(given.seed).sample(found, min(given.sample or len(found), len(found)))


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--sample", type=int, default=None, help="how many; all if left out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument(
        "--outcomes",
        type=Path,
        default=None,
        help="a file: note trials there, and leave out those that stand there",
    )
    parser.add_argument(
        "--native",
        action="store_true",
        help="with the extensions in C; what was not noticed is tried again",
    )
    return parser.parse_args()


def main() -> int:
    """Draw mutants, try them, print the survivors; 0 if there is none."""
    given = options()
    os.environ |= {"CI": "true", "OTEL_EVAL_PURE": "0" if given.native else "1"}
    outcomes = Outcomes(given.outcomes, again=given.native)
    chosen, tried, alive = drawn(given, outcomes), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(Path(folder), [*TESTS, NATIVE] if given.native else [*TESTS])
        until = time.monotonic() + given.seconds
        while tried < len(chosen) and time.monotonic() < until:
            mutant = chosen[tried]
            tried += 1
            noticed = tests.notice(mutant)
            outcomes.note(mutant, noticed)
            if not noticed:
                alive += 1
                print(f"{mutant.module}.py:{mutant.lines.start}: {mutant.change}", flush=True)
    print(f"{tried} of {len(chosen)} mutants tried, {alive} not noticed")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
