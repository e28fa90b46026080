"""What the tests of whole programs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.waiting import wait_until


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds."""
    return wait_until
