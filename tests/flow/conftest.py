"""What the tests of whole programs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from waiting import wait_until


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until a condition holds; fails after ten seconds."""
    return wait_until
