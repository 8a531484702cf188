"""Minutes of the soak, with restarts: nothing grows that an hour would show."""

from pathlib import Path
from random import Random

import pytest

from benchmarks.soak.__main__ import AHEAD, NUMBERS, SETTINGS, quarters, soak
from tests.support.faults.campaign import Campaign
from tests.support.figures import FIGURES, Record

SECONDS, RESTARTS = 240, 3
LEFT = {"threads of Python": 2, "handles of Python": 7, "handles of the JVM": 4}
"""What each start leaves until the JVM ends: an idle daemon of Python workers, one a session."""


@pytest.mark.spark
@pytest.mark.no_cover
@pytest.mark.long
def test_a_job_stays_level_over_restarts(
    tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """Threads, handles and files of the last quarter are those of the second, in one JVM."""
    campaign = Campaign(tmp_path, spark_settings | SETTINGS, Random(0), AHEAD)
    with campaign.running():
        samples, line, audit = soak(campaign, SECONDS, RESTARTS, "0 seconds")
    record_property(FIGURES, line)

    assert audit.is_sound
    for name in NUMBERS:
        before, after = quarters(samples, name)
        assert after - 2 * LEFT.get(name, 0) < 1.25 * before, name
