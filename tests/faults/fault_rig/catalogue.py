"""Every fault of the rig, in the order of the table."""

from __future__ import annotations

from typing import Final

from fault_rig.outcome import Scenario
from fault_rig.scenarios import attackers, ending, order, pressure, scorers

__all__ = ["SCENARIOS"]

SCENARIOS: Final = (
    Scenario("SIGTERM under load", ending.sigterm, {"times": 2, "runs": 3000}, {"times": 20, "runs": 5000}),
    Scenario("memory limit reached", pressure.memory_limit, {"runs": 600}, {"runs": 10_000}),
    Scenario("too many traces", pressure.too_many_traces, {"runs": 100}, {"runs": 5000}),
    Scenario("giant trace", pressure.giant_trace, {"spans": 2000, "runs": 12}, {"spans": 100_000, "runs": 500}),
    Scenario("endless trace", pressure.endless_trace, {"seconds": 4, "runs": 20}, {"seconds": 30, "runs": 500}),
    Scenario("duplicate and reordered spans", order.mixed_spans, {"runs": 100}, {"runs": 5000}),
    Scenario("late spans", order.late_spans, {"runs": 20}, {"runs": 2000}),
    Scenario("senders' clocks", order.senders_clocks, {"runs": 50}, {"runs": 2000}),
    Scenario("clock jumps of the host", order.clock_jumps, {"runs": 100, "jumps": 10}, {"runs": 3000, "jumps": 100}),
    Scenario("malformed payloads", attackers.malformed, {"bodies": 40, "runs": 50}, {"bodies": 3000, "runs": 2000}),
    Scenario("bombs", attackers.bombs, {"mib": 70, "runs": 20}, {"mib": 1000, "runs": 500}),
    Scenario(
        "slow loris",
        attackers.slow_loris,
        {"connections": 60, "seconds": 2, "runs": 50},
        {"connections": 240, "seconds": 30, "runs": 2000},
    ),
    Scenario("connection flood", attackers.flood, {"connections": 150, "runs": 50}, {"connections": 5000, "runs": 2000}),
    Scenario("scorers that raise", scorers.raising, {"runs": 30}, {"runs": 2000}),
    Scenario("scorer that hangs", scorers.hanging, {"runs": 60}, {"runs": 2000}),
    Scenario("scorer that allocates", scorers.allocating, {"runs": 6}, {"runs": 50}),
)
