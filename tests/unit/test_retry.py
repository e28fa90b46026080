"""Waits between attempts, and the meaning of responses from endpoints that accepted the signal
before or did not.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from otel_eval.retry import Attempts, Backoff, ExportResult, RetryPolicy
from tests.support.virtual_time import RecordedWaits


def test_waits_grow_with_jitter_up_to_the_longest():
    """Each differs from its nominal duration by at most half of it."""
    stopping = RecordedWaits()
    backoff = Backoff(RetryPolicy(first_s=1, factor=2, longest_s=8), stopping)
    for _ in range(6):
        backoff.wait()
    for wait, expected in zip(stopping.durations_s, (1, 2, 4, 8, 8, 8), strict=True):
        assert 0.5 * expected <= wait <= 1.5 * expected


def test_jitter_leaves_the_random_numbers_of_the_program_alone():
    """An agent that seeds them gets the same ones with an exporter that retries beside it."""
    before = random.getstate()
    Backoff(RetryPolicy(), RecordedWaits()).wait()
    assert random.getstate() == before


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3600.0, 60.0)])
def test_an_endpoint_may_ask_for_a_longer_wait(asked: float, waited: float):
    """There is a maximum."""
    stopping = RecordedWaits()
    Backoff(RetryPolicy(first_s=0.001, most_s=60), stopping).wait(asked)
    assert stopping.durations_s == [waited]


def test_a_wait_ends_at_the_deadline():
    """It holds for a wait that the endpoint requests, too."""
    stopping = RecordedWaits()
    Backoff(RetryPolicy(), stopping).wait(50.0, at_most_s=0.25)
    assert stopping.durations_s == [0.25]


def test_while_the_process_ends_waits_are_short():
    """It holds for a wait that the endpoint requests, too."""
    stopping = RecordedWaits()
    stopping.set()
    Backoff(RetryPolicy(last_s=0.001), stopping).wait(50.0)
    assert stopping.durations_s == []


def made(**known: Any) -> Attempts:
    return Attempts("otlp.logs", RetryPolicy(), "results are dropped", **known)


def meanings(attempts: Attempts, *statuses: str) -> list[str]:
    return [attempts.make(partial(ExportResult, status, status)).status for status in statuses]  # type: ignore[arg-type]


def test_responses_of_an_endpoint_that_accepted_the_signal_are_outages():
    """A 404 in the middle is retried."""
    attempts = made()
    statuses = (
        "ok",
        "not_found",
        "unsupported",
        "server_error",
        "denied",
        "permanent",
        "retryable",
    )
    assert meanings(attempts, *statuses) == [
        "ok",
        *["retryable"] * 3,
        "permanent",
        "permanent",
        "retryable",
    ]
    assert attempts.unsupported == ""


def test_an_endpoint_that_never_accepted_the_signal_does_not_support_it():
    """One attempt is allowed in each minute; a success ends that."""
    now = [0.0]
    attempts = Attempts("otlp.logs", RetryPolicy(clock=lambda: now[0]), "results are dropped")
    answers = iter(["not_found", "permanent", "ok", "not_found"])

    def attempt() -> str:
        return attempts.make(lambda: ExportResult(next(answers), "why")).status  # type: ignore[arg-type]

    assert [attempt(), attempt()] == ["unsupported"] * 2
    assert not attempts.allowed
    now[0] += 60
    assert attempts.allowed
    assert [attempt(), attempt()] == ["unsupported"] * 2
    now[0] += 60
    assert [attempt(), attempt()] == ["ok", "retryable"]
    assert attempts.allowed


def test_signals_accepted_in_an_earlier_process_count():
    """It is looked up by key, and a first success is recorded."""
    accepted: set[str] = set()

    class Before:
        def has(self, key: str) -> bool:
            return key in accepted

        def add(self, key: str) -> None:
            accepted.add(key)

    assert meanings(made(key="a", before=Before()), "not_found") == ["unsupported"]
    assert meanings(made(key="a", before=Before()), "ok") == ["ok"]
    assert meanings(made(key="a", before=Before()), "not_found") == ["retryable"]
    assert meanings(made(key="b", before=Before()), "not_found") == ["unsupported"]


def test_forwarding_follows_the_list_of_otlp():
    """A server error is permanent there; with storage a refusal of the sender is retried, since it
    can be repaired.
    """
    assert meanings(made(forwards=True), "server_error", "denied") == ["permanent", "permanent"]
    assert meanings(made(keeps=True), "denied") == ["retryable"]
