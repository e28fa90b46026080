"""Decode records as spans, and write records that cannot be used to a dead-letter file or a
dead-letter topic.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka import KafkaException, Producer

from otel_eval.errors import InputError
from otel_eval.exporters.jsonl import JsonLinesFile
from otel_eval.exporters.kafka import producer_settings
from otel_eval.otlp import Encoding, Signal
from otel_eval.otlp.decoded_size import json_decoded_size, protobuf_decoded_size
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import SpanBatch, read_traces
from otel_eval.wire import fields

_KEY: Final = re.compile(rb"[0-9a-fA-F]{32}")
_TIMEOUT_S: Final = 5.0  # of writing a dead letter
# the most memory that a decoded record may take, as a multiple of the size limit
_MAX_EXPANSION: Final = 4

Refusal = Literal["unkeyed", "malformed", "oversized"]
"""Why a record cannot be used: its key is not the trace id of all its spans, it cannot be read, or
it is too large.
"""


class TopicRecord(NamedTuple):
    """A record as the topic has it; its time is in Unix seconds."""

    offset: int
    time_s: float
    key: bytes | None
    value: bytes | None


def trace_id_of(key: bytes | None) -> bytes | None:
    """Decode the key of a record as a trace id; None if it is not one.

    >>> (
    ...     trace_id_of(b"4bf92f3577b34da6a3ce929d0e0e4736").hex(),
    ...     trace_id_of(b"4bf9"),
    ...     trace_id_of(None),
    ... )
    ('4bf92f3577b34da6a3ce929d0e0e4736', None, None)
    """
    return bytes.fromhex(key.decode("ascii")) if key is not None and _KEY.fullmatch(key) else None


_RESOURCE_SPANS: Final = 0x0A  # tag of field 1 with a length


def _is_complete(value: bytes) -> bool:
    """Whether a message is complete: the message after a truncated one would be decoded as the rest
    of it.
    """
    try:
        return bool(value) and all(
            value[field.start] == _RESOURCE_SPANS for field in fields(value, 0, len(value))
        )
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """The content of records that were read together.

    Attributes:
        batch: their spans.
        trace_ids: the trace ids of each record, in order; empty for a record that cannot be used.
        refused: why records cannot be used, by their position.
    """

    batch: SpanBatch
    trace_ids: Sequence[Collection[bytes]]
    refused: dict[int, Refusal]


class RecordReader:
    """Reads the records of a topic.

    Args:
        encoding: protobuf or JSON.
        max_bytes: the size limit of one record.
        max_attributes: the limit of attributes of a span, an event, a link, a resource or a scope.
        needs_key: whether a record whose key is not the trace id of all its spans is refused.
    """

    def __init__(
        self, encoding: Encoding, max_bytes: int, max_attributes: int, *, needs_key: bool
    ) -> None:
        self._encoding, self._max_bytes, self._max_attributes = encoding, max_bytes, max_attributes
        self._needs_key: Final = needs_key

    def read(self, records: Sequence[TopicRecord]) -> ReadRecords:
        """Decode records: together if all can be used, which takes a third of the time, else one
        after the other.
        """
        return self._read_joined(records) or self._read_singly(records)

    def _read_joined(self, records: Sequence[TopicRecord]) -> ReadRecords | None:
        """Decode records in protobuf as one message, which joined messages are; None if any record
        is unusual.
        """
        if self._encoding is not Encoding.PROTOBUF or not self._needs_key:
            return None
        keys = [trace_id_of(record.key) for record in records]
        body = b"".join([record.value or b"" for record in records])
        if (
            None in keys
            or len(body) > self._max_bytes
            or not all(_is_complete(record.value or b"") for record in records)
        ):
            return None
        try:
            batch = self._decoded(body)
        except (InputError, MemoryError):
            return None
        # A span whose key is that of another of these records is not noticed: checking each record
        # separately takes the time.
        if not {span[0] for span in batch.spans} <= set(keys):
            return None
        return ReadRecords(batch, [(key,) for key in keys if key is not None], {})

    def _decoded(self, body: bytes) -> SpanBatch:
        """Decode the spans of a message.

        Raises:
            InputError: the message is not valid.
            MemoryError: decoding it would take too much memory.
        """
        limit = _MAX_EXPANSION * self._max_bytes
        if self._encoding is Encoding.JSON:
            if json_decoded_size(body) > limit:
                raise MemoryError
            return read_json(Signal.TRACES, body, self._max_attributes)
        if protobuf_decoded_size(Signal.TRACES, body, limit) > limit:
            raise MemoryError
        return read_traces(body, self._max_attributes)

    def _read_singly(self, records: Sequence[TopicRecord]) -> ReadRecords:
        """Decode records one after the other."""
        all_spans, ids, refused = SpanBatch(), list[Collection[bytes]](), dict[int, Refusal]()
        for position, record in enumerate(records):
            batch = self._read_record(record)
            if isinstance(batch, str):
                refused[position], batch = batch, SpanBatch()
            ids.append({span[0] for span in batch.spans})
            all_spans.spans += batch.spans
            all_spans.own += batch.own
            all_spans.reject(batch.reason, batch.rejected)
        return ReadRecords(all_spans, ids, refused)

    def _read_record(self, record: TopicRecord) -> SpanBatch | Refusal:
        """Decode a record, or return why it cannot be used."""
        if record.value is None or len(record.value) > self._max_bytes:
            return "malformed" if record.value is None else "oversized"
        try:
            batch = self._decoded(record.value)
        except InputError:
            return "malformed"
        except MemoryError:
            return "oversized"
        is_keyed = {span[0] for span in batch.spans} <= {trace_id_of(record.key)}
        return batch if is_keyed or not self._needs_key else "unkeyed"

    def trace_ids(self, record: TopicRecord) -> Collection[bytes]:
        """Return the trace ids of a record: its key if keys are required and it is valid, else
        those of its spans.
        """
        key = trace_id_of(record.key)
        if key is not None and self._needs_key:
            return (key,)
        batch = self._read_record(record)
        return () if isinstance(batch, str) else {span[0] for span in batch.spans}


class DeadRecordsFile(JsonLinesFile):
    """Appends a line for each record, with key and value in base64."""

    usual_key = "receivers.kafka.dead_letter"

    def add(self, topic: str, partition: int, record: TopicRecord, refusal: Refusal) -> bool:
        """Append the record and sync the file; False if that failed."""
        row = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "why": refusal,
            "key": _encode_base64(record.key),
            "value": _encode_base64(record.value),
        }
        try:
            self.write(json.dumps(row).encode() + b"\n")
            self.sync()
        except OSError:
            return False
        return True


def _encode_base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode("ascii")


class DeadRecordsTopic:
    """Writes records to a topic as they are, with topic, partition, offset and the reason in
    headers.

    Args:
        settings: the settings of librdkafka for the cluster.
        topic: the dead-letter topic.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._topic: Final = topic
        self._producer: Final = Producer(producer_settings(settings, _TIMEOUT_S))

    def add(self, topic: str, partition: int, record: TopicRecord, refusal: Refusal) -> bool:
        """Write the record and wait for the acknowledgement; False if there is none."""
        described = {
            "topic": topic,
            "partition": str(partition),
            "offset": str(record.offset),
            "why": refusal,
        }
        headers = [(f"otel_eval.{name}", value.encode()) for name, value in described.items()]
        done: list[bool] = []
        try:
            self._producer.produce(
                self._topic,
                record.value,
                record.key,
                headers=headers,
                on_delivery=lambda error, _: done.append(error is None),
            )
            self._producer.flush(_TIMEOUT_S + 1.0)
        except (BufferError, KafkaException):
            return False
        return done == [True]

    def close(self) -> None:
        """Flush what was not sent yet."""
        self._producer.flush(_TIMEOUT_S)


DeadRecords = DeadRecordsFile | DeadRecordsTopic
"""Stores the records that cannot be used, in full."""
