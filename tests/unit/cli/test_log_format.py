"""How many log lines of one kind are written, and whether a configuration asks for JSON."""

from __future__ import annotations

import logging
import os

from otel_eval.cli.log_format import RateLimitFilter, is_json_configured


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("otel_eval", logging.WARNING, __file__, 1, text, values, None)


def test_a_flood_of_one_kind_is_cut_and_counted() -> None:
    """Other kinds are written meanwhile; the first line of the next minute gives the number left
    out.
    """
    sparing = RateLimitFilter(limit=3, every_s=60.0)
    assert sum(sparing.filter(record("trace %s failed", number)) for number in range(100)) == 3
    assert sparing.filter(record("another"))
    kind = ("otel_eval", "trace %s failed")
    begun, count = sparing._seen[kind]
    sparing._seen[kind] = (begun - 61.0, count)
    line = record("trace %s failed", 100)
    assert sparing.filter(line)
    assert line.getMessage() == "trace 100 failed (97 more lines like this were left out)"


def test_kinds_without_end_do_not_grow() -> None:
    """Only so many are remembered."""
    sparing = RateLimitFilter()
    assert all(sparing.filter(record(f"kind {number}")) for number in range(3000))
    assert len(sparing._seen) <= 1000


def test_a_configuration_in_a_pipe_is_left_to_what_loads_it() -> None:
    """A shell passes one for `<(command)`; it can be read only once."""
    end, begin = os.pipe()
    os.write(begin, b"telemetry: {log_format: json}")
    os.close(begin)
    assert not is_json_configured(f"/dev/fd/{end}")
    assert os.read(end, 9) == b"telemetry"
    os.close(end)
