"""Files of OTLP protobuf: one message, or messages that each follow their length.

Traces and logs nest alike on the wire; which of the two a message is shows only in whether its members are spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import BufferedIOBase, BytesIO
from itertools import islice
from typing import Final

from otel_eval.errors import InputError
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces
from otel_eval.wire import read_varint

MAX_DOCUMENT: Final = 512 * 1024 * 1024
"""Bytes, unpacked, of what has to be read as one piece."""


PIECE: Final = 1024 * 1024
"""Bytes that are read at one time."""
_LONGEST_VARINT: Final = 10  # bytes

Notify = Callable[[str], None]
"""Takes one line about something that was skipped."""


def placed(notify: Notify, place: str) -> Notify:
    """The same, for what is inside `place`."""
    return lambda problem: notify(f"{place}: {problem}")


class Gap(SpanBatch):
    """Stands where a part of the input could not be read although what came before it was used."""


def frame_binary(stream: BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """The messages of the file.

    Raises:
        InputError: it is neither one message nor a row of them.
    """
    # Piece by piece: a single `read` makes room for all that it may return, however short the file is.
    data = b"".join(islice(iter(partial(stream.read, PIECE), b""), MAX_DOCUMENT // PIECE + 1))
    if len(data) > MAX_DOCUMENT:
        raise InputError(f"is greater than {MAX_DOCUMENT} bytes; split it")
    with suppress(InputError):
        if _has_items(whole := _message(data)):
            return iter((whole,))
    batches = list(frame_row(BytesIO(data), on_problem))
    if not any(map(_has_items, batches)):
        raise InputError("no trace file of a known format, or one that was cut")
    return iter(batches)


def _message(data: bytes) -> SpanBatch:
    traces = read_traces(data)
    if traces.spans or traces.own or not traces.rejected:
        return traces
    logs = read_logs(data)
    return logs if logs.logs or logs.own else traces


def starts_with_row(head: bytes) -> bool:
    """Whether the first bytes are a whole message with spans or log records after its length.

    A single message starts with the tag 10, and as a length that leaves no room for the ids of a span.
    """
    size, part = next(_delimited(BytesIO(head)), (0, b""))
    try:
        return len(part) == size and _has_items(_message(part))
    except InputError:
        return False


def starts_with_message(head: bytes) -> bool:
    """Whether a message stands behind the first tag and its length, which is one byte: so a newline can begin JSON as well."""
    try:
        return len(head) > 1 and bool(_message(head[: 2 + head[1]]))
    except InputError:
        return False


def frame_row(stream: BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """Messages that each follow their length, one by one, up to one that is not there whole."""
    for number, (size, part) in enumerate(_delimited(stream), 1):
        if not size or len(part) < size:
            on_problem(f"message {number}: it is cut or has no length; nothing after it was read")
            yield Gap()
            return
        try:
            yield _message(part)
        except InputError as error:
            on_problem(f"message {number}: {error}")


def _has_items(batch: SpanBatch) -> bool:
    return bool(batch.spans or batch.logs or batch.own)


def _delimited(stream: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """The length of every message, and what is there of it."""
    while first := stream.read(1):
        size = _length(first, stream)
        yield size, stream.read(size) if size <= MAX_DOCUMENT else b""


def _length(first: bytes, stream: BufferedIOBase) -> int:
    """A length: a varint, or four bytes as the Collector's file exporter writes, of which the first is 0; 0 if it is cut."""
    if first == b"\0":
        return int.from_bytes(stream.read(3))
    varint = first
    while varint[-1] >= 0x80 and len(varint) < _LONGEST_VARINT and (byte := stream.read(1)):
        varint += byte
    return read_varint(varint, 0)[0] if varint[-1] < 0x80 else 0
