"""Scores the tool-call trajectories of traced agents from OpenTelemetry spans."""

from __future__ import annotations
