"""Every fault of the rig, in the order of the table."""

from __future__ import annotations

from typing import Final

from tests.faults.fault_rig.outcome import Scenario
from tests.faults.fault_rig.scenarios import (
    attackers,
    collectors,
    crashing,
    credentials,
    descriptors,
    disk,
    ending,
    exporting,
    files,
    lethal,
    order,
    pressure,
    scorers,
    stuck,
)
from tests.support.failing_endpoint import PAGE

__all__ = ["SCENARIOS"]

OUTAGE: Final = {"times": 1, "seconds": 1, "runs": 40}
OUTAGES: Final = {"times": 2, "seconds": 10, "runs": 6000}
BEHIND: Final = {"runs": 600, "seconds": 8}

SCENARIOS: Final = (
    Scenario(
        "SIGKILL at random instants",
        crashing.sigkill,
        {"times": 2, "runs": 3000},
        {"times": 60, "runs": 100_000},
    ),
    Scenario(
        "SIGKILL between spans of a run",
        crashing.sigkill,
        {"times": 2, "runs": 100, "mixed": True},
        {"times": 20, "runs": 2000, "mixed": True},
    ),
    Scenario(
        "SIGKILL between score and delivery",
        crashing.killed_at,
        {"steps": 2, "runs": 10_000},
        {"rounds": 4, "runs": 100_000},
    ),
    Scenario(
        "SIGKILL of a worker",
        crashing.worker_killed,
        {"times": 2, "runs": 200, "workers": 2},
        {"times": 20, "runs": 5000, "workers": 3},
    ),
    Scenario(
        "SIGKILL while passing on",
        crashing.passing_on,
        {"times": 3, "runs": 3000},
        {"times": 60, "runs": 50_000},
    ),
    Scenario(
        "scorer that ends the process",
        lethal.lethal,
        {"traces": 2, "runs": 60},
        {"traces": 12, "runs": 5000},
    ),
    Scenario("torn segment", disk.torn, {"times": 1, "runs": 30}, {"times": 10, "runs": 200}),
    Scenario("corrupt segment", disk.corrupt, {"times": 1, "runs": 30}, {"times": 10, "runs": 200}),
    Scenario(
        "endpoint down", exporting.trouble, {"kind": "down", **OUTAGE}, {"kind": "down", **OUTAGES}
    ),
    Scenario(
        "endpoint slow", exporting.trouble, {"kind": "slow", **OUTAGE}, {"kind": "slow", **OUTAGES}
    ),
    Scenario(
        "endpoint refusing",
        exporting.trouble,
        {"kind": "UNAVAILABLE", **OUTAGE},
        {"kind": "UNAVAILABLE", **OUTAGES},
    ),
    Scenario(
        "endpoint down, and SIGKILL",
        exporting.trouble,
        {"kind": "down", "kills": 1, **OUTAGE},
        {"kind": "down", "kills": 3, **OUTAGES},
    ),
    Scenario("endpoint refusing permanently", exporting.refusal, {"runs": 40}, {"runs": 2000}),
    Scenario(
        "endpoint without the signal for a while",
        exporting.absent,
        {"runs": 40, "kills": 1},
        {"runs": 4000, "kills": 3},
    ),
    Scenario(
        "login page instead of the endpoint",
        exporting.misdirected,
        {"response": PAGE, "runs": 40},
        {"response": PAGE, "runs": 2000},
    ),
    Scenario(
        "redirect instead of the endpoint",
        exporting.misdirected,
        {"response": "302", "runs": 40},
        {"response": "302", "runs": 2000},
    ),
    Scenario("endpoint without the signal", exporting.unsupported, {"runs": 40}, {"runs": 2000}),
    Scenario(
        "file of results renamed",
        files.replaced,
        {"how": "renamed", "times": 2, "runs": 1000},
        {"how": "renamed", "times": 30, "runs": 30_000},
    ),
    Scenario(
        "file of results renamed, and SIGKILL",
        files.replaced,
        {"how": "renamed", "times": 2, "runs": 1000, "kills": True},
        {"how": "renamed", "times": 20, "runs": 20_000, "kills": True},
    ),
    Scenario(
        "file of results deleted",
        files.replaced,
        {"how": "deleted", "times": 2, "runs": 1000},
        {"how": "deleted", "times": 30, "runs": 30_000},
    ),
    Scenario(
        "file of results truncated",
        files.truncated,
        {"times": 2, "runs": 100},
        {"times": 20, "runs": 1000},
    ),
    Scenario("disk full", disk.full, {"times": 1, "runs": 500}, {"times": 10, "runs": 5000}),
    Scenario(
        "storage directory removed",
        disk.removed,
        {"times": 1, "runs": 400},
        {"times": 10, "runs": 1000},
    ),
    Scenario("storage limit reached", disk.storage_limit, {"runs": 300}, {"runs": 2000}),
    Scenario("restart with spans on disk", disk.restart, {"runs": 300}, {"runs": 10_000}),
    Scenario(
        "SIGTERM under load",
        ending.sigterm,
        {"times": 2, "runs": 3000},
        {"times": 10, "runs": 5000},
    ),
    Scenario(
        "stuck writer",
        stuck.locked_file,
        {"times": 1, "seconds": 1, "runs": 400},
        {"times": 10, "seconds": 2, "runs": 10_000},
    ),
    Scenario(
        "stopped worker",
        stuck.stopped_worker,
        {"times": 1, "seconds": 1, "runs": 400},
        {"times": 10, "seconds": 4, "runs": 10_000},
    ),
    Scenario(
        "SIGHUP storm",
        stuck.reload_storm,
        {"times": 1, "signals": 100, "runs": 400},
        {"times": 10, "signals": 100, "runs": 5000},
    ),
    Scenario("memory limit reached", pressure.memory_limit, {"runs": 600}, {"runs": 4000}),
    Scenario("too many traces", pressure.too_many_traces, {"runs": 100}, {"runs": 5000}),
    Scenario(
        "giant trace",
        pressure.giant_trace,
        {"spans": 2000, "runs": 12},
        {"spans": 100_000, "runs": 500},
    ),
    Scenario(
        "endless trace",
        pressure.endless_trace,
        {"seconds": 4, "runs": 20},
        {"seconds": 30, "runs": 500},
    ),
    Scenario("duplicate and reordered spans", order.mixed_spans, {"runs": 100}, {"runs": 5000}),
    Scenario("late spans", order.late_spans, {"runs": 20}, {"runs": 2000}),
    Scenario("senders' clocks", order.senders_clocks, {"runs": 50}, {"runs": 2000}),
    Scenario(
        "clock jumps of the host",
        order.clock_jumps,
        {"runs": 100, "jumps": 10},
        {"runs": 3000, "jumps": 100},
    ),
    Scenario(
        "malformed payloads",
        attackers.malformed,
        {"bodies": 40, "runs": 50},
        {"bodies": 2000, "runs": 1000},
    ),
    Scenario("bombs", attackers.bombs, {"mib": 70, "runs": 20}, {"mib": 400, "runs": 500}),
    Scenario(
        "requests of nothing",
        attackers.hollow,
        {"sizes": (200, 2000), "threads": 2, "runs": 20},
        {"sizes": (200, 900, 4000, 16_000), "threads": 4, "runs": 500},
    ),
    Scenario(
        "slow loris",
        attackers.slow_loris,
        {"connections": 60, "seconds": 2, "runs": 50},
        {"connections": 400, "seconds": 20, "runs": 2000},
    ),
    Scenario(
        "connection flood",
        attackers.flood,
        {"connections": 150, "runs": 50},
        {"connections": 5000, "runs": 2000},
    ),
    Scenario(
        "idle connections",
        descriptors.idle,
        {"limit": 1024, "connections": 1100, "runs": 20},
        {"limit": 1024, "connections": 1100, "runs": 2000},
    ),
    Scenario("bad TLS", credentials.bad_tls, {"times": 1, "runs": 20}, {"times": 50, "runs": 1000}),
    Scenario(
        "wrong token",
        credentials.wrong_token,
        {"times": 1, "runs": 20},
        {"times": 100, "runs": 1000},
    ),
    Scenario("scorers that raise", scorers.raising, {"runs": 30}, {"runs": 2000}),
    Scenario("scorer that hangs", scorers.hanging, {"runs": 60}, {"runs": 2000}),
    Scenario(
        "scorer that leaks files",
        descriptors.leaking,
        {"limit": 256, "runs": 20},
        {"limit": 1024, "runs": 500},
    ),
    Scenario("scorer that allocates", scorers.allocating, {"runs": 6}, {"runs": 50}),
    Scenario(
        "behind the Collector: SIGTERM of the evaluator",
        collectors.restarted,
        {"victim": "the evaluator", "end": "SIGTERM", "times": 2, **BEHIND},
        {"victim": "the evaluator", "end": "SIGTERM", "times": 5, "runs": 3000, "seconds": 60},
    ),
    Scenario(
        "behind the Collector: SIGKILL of the evaluator",
        collectors.restarted,
        {"victim": "the evaluator", "end": "SIGKILL", "times": 2, **BEHIND},
        {"victim": "the evaluator", "end": "SIGKILL", "times": 10, "runs": 6000, "seconds": 100},
    ),
    Scenario(
        "behind the Collector: SIGKILL of the Collector",
        collectors.restarted,
        {"victim": "Collector", "end": "SIGKILL", "times": 2, **BEHIND},
        {"victim": "Collector", "end": "SIGKILL", "times": 10, "runs": 6000, "seconds": 100},
    ),
    Scenario(
        "ring of three: SIGKILL of a member",
        collectors.restarted,
        {"victim": "one of three", "end": "SIGKILL", "times": 1, "members": 3, **BEHIND},
        {
            "victim": "one of three",
            "end": "SIGKILL",
            "times": 10,
            "members": 3,
            "runs": 4000,
            "seconds": 100,
        },
    ),
    Scenario(
        "ring of three: a member never back",
        collectors.gone,
        {"runs": 200, "seconds": 3},
        {"runs": 2000, "seconds": 30},
    ),
    Scenario(
        "ring: one member more",
        collectors.changed,
        {"members": 2, "to": 3, **BEHIND},
        {"members": 2, "to": 3, "runs": 4000, "seconds": 60},
    ),
    Scenario(
        "ring: one member less",
        collectors.changed,
        {"members": 3, "to": 2, **BEHIND},
        {"members": 3, "to": 2, "runs": 4000, "seconds": 60},
    ),
)
