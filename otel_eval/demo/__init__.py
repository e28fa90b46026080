"""A demonstration on one machine: a receiver, a small traced agent and a recorded trace of a framework.

Knows the public parts only, as a user would; needs no network beyond the loopback and no key.
"""

from __future__ import annotations
