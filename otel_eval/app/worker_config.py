"""What of the configuration each worker gets, and what several processes cannot share."""

from __future__ import annotations

import pickle
from typing import Any, Final

from otel_eval.app.wiring import writes_lines
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.storage.directory import worker_directory

__all__ = ["config_of_worker", "refuse_unshared"]

_STDOUT: Final = (None, "-")


def refuse_unshared(config: EvalConfig) -> None:
    """See whether several workers can share what is configured.

    Raises:
        ConfigError: they cannot.
    """
    if config.workers == 1:
        return
    jsonl = config.exporters.jsonl
    if writes_lines(config) and (jsonl is None or jsonl.path == "-"):
        raise ConfigError(
            f"exporters.jsonl.path: {config.workers} workers cannot share standard output; name a file, or set workers to 1"
        )
    kafka = config.receivers.kafka
    if kafka and "group.instance.id" in kafka.options:
        raise ConfigError("receivers.kafka.options.group.instance.id: workers cannot share it; leave it out, or set workers to 1")
    try:
        pickle.dumps(config)
    except Exception as error:  # noqa: BLE001 - anything may be in an object of the user's
        raise ConfigError(
            f"workers: {config.workers} processes need a configuration that can be pickled ({type(error).__name__}); define "
            "functions and classes at the top level of a module, or set workers to 1"
        ) from None


def config_of_worker(config: EvalConfig, number: int) -> EvalConfig:
    """The configuration of one worker: limits of the whole service are divided, and each has a storage directory of its own."""
    workers, traces, storage = config.workers, config.traces, config.storage
    own: dict[str, Any] = {
        "workers": 1,
        "traces": traces.model_copy(
            update={
                "max_traces": max(1, traces.max_traces // workers),
                "max_bytes": max(traces.max_bytes_per_trace, traces.max_bytes // workers),
            }
        ),
    }
    if instance := config.telemetry.service_instance_id:
        own["telemetry"] = config.telemetry.model_copy(update={"service_instance_id": f"{instance}-{number}"})
    if storage:
        directory = str(worker_directory(storage.directory, number))
        own["storage"] = storage.model_copy(update={"directory": directory, "max_size": storage.max_size // workers})
    return config.model_copy(update=own)
