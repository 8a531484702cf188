"""
Kills of one job: no event is lost, there twice, or in another place than it should be.

An earlier run that still writes is refused, and so is an older checkpoint under a newer sink.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.support.faults.campaign import KINDS, Campaign
from tests.support.faults.job import Job
from tests.support.figures import FIGURES, Record

WORST = ["worker", "in the transaction", "JVM after the commit", "after the commit"]
ALL = ["worker", "daemon", "worker", "in the transaction", "driver", *WORST[2:]]


@pytest.mark.spark
@pytest.mark.no_cover
@pytest.mark.parametrize("kills", [WORST, pytest.param(ALL, marks=pytest.mark.long)])
def test_every_event_is_found_once(
    kills: list[str], tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """Workers, drivers and the JVM are killed at the sink's worst moments; drivers anywhere too."""
    campaign = Campaign(tmp_path, spark_settings, Random(12), ahead=3)
    with campaign.running():
        found = campaign.segment(Job("sessions", "buckets", "HDFS", tmp_path / "job"), "12", kills)
    record_property(FIGURES, f"faults: {campaign.kills.total()} kills, {found}")

    assert found.is_sound
    assert {"earlier runs refused": 1, "older checkpoints refused": 1} == campaign.checks
    assert Counter(kills) == campaign.kills
    assert kills == WORST or set(KINDS) - {"JVM"} == set(kills)
