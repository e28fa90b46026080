"""Durations, sizes and numbers as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.config import AsyncScoring, Evaluation
from otel_eval.config.units import bytes_of, seconds_of
from otel_eval.errors import ConfigError

NEVER = [None, True, "", "soon", "1 fortnight", "-1s", -1, math.nan, math.inf, [1], "٣s"]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("1s", 1),
        ("5m", 300),
        ("1h", 3600),
        ("1.5h", 5400),
        ("1d", 86400),
        ("10us", 1e-5),
        (0, 0),
        (2.5, 2.5),
    ],
)
def test_a_duration_is_read_in_seconds(written: Any, seconds: float) -> None:
    """Each unit, and plain numbers of seconds."""
    assert seconds_of(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1B", 1),
        ("64KB", 64_000),
        ("512MiB", 512 * 2**20),
        ("1GiB", 2**30),
        ("0.5KiB", 512),
        (10, 10),
        ("7", 7),
    ],
)
def test_a_size_is_read_in_bytes(written: Any, size: int) -> None:
    """Decimal and binary units, and plain numbers of bytes."""
    assert bytes_of(written) == size


def test_anything_else_is_refused_with_what_was_written(subtests: pytest.Subtests) -> None:
    """The message quotes the value and gives an example."""
    for read in [seconds_of, bytes_of]:
        for written in [*NEVER, 10**400, "1s\n1s"]:
            with subtests.test(read=read, written=written):
                with pytest.raises(ValueError, match=r"write e\.g\.") as caught:
                    read(written)
                assert repr(written)[:50] in str(caught.value)


def refused_as(key: str, written: Any) -> str:
    """The pattern of a message that quotes the value and says what is wrong with it and what to
    do.
    """
    quoted = "null (no value)" if written is None else repr(written)
    return f"^{key}: {re.escape(quoted)} is (not|less than|more than) .*; (write|raise|lower) "


def test_a_count_is_a_whole_number_from_1(subtests: pytest.Subtests) -> None:
    """Within what fits."""
    for key in ["max_queue", "concurrency"]:
        for written in [*NEVER, 0, 2.0, "3", 2**60]:
            with (
                subtests.test(key=key, written=written),
                pytest.raises(ConfigError, match=refused_as(key, written)),
            ):
                AsyncScoring(**{key: written})


def test_a_share_is_a_number_from_0_to_1(subtests: pytest.Subtests) -> None:
    """True is none."""
    for written in [*NEVER, 1.01, "0.5"]:
        with (
            subtests.test(written=written),
            pytest.raises(ConfigError, match=refused_as("sample", written)),
        ):
            Evaluation(name="e", sample=written, scorers=[{"type": "tool_errors"}])


@pytest.mark.parametrize(
    ("read", "written"), [(bytes_of, 0), (bytes_of, 1.5), (seconds_of, "9999d")]
)
def test_a_limit_is_kept(read: Any, written: Any) -> None:
    """Nothing below one byte, no part of one, no duration beyond a year."""
    with pytest.raises(ValueError, match=re.escape(repr(written))):
        read(written)


@given(st.text(max_size=12) | st.floats() | st.integers())
def test_any_text_or_number_is_a_finite_duration_or_refused(written: Any) -> None:
    """No other exception, no NaN, nothing negative."""
    try:
        seconds = seconds_of(written)
    except ValueError:
        return
    assert 0 <= seconds <= 365 * 86400
