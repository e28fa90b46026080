"""A backend behind the receiver, over each protocol."""

from __future__ import annotations

import pytest

from tests.support import otlp_backend


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Each protocol to a backend."""
    return str(request.param)


@pytest.fixture
def backend(request: pytest.FixtureRequest):
    """A backend; of the test's protocol if it has one."""
    kind = request.getfixturevalue("protocol") if "protocol" in request.fixturenames else "grpc"
    with otlp_backend.BACKENDS[kind]() as running:
        yield running
