"""A broker of Kafka that is stopped and started under a query, as its source and as its sink."""

import os
import time
from collections import Counter
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM

import pytest

from tests.support.faults.campaign import Campaign, Segment, cause_of
from tests.support.faults.job import Job, Life, Servers
from tests.support.faults.processes import start_driver
from tests.support.faults.servers import received
from tests.support.faults.timeline import Timeline, audited
from tests.support.figures import FIGURES, Record
from tests.support.kafka import KafkaMissingError, running_kafka
from tests.support.spark_settings import quick_settings

STOPS = int(os.environ.get("STOPS", "5"))
LONGEST_S = 6.0
FOR_LONG_S = 75.0
"""Longer than Kafka's clients wait for a broker that they ask: their query ends."""


@pytest.mark.spark
@pytest.mark.no_cover
@pytest.mark.long
def test_no_event_is_lost_while_a_broker_is_away(tmp_path: Path, record_property: Record) -> None:
    """A row may come twice, the same as before; the query goes on, or is started again."""
    random, causes = Random(59), Counter[str]()
    with ExitStack() as stack:
        try:
            kafka = stack.enter_context(running_kafka(tmp_path, version("pyspark")))
        except KafkaMissingError as error:
            pytest.skip(f"not run: {error}")
        settings = quick_settings(f"{kafka.connector}/*")
        jvm = stack.enter_context(Campaign(tmp_path, settings, random).running()).jvm
        servers = Servers(kafka.servers, kafka.connector, "")
        job = Job("sessions", "buckets", "HDFS", tmp_path / "job", servers, "Kafka")
        segment = Segment(job, Timeline("59"))
        segment.feed(jvm)
        driver = start_driver(Life(job, jvm.address))
        for stop in range(STOPS):
            segment.feed(jvm)
            time.sleep(random.uniform(0, 4))
            kafka.stop(random.choice((SIGTERM, SIGKILL)))
            time.sleep(FOR_LONG_S if stop == 1 else random.uniform(0, LONGEST_S))
            kafka.start()
            if not driver.look():
                driver.wait()
                causes[cause_of(driver.failure)] += 1
                driver = start_driver(Life(job, jvm.address))
        driver.kill()
        segment.end(jvm)
        last = start_driver(Life(job, jvm.address, "availableNow"))
        assert 0 == last.wait(), last.failure
        rows = received(jvm, job)
    once = [*dict.fromkeys(rows)]
    audit = audited(segment.timeline.places(segment.batches), once)
    record_property(
        FIGURES,
        f"broker: {STOPS} stops, {audit.events} events, {len(rows) - len(once)} rows of "
        f"{len(rows)} came again: {audit}; {dict(causes)}",
    )

    assert audit.is_sound
