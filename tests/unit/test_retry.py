"""Waits between attempts, and the meaning of responses from endpoints that accepted the signal
before or did not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from otel_eval.retry import Attempts, Backoff, ExportResult, RetryPolicy, in_halves
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


def attempts_of(**options: Any) -> Attempts:
    return Attempts("otlp.logs", RetryPolicy(), "results are dropped", **options)


def meanings(attempts: Attempts, *statuses: str) -> list[str]:
    return [attempts.make(partial(ExportResult, status, status)).status for status in statuses]  # type: ignore[arg-type]


def test_responses_of_an_endpoint_that_accepted_the_signal_are_outages():
    """A 404 in the middle is retried."""
    attempts = attempts_of()
    statuses = ("ok", "unsupported", "server_error", "denied", "permanent", "retryable")
    assert meanings(attempts, *statuses) == [
        "ok",
        "retryable",
        "retryable",
        "permanent",
        "permanent",
        "retryable",
    ]
    assert attempts.unsupported == ""


def test_an_endpoint_that_never_accepted_the_signal_does_not_support_it():
    """One attempt is allowed in each minute; a success ends that."""
    now = [0.0]
    attempts = Attempts("otlp.logs", RetryPolicy(clock=lambda: now[0]), "results are dropped")
    answers = iter(["unsupported", "unsupported", "ok", "unsupported"])

    def attempt() -> str:
        return attempts.make(lambda: ExportResult(next(answers), "why")).status  # type: ignore[arg-type]

    assert [attempt(), attempt()] == ["unsupported"] * 2
    assert attempts.allowed_in_s == 60
    now[0] += 60
    assert attempts.allowed_in_s == 0
    assert [attempt(), attempt()] == ["unsupported"] * 2
    now[0] += 60
    assert [attempt(), attempt()] == ["ok", "retryable"]
    assert attempts.allowed_in_s == 0


@pytest.mark.parametrize("status", ["retryable", "permanent"])
def test_another_response_ends_the_time_without_support(status: str):
    """Connections that fail, 429 and 5xx hold back as always, and a refused item is its own
    affair.
    """
    now = [0.0]
    attempts = Attempts("otlp.logs", RetryPolicy(clock=lambda: now[0]), "results are dropped")
    assert meanings(attempts, "unsupported") == ["unsupported"]
    now[0] += 60
    assert meanings(attempts, status) == [status]
    assert (attempts.unsupported, attempts.allowed_in_s) == ("", 0)


def test_forwarding_follows_the_list_of_otlp():
    """A server error is permanent there; with storage a refusal of the sender is retried, since it
    can be repaired.
    """
    forwarding = attempts_of(forwards=True)
    assert meanings(forwarding, "server_error", "denied") == ["permanent", "permanent"]
    assert meanings(attempts_of(waits_for_access=True), "denied") == ["retryable"]


def test_a_refused_batch_is_halved_until_the_refused_items_are_alone():
    """The others arrive once each, in order; nothing is sent after the caller stops."""
    sent: list[str] = []

    def send(items: Sequence[str]) -> ExportResult:
        sent.append("".join(items))
        return ExportResult.permanent("400") if {"b", "e"} & set(items) else ExportResult.ok()

    parts = [("".join(items), result.status) for items, result in in_halves("abcdef", send)]
    assert parts == [
        ("a", "ok"),
        ("b", "permanent"),
        ("c", "ok"),
        ("d", "ok"),
        ("e", "permanent"),
        ("f", "ok"),
    ]
    sent.clear()
    next(in_halves("abcdef", send))
    assert sent == ["abcdef", "abc", "a"]


@pytest.mark.parametrize(
    "result",
    [
        ExportResult("permanent", "401", concerns_all=True),
        ExportResult.retryable("503"),
        ExportResult.unsupported("404"),
    ],
)
def test_a_response_about_the_sender_or_the_endpoint_halves_nothing(result: ExportResult):
    """A smaller batch would get the same response."""
    assert list(in_halves("abc", lambda _: result)) == [("abc", result)]
