"""One table of what a run costs: in a process, in the receiver, and beside others.

    python tests/bench/table.py [--rounds 5] [--spans 60000] [parts]

Parts: `start`, `held`, `run`, `lateness`, `receiver`, `ratios`, `peers`; all if none is given. Each
measurement is a process of its own; what is compared takes turns, and the figure is the median of
the rounds. CPU is user and system. The load of the machine in the last minute is printed with each
line, since wall times (`lateness`) and, less, CPU depend on it. Traces are recorded or synthetic,
and every one has ids of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "in_process_costs.py"
PEERS = FOLDER.parents[1] / ".venv-peers"


def figure(*arguments: str, python: Path | str = sys.executable) -> float:
    """The number that a measurement prints as its last line."""
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles the package
    done = subprocess.run(
        [str(python), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.split()[-1])


def medians(names: list[str], measure: Callable[[str], float], rounds: int) -> dict[str, float]:
    """Each in turn, in another order every round."""
    figures: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in random.sample(names, len(names)):
            figures[name].append(measure(name))
    return {name: statistics.median(values) for name, values in figures.items()}


def start(options: argparse.Namespace) -> Iterator[str]:
    cost = medians(["start"], lambda name: figure(str(PROGRAM), name), options.rounds)["start"]
    yield f"start of EvalSpanProcessor, beyond the SDK's and pydantic's imports: {cost:.0f} ms"


def held(options: argparse.Namespace) -> Iterator[str]:
    bytes_held = medians(
        ["attributes", "ours"], lambda name: figure(str(PROGRAM), "held", name), options.rounds
    )
    ours, attributes = bytes_held["ours"], bytes_held["attributes"]
    yield (
        f"held for an ended span: {ours:.0f} B, of which its mapping of attributes"
        f" {attributes:.0f} B: {ours - attributes:.0f} B beyond"
    )


def run(options: argparse.Namespace) -> Iterator[str]:
    costs = medians(
        ["worker ours", "caller ours", "caller batch"],
        lambda name: figure(str(PROGRAM), *name.split()),
        options.rounds,
    )
    yield (
        f"a run of 20 spans, four scorers, JSON Lines: {costs['worker ours']:.0f} us on our thread;"
        f" on the caller's {costs['caller ours']:.0f} us beyond no processor"
        f" (BatchSpanProcessor: {costs['caller batch']:.0f} us)"
    )


def lateness(options: argparse.Namespace) -> Iterator[str]:
    for rate in ("10", "100"):
        late = medians(
            ["nothing", "batch", "ours"],
            lambda name, rate=rate: figure(str(PROGRAM), "lateness", name, rate),
            options.rounds,
        )
        yield (
            f"p99 lateness of a 1 ms timer at {rate} runs/s: {late['ours']:.2f} ms, Batch with the"
            f" OTLP exporter {late['batch']:.2f} ms, without {late['nothing']:.2f} ms:"
            f" {late['ours'] / late['batch']:.2f} of Batch"
        )


def receiver(options: argparse.Namespace) -> Iterator[str]:
    """Framed, assembled, read, scored by four scorers and written as lines, in one thread."""
    sys.path.insert(0, str(FOLDER))
    from shapes import SCORERS, cpu, evaluate, requests_and_size, shapes

    synthetic = ["lean", "fat", "failed calls", "several agents", "different calls"]
    sizes: dict[str, int] = {}
    works: dict[str, tuple[Callable[[], int], int]] = {}
    config: dict[str, object] = {"evaluations": [{"name": "bench", "scorers": SCORERS}]}
    for name, copy in shapes().items():
        requests, sizes[name], traces = requests_and_size(copy, 4000 if name in synthetic else 400)
        works[name] = evaluate(requests, config), traces
    costs = medians(
        list(works), lambda name: cpu(works[name][0], 1) / works[name][1] * 1e6, options.rounds
    )
    for name in synthetic:
        yield f"a trace, {name} ({sizes[name]} spans): {costs[name]:.0f} us"
    small = [name for name in works if name not in synthetic and 4 <= sizes[name] <= 6]
    yield (
        f"a recorded trace of 4 to 6 spans ({len(small)} recordings):"
        f" {statistics.mean(costs[name] for name in small):.0f} us"
    )
    recorded = [name for name in works if name not in synthetic]
    yield (
        f"a recorded trace of any size ({len(recorded)} recordings,"
        f" {statistics.mean(sizes[name] for name in recorded):.1f} spans):"
        f" {statistics.mean(costs[name] for name in recorded):.0f} us"
    )


def ratios(options: argparse.Namespace) -> Iterator[str]:
    """Spans per CPU-second of server processes that take the same requests."""
    command = [sys.executable, str(FOLDER / "receiver.py"), "--rounds", str(options.rounds)]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parents[1])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles the package
    with subprocess.Popen(
        [*command, "--spans", str(options.spans)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as running:
        assert running.stdout
        yield from map(str.rstrip, running.stdout)
    if running.returncode:
        raise SystemExit(running.returncode)


def peers(options: argparse.Namespace) -> Iterator[str]:
    """Libraries that `make peers` installed, on the same runs."""
    python = PEERS / "pydantic_evals" / "bin" / "python"
    if python.exists():
        program = str(PROGRAM)
        costs = medians(
            ["ours", "evaluators", "dataset"],
            lambda name: figure(program, "peer", name, python=python),
            options.rounds,
        )
        ours, dataset = costs["ours"], costs["dataset"]
        yield (
            f"pydantic_evals in a process, a run of 20 spans and four evaluators: {dataset:.0f} us"
            f" by Dataset.evaluate ({costs['evaluators']:.0f} us the evaluators alone, results kept"
            f" in memory), ours {ours:.0f} us with the file of results: {dataset / ours:.1f}"
        )
    else:
        yield "pydantic_evals: not run; make peers PEERS=pydantic_evals installs it"
    python = PEERS / "agentevals_cli" / "bin" / "python"
    if python.exists():
        with tempfile.TemporaryDirectory() as folder:
            program = str(FOLDER / "agentevals_cost.py")
            costs = medians(
                ["ours", "agentevals"],
                lambda name: figure(program, name, folder, python=python),
                options.rounds,
            )
        ours, theirs = costs["ours"], costs["agentevals"]
        yield (
            f"agentevals-cli, decoding a trace and one metric: {theirs:.0f} us, ours with four"
            f" scorers {ours:.0f} us: {theirs / ours:.1f}"
        )
    else:
        yield "agentevals-cli: not run; make peers PEERS=agentevals_cli installs it"


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    part.__name__: part for part in (start, held, run, lateness, receiver, ratios, peers)
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spans", type=int, default=60_000, help="of a profile of `ratios`")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all if none is given")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        for line in PARTS[part](options):
            print(f"{part:9} {line}   (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    main()
