"""What each worker gets of the configuration."""

from __future__ import annotations

from otel_eval.app.receiving import config_of_worker
from otel_eval.config import load


def test_workers_have_distinct_instances() -> None:
    """Series of two processes under one name would mix."""
    config = load(
        {
            "workers": 2,
            "telemetry": {"service_instance_id": "scorer"},
            "exporters": {"jsonl": {"path": "out.jsonl"}},
        }
    )
    assert [
        config_of_worker(config, number).telemetry.service_instance_id for number in (1, 2)
    ] == ["scorer-1", "scorer-2"]


def test_workers_without_a_name_keep_their_own() -> None:
    config = load({"workers": 2, "exporters": {"jsonl": {"path": "out.jsonl"}}})
    assert config_of_worker(config, 1).telemetry.service_instance_id is None
