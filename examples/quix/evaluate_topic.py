"""Score the agent runs in a Kafka topic with Quix Streams: open traces in RocksDB and a changelog
topic, results exactly once.

    python -m pip install '.[kafka]' 'quixstreams>=3.28,<4'
    python examples/quix/evaluate_topic.py eval.yaml 127.0.0.1:9092

Reads what the Collector writes with `partition_traces_by_id`: one trace in each record, its id as
the key. A trace is evaluated as a whole after `traces.idle_timeout` without a span (15 min): only
then no part of a run, such as a long tool call, is expected any more. Start as many processes as
the topic has partitions, or fewer.
"""

import base64
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from confluent_kafka import Producer
from quixstreams import Application

from otel_eval.app.wiring import engine_of, limits_of
from otel_eval.assembly import TraceBuffer
from otel_eval.config import load
from otel_eval.exporters.kafka import key_of_row
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Stamp
from otel_eval.otlp.protobuf import read_traces

SPANS, RESULTS, GROUP = "otlp_spans", "otel_eval_results", "otel-eval-quix"
HEARTBEAT_S = 1.0
# All members of the group are one evaluator: each trace has one owner at a time, and its session.
EVALUATOR = blake2b(f"{GROUP}\0{SPANS}".encode(), digest_size=16).hexdigest()


class Evaluator:
    """The engine of otel-eval for the records of one trace."""

    def __init__(self, path: str) -> None:
        config = load(path)
        self._engine, self._limits = engine_of(config, lines=True), limits_of(config)
        self.gap_ms = int(self._limits.idle_s * 1000)

    def rows(self, window: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The results of a trace whose session has ended; a heartbeat has none."""
        # OTLP requests one after another are one request
        body = b"".join(base64.b64decode(each) for each in window["value"])
        buffer = TraceBuffer(self._limits)
        buffer.push_many(read_traces(body).spans, 0.0)
        for trace in buffer.drain(0.0):
            for report in self._engine.evaluate(trace, Stamp(EVALUATOR, time.time_ns())):
                yield from rows_of(report)


def heartbeats(brokers: str, stopped: threading.Event) -> None:
    """Write an empty record to every partition again and again.

    Windows close by the time of records only: without heartbeats, a partition that gets no spans
    any more would never decide its last traces. Each has a key of its own, so that its session ends
    too and leaves no state.
    """
    producer = Producer({"bootstrap.servers": brokers})
    while not stopped.wait(HEARTBEAT_S):
        topic = producer.list_topics(SPANS, timeout=10).topics[SPANS]
        for partition in topic.partitions:
            producer.produce(SPANS, b"", f"heartbeat {partition} {time.time_ns()}", partition)
        producer.flush(10)


def main(path: str, brokers: str, state: str = "state") -> None:
    """Run until SIGTERM."""
    app = Application(
        brokers,
        consumer_group=GROUP,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state,
    )
    spans = app.topic(SPANS, key_deserializer="str", value_deserializer="bytes")
    results = app.topic(RESULTS, key_serializer="str", value_serializer="json")
    evaluator = Evaluator(path)
    frame = app.dataframe(spans)
    frame = frame.apply(lambda body: base64.b64encode(body or b"").decode())  # the state is JSON
    frame = frame.session_window(evaluator.gap_ms).collect().final(closing_strategy="partition")
    frame = frame.apply(evaluator.rows, expand=True)
    frame.to_topic(results, key=lambda row: key_of_row(row).decode())
    stopped = threading.Event()
    beating = threading.Thread(target=heartbeats, args=(brokers, stopped), daemon=True)
    beating.start()
    try:
        app.run()
    finally:
        stopped.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
