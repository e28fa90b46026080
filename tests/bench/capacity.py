"""How much a load needs: cores, memory, disk, and what is full first. Arithmetic over measured
figures, which are its inputs.

    python tests/bench/capacity.py [--runs-per-second 10] [--spans-per-run 20] [--run-seconds 30]
    [--profile lean] [--scorers 4]

Prints one row for 1, 10, 100 and 1,000 times the load. Its inputs were measured with
`tests/bench/workers.py` (CPU of a span, one process and the front) and `tests/bench/memory.py`
(bytes that are held).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class Profile:
    """What a span costs: one process with gRPC, four scorers and JSON Lines.

    Attributes:
        cpu_us: of the whole process, in requests of 512 spans.
        front_us: of the receiving process with `workers`.
        payload: bytes as sent.
        held: bytes that `traces.max_bytes` counts while its trace is kept.
    """

    cpu_us: float
    front_us: float
    payload: int
    held: int


PROFILES = {"lean": Profile(14.5, 1.1, 485, 765), "recorded": Profile(28.5, 2.0, 1404, 1684)}
RESULT_BYTES = 880  # of a line of JSON Lines
PROCESS_BYTES = 60 * MIB  # without traces
BUSY = 0.7  # the share of a core to plan for: arrivals are not even
DECISION_WAIT_S, GRACE_PERIOD_S = 1.0, 30.0  # defaults
MAX_BYTES, MAX_SIZE = 512 * MIB, 10 * GIB  # defaults of `traces` and `storage`
KAFKA_MARGIN_S = 60.0
# a call to a model, assumed; the default of `async_scoring.concurrency`
JUDGE_S, JUDGE_CONCURRENCY = 2.0, 8


@dataclass(frozen=True)
class Load:
    """Agents' runs."""

    runs_per_s: float
    spans_per_run: int
    run_s: float
    scorers: int

    @property
    def spans_per_s(self) -> float:
        """Spans a second."""
        return self.runs_per_s * self.spans_per_run


@dataclass(frozen=True)
class Need:
    """What a load takes."""

    spans_per_s: float
    cores: float
    workers: int
    front_cores: float
    open_bytes: float
    kept_bytes: float
    network_bytes_per_s: float
    disk_bytes: float
    result_bytes_per_s: float
    reread_spans: float
    judged_share: float


def need_of(load: Load, profile: Profile) -> Need:
    """The arithmetic."""
    spans = load.spans_per_s
    cores = spans * profile.cpu_us / 1e6
    held_per_s = spans * profile.held
    return Need(
        spans_per_s=spans,
        cores=cores,
        workers=max(1, -int(-cores / BUSY // 1)),
        front_cores=spans * profile.front_us / 1e6,
        # On average half of an open run's spans have come.
        open_bytes=held_per_s * (load.run_s / 2 + DECISION_WAIT_S),
        kept_bytes=held_per_s * GRACE_PERIOD_S,
        network_bytes_per_s=spans * profile.payload,
        disk_bytes=spans * profile.payload * (load.run_s / 2 + DECISION_WAIT_S + GRACE_PERIOD_S),
        result_bytes_per_s=load.runs_per_s * load.scorers * RESULT_BYTES,
        reread_spans=spans * (KAFKA_MARGIN_S + load.run_s + DECISION_WAIT_S),
        judged_share=min(1.0, JUDGE_CONCURRENCY / JUDGE_S / load.runs_per_s),
    )


def limits_of(need: Need) -> list[str]:
    """What is full, and the setting for it."""
    memory = need.open_bytes + need.kept_bytes
    found = [
        (
            need.judged_share < 1,
            (
                f"judges: {need.judged_share * 100:.2g} % of runs: `sample`,"
                " `async_scoring.concurrency`"
            ),
        ),
        (need.workers > 1, f"CPU: `workers: {need.workers}`"),
        (need.front_cores > BUSY, "the front: several receivers behind `load_balancing`"),
        (need.open_bytes > MAX_BYTES, "open traces: `traces.max_bytes`, or clients are refused"),
        (
            need.open_bytes <= MAX_BYTES < memory,
            "traces kept for late spans: `traces.max_bytes`, or they are given up early",
        ),
        (need.disk_bytes > MAX_SIZE, "disk: `storage.max_size`, or `grace_period`"),
    ]
    return [text for is_full, text in found if is_full]


def row(times: int, load: Load, profile: Profile) -> str:
    """One line of the table."""
    need = need_of(replace(load, runs_per_s=load.runs_per_s * times), profile)
    processes = need.workers + (need.workers > 1)
    memory = processes * PROCESS_BYTES + need.open_bytes + need.kept_bytes
    cells = [
        f"{times:,} ×",
        f"{need.spans_per_s:,.0f}",
        f"{need.cores:.2g}",
        f"{memory / MIB:,.0f} MiB",
        f"{need.network_bytes_per_s / 1e6:.3g} MB/s",
        f"{need.result_bytes_per_s / 1e6:.2g} MB/s",
        f"{need.reread_spans * profile.cpu_us / 1e6 / need.workers:.2g} s",
        "; ".join(limits_of(need)) or "nothing",
    ]
    return f"| {' | '.join(cells)} |"


def table(load: Load, profile: Profile) -> str:
    """The table in Markdown."""
    head = [
        "load",
        "spans/s",
        "cores",
        "memory",
        "spans arrive",
        "results",
        "read again",
        "full first, and its setting",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(row(times, load, profile) for times in (1, 10, 100, 1000))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs-per-second", type=float, default=10)
    parser.add_argument("--spans-per-run", type=int, default=20)
    parser.add_argument("--run-seconds", type=float, default=30)
    parser.add_argument("--scorers", type=int, default=4)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="lean")
    given = parser.parse_args()
    load = Load(given.runs_per_second, given.spans_per_run, given.run_seconds, given.scorers)
    print(table(load, PROFILES[given.profile]))


if __name__ == "__main__":
    main()
