"""What scoring one run costs by the matching scorers, against the score-only code of deepeval and
UiPath.

Run it by hand where one of them is installed (`make peers` makes such environments,
`.venv-peers/deepeval` and others): ``PYTHONPATH=. .venv-peers/deepeval/bin/python
tests/bench/scorers.py``. Without either it prints our own figures.

What is measured: one call `scorer(run)` with a scorer that was built once and a run that was built
before, up to the outcome, with its explanation and details, which deepeval's figure is without. Of
the others the function that computes the number, on objects of theirs that were built before: for
deepeval `_calculate_score`, for UiPath `tool_calls_order_score` and `tool_calls_args_score`, which
make a justification too. Each figure is the least of many rounds of a few milliseconds of CPU time;
between all of them a loop of plain Python is timed, so that a slower moment can be told.
"""

from __future__ import annotations

import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from otel_eval import create_scorer
from otel_eval.model import Trajectory
from otel_eval.scorers.alignment.ordered import common, prepare
from otel_eval.testing import call, trajectory

os.environ.update(
    DEEPEVAL_TELEMETRY_OPT_OUT="YES", ERROR_REPORTING="NO", UIPATH_TELEMETRY_ENABLED="false"
)
ROUND_S: Final = 0.003
BUDGET_S: Final = float(sys.argv[1]) if len(sys.argv) > 1 else 0.4  # of CPU time for each figure
TOOLS: Final = [f"tool_{letter}" for letter in "abcdefghij"]

Calls = list[tuple[str, dict[str, Any]]]


def expected_of(count: int, rng: random.Random) -> Calls:
    """So many calls of ten tools."""
    return [
        (rng.choice(TOOLS), {"q": rng.choice(TOOLS), "limit": rng.randrange(3)})
        for _ in range(count)
    ]


def nearly(calls: Calls, rng: random.Random) -> Calls:
    """One in ten another call, one in twenty swapped with the next."""
    made = [expected_of(1, rng)[0] if rng.random() < 0.1 else each for each in calls]
    for at in range(len(made) - 1):
        if rng.random() < 0.05:
            made[at], made[at + 1] = made[at + 1], made[at]
    return made


