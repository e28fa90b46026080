"""Ports at which nothing listens, for servers that start later or again."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom
from typing import Final

__all__ = ["free_port"]

_RANDOM: Final = SystemRandom()  # without a seed: tests in other processes ask at the same time


def free_port() -> int:
    """A port of 127.0.0.1 that is not in use. It is below those from which the system chooses, so
    that no other socket gets it by chance before it is used.
    """
    while True:
        port = _RANDOM.randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
