"""A demonstration on one machine: a receiver, a small traced agent and a recorded trace; needs no network and no key."""

from __future__ import annotations
