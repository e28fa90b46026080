"""Exports results as records of a Kafka topic, with keys by which log compaction keeps the newest
result for the same spans.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_eval.counters import Warnings
from otel_eval.exporters import Exporter
from otel_eval.exporters.attributes import PLAIN, ResultFormat
from otel_eval.exporters.result_requests import logs_request
from otel_eval.exporters.result_rows import line_of, rows_of
from otel_eval.model import Report
from otel_eval.retry import ExportResult, Place

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

_KEY: Final = ("trace_id", "span_id", "evaluation", "scorer", "spans_digest")
_LAST_S: Final = 1.0  # beyond the timeout, for the callbacks of records whose delivery failed
# Errors of the record itself. All others are retryable, or an operator can repair them:
# credentials, topics, replicas.
_PERMANENT: Final = frozenset(
    {"msg size too large", "invalid msg size", "invalid record", "record list too large"}
)


def key_of_row(row: Mapping[str, Any]) -> bytes:
    """The key of a result's record: trace, run span, evaluation, scorer and digest of the spans, as
    a JSON list.

    Results from different spans have different keys, so that `merge_results` still finds traces
    that were split between evaluators after log compaction.

    >>> key_of_row(
    ...     {
    ...         "trace_id": "a1",
    ...         "span_id": "b2",
    ...         "evaluation": "e",
    ...         "scorer": "s",
    ...         "spans_digest": None,
    ...     }
    ... )
    b'["a1","b2","e","s",null]'
    """
    return json.dumps([row[name] for name in _KEY], separators=(",", ":")).encode()


def producer_settings(settings: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The settings of a producer whose records are acknowledged by all in-sync replicas, written
    once and in order.
    """
    # Java clients hash keys by murmur2: the same key reaches the same partition from every producer
    # of the topic.
    defaults = {"partitioner": "murmur2_random", "linger.ms": 5}
    return (
        defaults
        | dict(settings)
        | {"enable.idempotence": True, "acks": "all", "message.timeout.ms": int(timeout_s * 1000)}
    )


class KafkaTopicExporter(Exporter):
    """Writes one record for each result and waits until the cluster has acknowledged the batch.

    If a record of a batch was not acknowledged in time, the whole batch is written again, so that
    the topic may have a record twice, with the same key and content.

    Args:
        settings: settings of librdkafka for the cluster.
        topic: the topic.
        encoding: `json`: the fields of a line of JSON Lines; `otlp_proto`: an OTLP logs request
            with one event.
        timeout_s: the timeout for one batch, in seconds.
        form: what events carry besides their attributes.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        encoding: str = "json",
        timeout_s: float = 10.0,
        form: ResultFormat = PLAIN,
    ) -> None:
        self.name = "kafka"
        self._settings: Final = producer_settings(settings, timeout_s)
        self._topic, self._timeout_s = topic, timeout_s
        self.exports_no_run = encoding == "json"  # type: ignore[misc]  # an event belongs to a run
        self._records: Final = (
            _json_records if self.exports_no_run else partial(_otlp_records, form)
        )
        self._producers: dict[int, Producer] = {}  # by process

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Write the records of the batch, and wait until they are acknowledged."""
        producer, failures = self._open_producer(), list[tuple[Place, Any]]()
        for report_index, report in enumerate(batch):
            for result_index, (key, value) in enumerate(self._records(report)):
                position = (report_index, result_index) if report.results else report_index
                self._produce(producer, key, value, partial(_add_failure, failures, position))
        if producer.flush(self._timeout_s + _LAST_S):
            producer.purge()
            producer.flush(_LAST_S)
        return self._result(failures)

    def _open_producer(self) -> Producer:
        """Return the producer; a forked child creates its own, because threads of librdkafka do not
        survive a fork.
        """
        if os.getpid() not in self._producers:
            from confluent_kafka import Producer  # deferred: the package is an extra

            # That of the parent is kept: a child that frees it would wait forever for its threads.
            self._producers[os.getpid()] = Producer(self._settings, logger=ClientLog())
        return self._producers[os.getpid()]

    def _produce(
        self, producer: Producer, key: bytes, value: bytes, done: Callable[..., None]
    ) -> None:
        """Pass a record to librdkafka, waiting once if its queue is full; `done` is called with the
        error, or None.
        """
        from confluent_kafka import KafkaException

        produce = partial(producer.produce, self._topic, value, key, on_delivery=done)
        try:
            produce()
        except BufferError:
            producer.flush(self._timeout_s)
            produce()
        except KafkaException as error:
            done(error.args[0], None)

    def _result(self, failures: Sequence[tuple[Place, KafkaError]]) -> ExportResult:
        if any(error.fatal() for _, error in failures):
            self._producers.pop(os.getpid(), None)  # after a fatal error it accepts no more records
        retryable = next(
            (error for _, error in failures if error_name(error) not in _PERMANENT), None
        )
        if retryable is not None:
            return ExportResult.retryable(error_name(retryable))
        if failures:
            return ExportResult(
                "ok",
                error_name(failures[0][1]),
                failed=tuple([position for position, _ in failures]),
            )
        return ExportResult.ok()

    def close(self, timeout_s: float) -> None:
        """Close the connections; records that are not acknowledged yet are dropped."""
        if (producer := self._producers.pop(os.getpid(), None)) is not None:
            producer.purge()
            producer.flush(timeout_s)


class ClientLog:
    """Logs librdkafka's messages, at most one of each kind a minute: it has many while a broker
    cannot be reached.
    """

    def __init__(self) -> None:
        self._warnings: Final = Warnings()

    def log(self, _: int, message: str, *args: Any) -> None:
        """Log a message; its first argument is its kind."""
        self._warnings.say(str(args[:1]), "librdkafka: " + message, *args)


def _json_records(report: Report) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the JSON record of each result, and of a trace without results."""
    for row in rows_of(report):
        yield key_of_row(row), line_of(row).encode("utf-8", "backslashreplace")


def _otlp_records(form: ResultFormat, report: Report) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the OTLP record of each result: a logs request with one event."""
    for row, result in zip(rows_of(replace(report, no_run=None)), report.results, strict=True):
        yield key_of_row(row), logs_request([replace(report, results=(result,))], form)


def _add_failure(failures: list[tuple[Place, Any]], place: Place, error: Any, _: Any) -> None:
    if error is not None:
        failures.append((place, error))


def error_name(error: KafkaError) -> str:
    """Librdkafka's name of an error in words. Its message is not used: it may quote addresses."""
    name: str = error.name()
    return name.lstrip("_").lower().replace("_", " ")
