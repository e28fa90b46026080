"""The example with Quix Streams on a real broker: a member is killed, another joins, and nothing is
lost, wrong or repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.fault_rig.books import balance, until
from tests.faults.fault_rig.reference import CONVENTIONS, EVALUATION
from tests.faults.fault_rig.traffic import Run, body, run_of, trace_id
from tests.kafka.kafka_rig.broker import Broker, missing
from tests.kafka.kafka_rig.results import ResultsReader

PROGRAM = Path(__file__).parents[2] / "examples" / "quix" / "evaluate_topic.py"
RESULTS_OF_A_RUN = 4


@contextmanager
def member(config: Path, broker: Broker, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One process of the example."""
    command = [sys.executable, str(PROGRAM), str(config), broker.address, str(state)]
    with (
        state.with_suffix(".log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def produce(broker: Broker, runs: list[Run], seconds: float) -> None:
    """Each run in two records, spread over the time."""
    producer = broker.producer()
    for run in runs:
        spans, key = run.spans(), trace_id(run.number).hex()
        for part in (spans[:1], spans[1:]):
            producer.produce("otlp_spans", body(part), key)
        producer.poll(0)
        time.sleep(seconds / len(runs))
    assert producer.flush(30) == 0


@pytest.mark.timeout(240)
def test_quix_streams_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """After the last span no more come: only heartbeats make the last windows close."""
    if why := missing():  # Java, Maven or the jars
        pytest.skip(f"not run: {why}")
    config = tmp_path / "eval.json"
    waits = {"decision_wait_partial": "2s", "idle_timeout": "5s"}  # the session gap is the last
    config.write_text(
        json.dumps({"traces": waits, "evaluations": [EVALUATION], "conventions": CONVENTIONS})
    )
    runs = [run_of(number) for number in range(400)]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(tmp_path / "broker"))
        for topic in ("otlp_spans", "otel_eval_results"):
            broker.create(topic, 3)
        first = stack.enter_context(member(config, broker, tmp_path / "first"))
        produce(broker, runs[:200], 10)
        first.kill()
        stack.enter_context(member(config, broker, tmp_path / "second"))
        stack.enter_context(member(config, broker, tmp_path / "third"))
        produce(broker, runs[200:], 10)
        results = stack.enter_context(ResultsReader(broker.address, "otel_eval_results"))
        assert until(lambda: len(results.rows) >= RESULTS_OF_A_RUN * len(runs), 120, every_s=0.5), (
            len(results.rows)
        )
        books = balance(runs, {run.number for run in runs}, results.rows)
    assert books.balanced, books
    assert not books.repeated
    assert all(row["evaluator"] and row["evaluated_at"] for row in results.rows)
