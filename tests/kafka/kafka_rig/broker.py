"""A real Kafka broker without containers: jars from Maven, kept in the user's cache, and one
process in KRaft mode.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.fault_rig.service import free_port
from tests.support.waiting import LIMIT_S

__all__ = ["USER", "Broker", "install", "missing"]

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>rig</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.0</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "otel-eval"
_JARS: Final = _CACHE / f"kafka-{hashlib.sha256(_POM.encode()).hexdigest()[:12]}"
_PROPERTIES: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=6
auto.create.topics.enable=false
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=3000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=500
"""
USER: Final = {"mechanism": "PLAIN", "username": "rig", "password": "rig-secret"}
_SECURE: Final = """ssl.keystore.type=PEM
ssl.keystore.location={pem}
sasl.enabled.mechanisms={mechanism}
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_{username}="{password}";
"""


def missing() -> str:
    """Why no broker can be started here; "" if one can."""
    if shutil.which("java") is None:
        return "java is not installed"
    if not (_JARS / "installed").exists() and shutil.which("mvn") is None:
        return "mvn is not installed, and the jars are not in the cache"
    try:
        install()
    except subprocess.SubprocessError as error:
        return f"the jars cannot be downloaded ({type(error).__name__})"
    return ""


def install() -> Path:
    """The folder of the jars, downloaded at the first time."""
    if not (_JARS / "installed").exists():
        _JARS.mkdir(parents=True, exist_ok=True)
        (_JARS / "pom.xml").write_text(_POM)
        goal = [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={_JARS}",
            "-DincludeScope=runtime",
        ]
        subprocess.run(
            ["mvn", "-q", "-B", *goal], cwd=_JARS, check=True, timeout=600, capture_output=True
        )
        (_JARS / "installed").touch()
    return _JARS


def _with_listener(properties: str, listener: str) -> str:
    """The properties with one listener more, of SASL over TLS."""
    for key in ("listeners=", "advertised.listeners="):
        properties = properties.replace(f"\n{key}", f"\n{key}{listener},")
    return properties.replace("PLAINTEXT:PLAINTEXT", "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT")


class Broker:
    """One broker; its data stay over restarts.

    Args:
        folder: of configuration, data and log.
        secure: a PEM file with a key and its certificate: on `secure_address` clients speak TLS and
            log in by SASL as `USER`.
    """

    def __init__(self, folder: Path, secure: Path | None = None) -> None:
        self._folder = folder
        self._port = free_port()
        self.address: Final = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        names = {"port": self._port, "controller": free_port(), "folder": folder}
        self.secure_address: Final = f"127.0.0.1:{free_port()}"
        properties = _PROPERTIES.format(**names)
        if secure is not None:
            more = {"pem": secure, "address": self.secure_address, **USER}
            properties = _with_listener(
                properties, f"SASL_SSL://{self.secure_address}"
            ) + _SECURE.format(**more)
        (folder / "server.properties").write_text(properties)
        formatted = [
            "format",
            "-t",
            "MkU3OEVBNTcwNTJENDM2Qg",
            "-c",
            str(folder / "server.properties"),
        ]
        subprocess.run(
            self._java("kafka.tools.StorageTool", *formatted),
            check=True,
            timeout=60,
            capture_output=True,
        )

    @staticmethod
    def _java(name: str, *words: str) -> list[str]:
        return ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{install()}/*", name, *words]

    def start(self) -> Self:
        """Start, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            command = self._java("kafka.Kafka", str(self._folder / "server.properties"))
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + LIMIT_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the broker does not answer"
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        try:
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def stop(self) -> None:
        """End the process; what was written stays."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None

    def admin(self) -> AdminClient:
        """A client for topics and groups."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 2})

    def create(self, topic: str, partitions: int = 6, **settings: Any) -> None:
        """Make a topic."""
        config = {name.replace("_", "."): str(value) for name, value in settings.items()}
        admin = self.admin()  # kept until the answer is there: it ends with its last reference
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(20)

    def delete(self, topic: str) -> None:
        """Delete a topic with all its records."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(20)

    def ends(self, topic: str) -> dict[int, int]:
        """The offset behind the last record of each partition."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "ends", "log_level": 0})
        try:
            places = [
                TopicPartition(topic, each)
                for each in consumer.list_topics(topic, timeout=10).topics[topic].partitions
            ]
            return {
                each.partition: consumer.get_watermark_offsets(each, timeout=10)[1]
                for each in places
            }
        finally:
            consumer.close()

    def producer(self, **settings: Any) -> Producer:
        """A client that writes, and retries for two minutes."""
        return Producer(
            {
                "bootstrap.servers": self.address,
                "log_level": 0,
                "linger.ms": 5,
                "message.timeout.ms": 120000,
            }
            | settings
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
