"""Counts that are stored and continued by a job that is killed."""

import json
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.faults.campaign import Campaign, Segment
from tests.support.faults.job import Job, Life, sums_in
from tests.support.faults.processes import Driver, start_driver, wait_for
from tests.support.faults.timeline import Timeline
from tests.support.figures import FIGURES, Record

KILLS = 30
LONGEST_S = 1.5


def _events_until(job: Job) -> list[int]:
    """Return how many files, one a batch of the source, each micro-batch and those before read."""
    offsets = sorted((job.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2])["logOffset"] + 1 for path in offsets]


def _wait_for_batch(segment: Segment, driver: Driver) -> None:
    before = len(segment.done())
    wait_for("a batch", lambda: len(segment.done()) > before or not driver.look())


@pytest.mark.spark
@pytest.mark.no_cover
@pytest.mark.long
def test_the_sums_of_a_job_that_is_killed_are_those_of_its_events(
    tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """Each span of them has the events of its micro-batches; only a kill's own may be missing."""
    random = Random(30)
    job, settings = Job("sessions", "buckets", "HDFS", tmp_path / "job"), dict(spark_settings)
    settings["spark.sql.streaming.minBatchesToRetain"] = "10000"
    with Campaign(tmp_path, settings, random).running() as campaign:
        jvm = campaign.jvm
        segment = Segment(job, Timeline("30"))
        for _ in range(KILLS):
            segment.feed(jvm)
            driver = start_driver(Life(job, jvm.address, is_reconciled=True))
            _wait_for_batch(segment, driver)
            time.sleep(random.uniform(0, LONGEST_S))
            assert driver.look(), driver.failure
            driver.kill()
        segment.end(jvm)
        last = start_driver(Life(job, jvm.address, "availableNow", is_reconciled=True))
        assert 0 == last.wait(), last.failure
    audit, spans, files = segment.audit(), sums_in(job.sums), _events_until(job)
    sizes = [len(segment.timeline.batch(number)) for number in range(segment.batches)] + [1]
    wanted = [
        sum(
            sizes[files[span.first - 1] if span.first else 0 : files[span.first + span.batches - 1]]
        )
        for span in spans
    ]
    counted = [span.counts.events for span in spans]
    batches = sum(span.batches for span in spans)
    record_property(
        FIGURES,
        f"reconciled: {KILLS} kills, {sum(counted)} events of {sum(sizes)} in {len(spans)} spans "
        f"of {batches} micro-batches, {len(files) - batches} of kills are missing; {audit}",
    )

    assert audit.is_sound
    assert wanted == counted
    assert len(files) - batches <= KILLS
    assert all(sum(span.counts.ends.values()) == span.counts.events for span in spans)
