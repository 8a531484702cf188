"""
A real Kafka for tests: one process from Maven's jars, and Spark's connector to it.

The jars are fetched once, with the Ivy that comes with Spark, into `~/.cache/sessionkit-tests`.
Spark's own version of the connector is asked for first. Maven may have it later than the package
index has Spark, or in part: then the one that was last seen to work is taken, and the name of the
folder says so.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import SIGTERM
from typing import Final
from uuid import uuid4

import attrs
import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.support.cache import CACHE, cached
from tests.support.ports import free_ports
from tests.support.spark_settings import SHORT_LIFE

SCALA: Final = "2.13"
KAFKA: Final = "3.9.1"
LAST_SEEN_TO_WORK: Final = {
    f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}": "4.2.0",
    f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}": "4.1.0-preview1",
    "org.apache.kafka:kafka-clients": KAFKA,
    "org.apache.commons:commons-pool2": "2.12.0",
}
FETCH_S: Final = 300
START_S: Final = 60
SETTINGS: Final = "server.properties"
SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.cleaner.backoff.ms=100
"""


class KafkaMissingError(Exception):
    """Raised where no Kafka can be had, with the reason."""


@attrs.define(eq=False)
class Kafka:
    """A broker, and the connector's jars for Spark."""

    port: int
    connector: Path
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker with the data that it has, and wait until it answers."""
        with (self.folder / "broker.log").open("a") as output:
            command = [*java_with_kafka(), "kafka.Kafka", str(self.folder / SETTINGS)]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        _wait_for(self.process, self.port)

    def stop(self, number: int = SIGTERM) -> None:
        """End the broker by a signal, and wait until it's gone."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(START_S)

    def connect(self, spark: SparkSession) -> None:
        """Let a session that runs already find the connector, as seen from this thread."""
        for jar in sorted(self.connector.glob("*.jar")):
            spark.sql(f"ADD JAR '{jar}'")


@contextmanager
def reached_kafka(spark: SparkSession, folder: Path) -> Iterator[Kafka]:
    """Run a broker that a session reaches; a test is skipped where none can be had."""
    try:
        with running_kafka(folder, spark.version) as broker:
            broker.connect(spark)
            yield broker
    except KafkaMissingError as error:
        pytest.skip(f"not run: {error}")


@contextmanager
def running_kafka(folder: Path, spark_version: str) -> Iterator[Kafka]:
    """Run a broker, with its data in a folder, until the end of the block."""
    connector = _connector(spark_version)
    broker, controller = free_ports(2)
    settings = folder / SETTINGS
    logs = folder / "logs"
    settings.write_text(PROPERTIES.format(broker=broker, controller=controller, logs=logs))
    format_logs = ["kafka.tools.StorageTool", "format", "-t", _cluster(), "-c", str(settings)]
    _run([*java_with_kafka(), *format_logs], START_S)
    kafka = Kafka(broker, connector, folder)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def java_with_kafka() -> list[str]:
    """Return the command that runs Java with the classes of Kafka."""
    jars = _fetched(f"kafka-{KAFKA}", {f"org.apache.kafka:kafka_{SCALA}": KAFKA})
    return [_java(), *SHORT_LIFE.split(), "-Xmx256m", "-cp", str(jars / "*")]


def _connector(spark_version: str) -> Path:
    fallback = f"connector-4.2.0-for-{spark_version}"
    if (CACHE / fallback).exists():
        return CACHE / fallback
    connector = {f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}": spark_version}
    try:
        return _fetched(f"connector-{spark_version}", connector)
    except KafkaMissingError:
        return _fetched(fallback, LAST_SEEN_TO_WORK, alone=True)


def _fetched(name: str, artifacts: dict[str, str], *, alone: bool = False) -> Path:
    """Return the folder with these jars and, unless they are to be alone, what they need."""
    return cached(name, partial(_fetch, _project(artifacts, alone=alone)))


def _fetch(ivy_xml: str, folder: Path) -> None:
    project = folder / "ivy.xml"
    project.write_text(ivy_xml)
    ivy = [_java(), *SHORT_LIFE.split(), "-cp", str(SPARK_JARS / "*")]
    what = ["-ivy", str(project), "-cache", str(CACHE / "ivy"), "-types", "jar", "bundle"]
    where = ["-retrieve", str(folder / "[artifact]-[revision].[ext]")]
    _run([*ivy, "org.apache.ivy.Main", *what, *where], FETCH_S)
    project.unlink()


def _project(artifacts: dict[str, str], *, alone: bool) -> str:
    transitive = str(not alone).lower()
    dependencies = []
    for coordinates, version in artifacts.items():
        group, artifact = coordinates.split(":")
        attributes = f'org="{group}" name="{artifact}" rev="{version}"'
        dependencies.append(f'<dependency {attributes} transitive="{transitive}" conf="default"/>')
    return (
        '<ivy-module version="2.0"><info organisation="tests" module="kafka"/>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _run(command: list[str], patience_s: float) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        found = f"{Path(command[0]).name} took longer than {patience_s} s"
        raise KafkaMissingError(found) from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        found = f"{Path(command[0]).name}: {lines[0] if lines else done.stderr}"
        raise KafkaMissingError(found)


def _wait_for(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            found = f"the broker ended with {process.returncode}"
            raise KafkaMissingError(found)
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    found = f"the broker took longer than {START_S} s to start"
    raise KafkaMissingError(found)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _cluster() -> str:
    """Return an id as Kafka wants it: 16 bytes as 22 letters."""
    return "sessionkit-tests-" + uuid4().hex[:5]
