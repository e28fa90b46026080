"""Which attributes of a resource are exported."""

from __future__ import annotations

from typing import Any

from otel_eval.conventions.reader import exported_resource
from otel_eval.interfaces import ResourceScope
from otel_eval.otlp.spans import encode_attributes, resource_scope

IDENTITY = {"service.name": "shop", "openinference.project.name": "support", "service.version": "2"}


def test_a_resource_is_exported_whole() -> None:
    """With lists and maps, as it was sent."""
    given = {
        **IDENTITY,
        "process.command_args": ["python", "-m", "shop"],
        "cpus": 2,
        "labels": {"team": "a"},
    }
    assert read(given).resource == exported_resource(given) == given


def test_the_identity_of_a_resource_beyond_the_limit_is_exported() -> None:
    """One that is longer than the limit, in one value or in many."""
    long: list[dict[str, Any]] = [{"notes": "x" * 8192}, {f"key {n}": n for n in range(2000)}]
    assert [exported_resource(IDENTITY | more) for more in long] == [IDENTITY, IDENTITY]


def test_long_values_of_an_identity_are_left_out() -> None:
    """And those that are no text."""
    found = exported_resource(
        {"service.name": "s" * 9000, "service.version": 2, "openinference.project.name": "p" * 256}
    )
    assert found == {"openinference.project.name": "p" * 256}


def read(attributes: dict[str, Any]) -> ResourceScope:
    return resource_scope(encode_attributes(1, attributes), b"")
