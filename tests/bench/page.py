"""CPU of the receiver for each trace with the page on and no viewer, against the page off.

    python tests/bench/page.py [--rounds 8] [--spans 20000]

Both servers run at the same time and get the same recorded traces in turn, the order changing with
each round. CPU is user and system of the server's process, from the first request to the last
result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from receiver import OURS, config_of, requests_of, send, started, when_idle

WAIT_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--spans", type=int, default=20_000)
    options = parser.parse_args()
    used: dict[str, list[float]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers: dict[str, tuple[str, int]] = {}
        for name in used:
            path = Path(folder) / f"{name}.json"
            config = config_of("recorded", str(Path(folder) / f"{name}.jsonl"))
            page = {"ui": {"endpoint": "127.0.0.1:0"}} if name == "on" else {}
            path.write_text(json.dumps(config | page), encoding="utf-8")
            command = [sys.executable, "-c", OURS, str(path)]
            servers[name] = stack.enter_context(started(command))
        for number in range(options.rounds + 1):
            requests, _ = requests_of("recorded", options.spans, seed=number)
            for name in sorted(used, reverse=bool(number % 2)):
                address, pid = servers[name]
                before = when_idle(pid, WAIT_S)
                send(address, requests)
                if number:  # the first round warms up
                    used[name].append(when_idle(pid, WAIT_S) - before)
    shares = [on / off - 1 for on, off in zip(used["on"], used["off"], strict=True)]
    total = sum(used["on"]) / sum(used["off"]) - 1
    print(
        f"{options.rounds} rounds of {options.spans} spans: off {sum(used['off']):.2f} s, on"
        f" {sum(used['on']):.2f} s of CPU: {total:+.1%} in all, median of rounds"
        f" {statistics.median(shares):+.1%}"
    )


if __name__ == "__main__":
    main()
