"""Configuration of gunicorn: each worker logs when its signal handlers are installed."""

from __future__ import annotations

from typing import Any


def post_worker_init(worker: Any) -> None:
    """Called by gunicorn after the worker's handlers were installed and the application was
    loaded.
    """
    worker.log.info("worker handles signals")
