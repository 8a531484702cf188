"""Where a disk is full, a job says so, and goes on rightly once there is room."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest

from tests.support.faults.campaign import Campaign, Segment
from tests.support.faults.disks import NoDiskError, fill, small_disk
from tests.support.faults.job import Job, Life
from tests.support.faults.processes import start_driver, wait_for
from tests.support.faults.timeline import Timeline

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]
FULL = {
    "checkpoint": "No space left on device",
    "sink": "database or disk is full",
    "scratch": "No space left on device",
}


@pytest.fixture(scope="module")
def campaign(
    tmp_path_factory: pytest.TempPathFactory, spark_settings: dict[str, str]
) -> Iterator[Campaign]:
    """A JVM whose own temporary files are on a small disk, where there can be one."""
    folder = tmp_path_factory.mktemp("disks")
    with ExitStack() as stack:
        try:
            stack.enter_context(small_disk(folder / "scratch", 64))
        except NoDiskError:
            (folder / "scratch").rmdir()
        yield stack.enter_context(Campaign(folder, spark_settings, Random(1)).running())


@pytest.mark.parametrize("full", FULL)
def test_a_full_disk_is_named_and_loses_nothing(campaign: Campaign, full: str) -> None:
    """The query fails with the error of the disk, and goes on rightly once there is room."""
    job = Job("sessions", "buckets", "HDFS", campaign.folder / f"full-{full}")
    segment = Segment(job, Timeline(full))
    disks = {"checkpoint": job.checkpoint, "sink": job.ledger.parent}
    with ExitStack() as stack:
        disk = disks.get(full, campaign.folder / "scratch")
        try:
            if full in disks:
                shutil.rmtree(job.ledger.parent)
                stack.enter_context(small_disk(disk, 16))
                segment.begin()
        except NoDiskError as error:
            pytest.skip(f"not run: {error}")
        if not disk.is_mount():
            pytest.skip("not run: only root can have a small disk")
        segment.feed(campaign.jvm)
        driver = start_driver(Life(job, campaign.jvm.address))
        wait_for("a batch", lambda: any(segment.done()) or not driver.look())
        with fill(disk):
            segment.feed(campaign.jvm)
            assert 1 == driver.wait()
        assert FULL[full] in (driver.failure or "")
        segment.end(campaign.jvm)
        campaign.drain(job)
        found = segment.audit()

        assert found.is_sound, found
