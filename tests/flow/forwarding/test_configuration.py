"""Errors in the configuration of the forwarding exporter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.errors import ConfigError

HERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exporters.forward.endpoint: is missing"),
        (
            {"endpoint": "127.0.0.1:4317"},
            "exporters.forward.endpoint: '127.0.0.1:4317' is not a URL",
        ),
        (
            {"endpoint": HERE, "protocol": "http/json"},
            "exporters.forward.protocol: 'http/json' is invalid; write ",
        ),
        (
            {"endpoint": HERE, "signals": ["spans"]},
            "exporters.forward.signals[0]: 'spans' is invalid; write ",
        ),
        (
            {"endpoint": HERE, "signals": []},
            "exporters.forward.signals: [] is empty; name at least one",
        ),
        ({"endpoint": HERE, "tls": {"ca_file": "x.pem"}}, "is not an https:// URL"),
        (
            {"endpoint": "https://h", "tls": {"cert_file": "x.pem"}},
            "exporters.forward.tls: cert_file is given without key_file",
        ),
        (
            {"endpoint": "https://h", "tls": {"key_file": "x.pem"}},
            "exporters.forward.tls: key_file is given without cert_file",
        ),
        (
            {"endpoint": HERE, "max_queue": 1},
            "exporters.forward.max_queue: unknown key; did you mean 'max_queue_size'?",
        ),
    ],
)
def test_a_mistake_is_one_line(given: dict[str, Any], words: str) -> None:
    """It names the key, the value and what would be right."""
    with pytest.raises(ConfigError) as caught:
        load({"exporters": {"forward": given}})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_files_for_tls_are_read_at_the_start(tmp_path: Path, protocol: str) -> None:
    """Not when the first span is passed on."""
    tls = {"ca_file": str(tmp_path / "missing.pem")}
    forward = {"endpoint": "https://127.0.0.1:1", "protocol": protocol, "tls": tls}
    with pytest.raises(
        ConfigError, match=r"exporters\.forward\.tls\.ca_file: .*missing\.pem' cannot be read"
    ):
        Server(load({"exporters": {"forward": forward}}))
