"""A certificate authority for the endpoints of these tests."""

from __future__ import annotations

import pytest
import trustme


@pytest.fixture(scope="session")
def session_authority() -> trustme.CA:
    """One authority for all tests."""
    return trustme.CA()