def with_extras(calls: Calls, rng: random.Random) -> Calls:
    """One unexpected call for each five; of 1,000 or more so many expected ones are left out."""
    made = list(calls[: len(calls) * 5 // 6] if len(calls) >= 1000 else calls)
    for _ in range(len(calls) // 5):
        made.insert(rng.randrange(len(made) + 1), ("other", {}))
    return made


def shuffled(calls: Calls, rng: random.Random) -> Calls:
    """All of them in another order."""
    return rng.sample(calls, len(calls))


SHAPES: Final[dict[str, Callable[[Calls, random.Random], Calls]]] = {
    "equal": lambda calls, _: list(calls),
    "nearly": nearly,
    "extras": with_extras,
    "shuffled": shuffled,
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "in_order": {"type": "tool_call_order"},
    "exact": {"type": "execution_order", "match": "exact"},
    "any_order": {"type": "execution_order"},
    "in_order, arguments": {
        "type": "tool_correctness",
        "match": "in_order",
        "compare": ["arguments"],
    },
    "exact, arguments": {
        "type": "tool_correctness",
        "match": "exact",
        "arguments": "exact",
        "compare": ["arguments"],
    },
    "any_order, arguments": {"type": "tool_correctness", "compare": ["arguments"]},
    "any_order, subset": {"type": "tool_call_args"},
}


def least_us(function: Callable[[], object]) -> float:
    """Microseconds of CPU time of one call: the least of the rounds that the budget has room
    for.
    """
    began = time.process_time()
    function()
    times = max(1, int(ROUND_S / max(time.process_time() - began, 1e-6)))
    best, spent = float("inf"), 0.0
    while spent < BUDGET_S or best == float("inf"):
        began = time.process_time()
        for _ in range(times):
            function()
        took = time.process_time() - began
        best, spent = min(best, took / times), spent + took
        if times == 1 and spent > BUDGET_S:
            break
    return best * 1e6


def calibration() -> None:
    """A thousand additions."""
    total = 0
    for each in range(1000):
        total += each


def ours(kind: str, wanted: Calls, made: Calls) -> Callable[[], object]:
    """Our scorer on a run."""
    by_names = KINDS[kind]["type"] in ("tool_call_order", "execution_order")
    expected = [
        name if by_names else {"name": name, "arguments": arguments} for name, arguments in wanted
    ]
    scorer = create_scorer({**KINDS[kind], "expected": expected})
    # One after the other, as recorded ones are; the ids are those of spans.
    timed = [
        call(
            name,
            arguments=arguments,
            start_ns=10**18 + at * 10,
            end_ns=10**18 + at * 10 + 5,
            span_id=f"{at:016x}",
        )
        for at, (name, arguments) in enumerate(made)
    ]
    run: Trajectory = trajectory(*timed)
    return partial(scorer, run)


def deepeval(kind: str, wanted: Calls, made: Calls) -> Callable[[], object] | None:
    """The score of deepeval's tool correctness, without reasons."""
    from deepeval.metrics import ToolCorrectnessMetric
    from deepeval.test_case import ToolCall, ToolCallParams

    if kind == "any_order, subset":
        return None
    # its constructor wants a model, which the score does not ask
    metric = object.__new__(ToolCorrectnessMetric)
    metric.tools_called, metric.expected_tools = (
        [ToolCall(name=name, input_parameters=own) for name, own in calls]
        for calls in (made, wanted)
    )
    metric.evaluation_params = [ToolCallParams.INPUT_PARAMETERS] if "arguments" in kind else []
    metric.should_exact_match, metric.should_consider_ordering = (
        kind.startswith("exact"),
        kind.startswith("in_order"),
    )
    metric.strict_mode, metric.threshold = False, 0.5
    score: Callable[[], object] = metric._calculate_score
    return score


def uipath(kind: str, wanted: Calls, made: Calls) -> Callable[[], object] | None:
    """The score of UiPath's evaluators."""
    from uipath.eval._helpers.evaluators_helpers import (
        tool_calls_args_score,
        tool_calls_order_score,
    )
    from uipath.eval.models.models import ToolCall

    names = [[name for name, _ in calls] for calls in (made, wanted)]
    if kind in ("in_order", "exact"):
        return partial(tool_calls_order_score, *names, kind == "exact")
    if kind != "any_order, subset":
        return None
    theirs = [[ToolCall(name=name, args=own) for name, own in calls] for calls in (made, wanted)]
    return partial(tool_calls_args_score, *theirs, subset=True)


def peers() -> list[Any]:
    """Those that are installed."""
    found = []
    for peer in (deepeval, uipath):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peer("in_order", [], [])
        except ImportError:
            continue
        found.append(SimpleNamespace(name=peer.__name__, of=peer))
    return found


def main() -> None:
    """Print a line for each kind of matching and shape of run."""
    against = peers()
    print(
        f"python {sys.version.split()[0]}; {', '.join(peer.name for peer in against) or 'no peer'}"
        " installed"
    )
    loops = []
    for count in (20, 1000):
        for kind in KINDS:
            for shape, changed in SHAPES.items():
                wanted = expected_of(count, random.Random(7))
                made = changed(wanted, random.Random(8))
                took = least_us(ours(kind, wanted, made))
                loops.append(least_us(calibration))
                line = f"{count:5} {kind:22} {shape:9} {took:9.2f} us"
                for peer in against:
                    theirs = peer.of(kind, wanted, made)
                    if theirs is not None:
                        other = least_us(theirs)
                        line += f"   {peer.name} {other:10.1f} us, {other / took:8.1f} times"
                print(line, flush=True)
    for count in (20, 1000):
        names = [name for name, _ in expected_of(count, random.Random(7))]
        made = [name for name, _ in nearly(expected_of(count, random.Random(7)), random.Random(8))]
        alone = least_us(partial(common, prepare(names), made))
        print(f"{count:5} floor: the common subsequence alone, names at hand: {alone:.2f} us")
    print(f"calibration: {min(loops):.1f} to {max(loops):.1f} us")


if __name__ == "__main__":
    main()
