"""Members of a group that speak TLS and log in by SASL, and what they say when either is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.faults.fault_rig.books import until
from tests.faults.fault_rig.traffic import body, run_of, trace_id
from tests.kafka.kafka_rig.broker import USER, Broker
from tests.kafka.kafka_rig.group import Group


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `ca.pem`, and `server.pem` with key and certificate."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    # the form that Java reads
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    (folder / "server.pem").write_bytes(plain + chain)
    return folder


@pytest.fixture(scope="module")
def secure_broker(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("secure"), authority / "server.pem") as broker:
        broker.create("spans", 2)
        broker.create("results", 1)
        producer = broker.producer()
        for number in range(20):
            producer.produce("spans", body(run_of(number).spans()), trace_id(number).hex())
        assert producer.flush(20) == 0
        yield broker


def test_receiver_and_exporter_speak_tls_and_log_in(
    secure_broker: Broker, authority: Path, tmp_path: Path
) -> None:
    client: dict[str, Any] = {
        "brokers": [secure_broker.secure_address],
        "tls": {"ca_file": str(authority / "ca.pem")},
        "sasl": USER,
    }
    exporters = {
        "jsonl": {"path": str(tmp_path / "member-0" / "results.jsonl")},
        "kafka": {"topic": "results", **client},
    }
    with Group(tmp_path, secure_broker.address, {"topic": "spans", **client}, exporters) as group:
        member = group.add()
        assert until(lambda: len(group.rows()) == 80, 40), member.said()
        assert until(lambda: member.metric("exporter_sent_results_total") == 160, 20), member.said()


@pytest.mark.parametrize(
    "wrong",
    [{"sasl": {**USER, "password": "other-secret"}}, {"tls": {}}],
    ids=["password", "authority"],
)
def test_what_the_broker_or_the_member_refuses_is_logged_without_the_password(
    secure_broker: Broker, authority: Path, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    client: dict[str, Any] = {
        "brokers": [secure_broker.secure_address],
        "tls": {"ca_file": str(authority / "ca.pem")},
        "sasl": USER,
    }
    with Group(tmp_path, secure_broker.address, {"topic": "spans", **client, **wrong}) as group:
        member = group.add()
        assert until(lambda: any("reading spans" in line for line in member.said()), 30), (
            member.said()
        )
        assert member.metric("kafka_errors_total") > 0
        assert not any("secret" in line for line in member.said())
        assert not group.rows()
