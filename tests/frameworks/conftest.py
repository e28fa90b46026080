"""Leaves the program that gunicorn loads to gunicorn."""

from __future__ import annotations

collect_ignore = ["web.py"]
