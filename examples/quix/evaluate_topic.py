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
import json
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Any

from confluent_kafka import Producer
from quixstreams import Application

from otel_eval import evaluate
from otel_eval.config import load

SPANS, RESULTS, GROUP = "otlp_spans", "otel_eval_results", "otel-eval-quix"
HEARTBEAT_S = 1.0
KEY = ("trace_id", "span_id", "evaluation", "scorer", "spans_digest")
# All members of the group are one evaluator: each trace has one owner at a time, and its session.
EVALUATOR = blake2b(f"{GROUP}\0{SPANS}".encode(), digest_size=16).hexdigest()


def rows(window: dict[str, Any], config: str) -> Iterator[dict[str, Any]]:
    """The results of a trace whose session has ended; a heartbeat has none."""
    for row in evaluate([base64.b64decode(body) for body in window["value"]], config):
        yield {**row, "evaluator": EVALUATOR}


def key(row: dict[str, Any]) -> str:
    """Of results for the same spans, log compaction keeps the newest."""
    return json.dumps([row[name] for name in KEY], separators=(",", ":"))


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
    gap_ms = int(load(path).traces.idle_timeout * 1000)
    frame = app.dataframe(spans)
    frame = frame.apply(lambda body: base64.b64encode(body or b"").decode())  # the state is JSON
    frame = frame.session_window(gap_ms).collect().final(closing_strategy="partition")
    frame = frame.apply(partial(rows, config=path), expand=True)
    frame.to_topic(results, key=key)
    stopped = threading.Event()
    beating = threading.Thread(target=heartbeats, args=(brokers, stopped), daemon=True)
    beating.start()
    try:
        app.run()
    finally:
        stopped.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
