"""
The program behind `make soak`: a steady job, looked at from outside for an hour.

It samples the memory of driver, JVM and Python workers, and the bytes of checkpoint and state. Then
it looks for every event, and draws what it saw.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, Final

from benchmarks import environments
from tests.support.faults.campaign import Campaign, Segment
from tests.support.faults.job import Job, Life
from tests.support.faults.processes import ROOT, Driver, Jvm, start_driver
from tests.support.faults.timeline import Timeline
from tests.support.spark_settings import quick_settings

EVERY_S: Final = 2.0
TRIGGER: Final = "1 second"
EVENTS: Final = 1000
KEYS: Final = 300
VERSIONS: Final = 10
SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": str(VERSIONS),
    "spark.sql.streaming.fileSource.log.cleanupDelay": "60s",
}
MEMORY: Final = ("driver", "JVM", "Python workers")
BYTES: Final = ("checkpoint", "state", "log of files read")
PLOT: Final = Path(__file__).with_name("plot.py")
MEGABYTE: Final = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch the memory and the bytes of a steady job.")
    parser.add_argument("--seconds", type=float, default=3600, help="how long; default: an hour")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "soak.svg", help="the picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sessionkit-soak-") as name:
        folder = Path(name)
        campaign = Campaign(folder, quick_settings() | SETTINGS, Random(0))  # noqa: S311 (no secret)
        with campaign.running():
            samples, line = _soak(campaign, options.seconds)
        (folder / "soak.json").write_text(json.dumps(samples))
        python = environments.made("tables") / "bin" / "python"
        plot = [str(python), str(PLOT), str(folder / "soak.json"), str(options.plot.resolve())]
        subprocess.run(plot, check=True)
    print(line)


def _soak(campaign: Campaign, seconds: float) -> tuple[list[dict[str, Any]], str]:
    job = Job("sessions", "buckets", "RocksDB", campaign.folder / "job")
    segment = Segment(job, Timeline("soak", EVENTS, KEYS))
    segment.feed(campaign.jvm)
    driver = start_driver(Life(job, campaign.jvm.address, until=TRIGGER))
    samples = list(_samples(campaign.jvm, segment, driver, seconds))
    driver.kill()
    batches = len(samples) and max(segment.done())
    segment.end(campaign.jvm)
    campaign.drain(job)
    audit = segment.audit()
    shown = "; ".join(f"{name} {_trend(samples, name)}" for name in (*MEMORY, *BYTES))
    return samples, f"soak: {seconds:.0f} s, {batches} micro-batches; {shown}; {audit}"


def _samples(
    jvm: Jvm, segment: Segment, driver: Driver, seconds: float
) -> Iterator[dict[str, Any]]:
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        time.sleep(EVERY_S)
        if not driver.look():
            raise RuntimeError(driver.failure)
        segment.feed(jvm)
        yield {
            "minutes": (time.monotonic() - begun) / 60,
            "driver": memory_of(driver.process.pid),
            "JVM": memory_of(jvm.pid),
            "Python workers": sum(map(memory_of, [*jvm.daemons(), *jvm.workers()])),
            "checkpoint": bytes_of(segment.job.checkpoint),
            "state": bytes_of(segment.job.checkpoint / "state"),
            "log of files read": bytes_of(segment.job.checkpoint / "sources"),
        }


def _trend(samples: Sequence[dict[str, Any]], name: str) -> str:
    """Say the mean of the second quarter and of the last: the first one warms up."""
    quarter = max(1, len(samples) // 4)
    parts = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    before, after = (mean(sample[name] for sample in part) / MEGABYTE for part in parts)
    return f"{before:.0f} MB, then {after:.0f} MB"


def memory_of(pid: int) -> int:
    """Return the bytes of a process's memory; of what it shares, its share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended meanwhile
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def bytes_of(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # Spark has deleted it meanwhile
    return total


if __name__ == "__main__":
    main()
