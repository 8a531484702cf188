"""Where a disk is full or a file is damaged, a job says so or goes on rightly: never neither."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.support.faults.campaign import Campaign, Segment
from tests.support.faults.disks import DAMAGES, NoDiskError, fill, small_disk, victims
from tests.support.faults.job import Job, Life
from tests.support.faults.processes import start_driver, wait_for
from tests.support.faults.timeline import Timeline
from tests.support.figures import FIGURES, Record

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


@pytest.mark.parametrize(
    ("spec", "layout", "store"), [("sessions", "buckets", "HDFS"), ("keys", "pages", "RocksDB")]
)
def test_a_damaged_file_is_named_or_does_not_matter(
    campaign: Campaign, record_property: Record, spec: str, layout: str, store: str
) -> None:
    """Each newest file of a checkpoint is missing, empty, cut, or has another bit."""
    job = Job(spec, layout, store, campaign.folder / f"damaged-{layout}")
    segment = Segment(job, Timeline(layout))
    segment.feed(campaign.jvm)
    campaign.drain(job)
    kept = campaign.folder / f"kept-{layout}"
    for path in (job.checkpoint, job.ledger.parent):
        shutil.copytree(path, kept / path.name)
    segment.feed(campaign.jvm)
    segment.end(campaign.jvm)
    said: dict[str, str] = {}
    for victim in victims(job.checkpoint):
        for damage, harm in DAMAGES.items():
            for path in (job.checkpoint, job.ledger.parent):
                shutil.rmtree(path)
                shutil.copytree(kept / path.name, path)
            harm(victim)
            name = f"{victim.relative_to(job.checkpoint)} {damage}"
            said[name] = outcome(campaign, segment, victim)
    kinds = Counter(what.partition(":")[0] for what in said.values())
    shown = ", ".join(f"{times} {what}" for what, times in kinds.most_common())
    record_property(FIGURES, f"damaged files, {job.name}: {len(said)} kinds: {shown}")

    assert {} == {name: what for name, what in said.items() if what.startswith(SILENT)}


NAMED, PLACED, OTHER, RIGHT, SILENT = (
    "an error that names the file",
    "an error that names the checkpoint",
    "an error that names neither",
    "right rows",
    "silently wrong",
)


def outcome(campaign: Campaign, segment: Segment, victim: Path) -> str:
    """Run a job over a damaged checkpoint; say what came of it."""
    job = segment.job
    driver = start_driver(Life(job, campaign.jvm.address, until="availableNow"))
    if driver.wait() == 0:
        return RIGHT if segment.audit().is_sound else f"{SILENT}: {segment.audit()}"
    failure = driver.failure or ""
    if str(victim.relative_to(job.folder)) in failure:
        return NAMED
    return PLACED if str(job.checkpoint) in failure else OTHER
