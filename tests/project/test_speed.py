"""The speed is guarded: a regression of half fails, whatever the machine."""

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.guard import RECORDED, ratios, recorded, slower

RECORD = "RECORD_SPEED"


@pytest.mark.nightly
@pytest.mark.speed
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_sessionkit_is_no_slower_than_recorded(spark: SparkSession, tmp_path: Path) -> None:
    """Compared with the floor and a job by hand, it takes at most half as much again as before."""
    measured = ratios(spark, tmp_path / "first")
    if os.environ.get(RECORD):
        RECORDED.write_text(json.dumps(measured, indent=2) + "\n")
    if slower(measured, recorded()):
        again = ratios(spark, tmp_path / "again")
        measured = {name: min(ratio, again[name]) for name, ratio in measured.items()}

    assert {} == slower(measured, recorded()), (
        f"If it's meant to be slower, record it: {RECORD}=1 pytest tests/project/test_speed.py"
    )
