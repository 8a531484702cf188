"""
Three kills of one job: no event is lost, there twice, or in another place than it should be.

An earlier run that still writes is refused. Older checkpoints are for `make faults` and for
`tests/spark/sinks/test_restoring.py`.
"""

from pathlib import Path
from random import Random

import pytest

from tests.support.faults.campaign import Campaign, deck
from tests.support.faults.job import Job
from tests.support.figures import FIGURES, Record

KILLS = ["worker", "in the transaction", "JVM after the commit"]
"""At the sink, a driver and a JVM die at their worst moments; `make faults` takes any others."""


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.no_cover
def test_every_event_is_found_once(
    tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """Driver, JVM and Python workers are killed, anywhere and at the sink's worst moments."""
    campaign = Campaign(tmp_path, spark_settings, Random(12), ahead=3)
    with campaign.running():
        job = Job("sessions", "buckets", "HDFS", tmp_path / "job")
        found = campaign.segment(job, "12", KILLS, is_restored=False)
    record_property(FIGURES, f"faults: {campaign.kills.total()} kills, {found}")

    assert found.is_sound
    assert {"earlier runs refused": 1} == campaign.checks
    assert set(KILLS) == set(campaign.kills)
    assert len(KILLS) == campaign.kills.total()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.no_cover
@pytest.mark.since_spark("4.0.2", "carries_watermark=True needs Spark 4.0.2 or later")
def test_every_event_is_in_one_window_after_sessions(
    tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """A window and a deduplication follow in the same query, which is killed 20 times."""
    campaign = Campaign(tmp_path, spark_settings, Random(36), ahead=3)
    job = Job("chained", "buckets", "RocksDB", tmp_path / "job")
    with campaign.running():
        found = campaign.segment(job, "36", deck(Random(36), 20))
    record_property(FIGURES, f"faults: {campaign.kills.total()} kills, {found}")

    assert found.is_sound
    assert 20 == campaign.kills.total()
