"""
The program behind `make soak`: a steady job, looked at from outside for an hour.

It samples the memory of driver, JVM and Python workers, their threads and handles, and the files
and bytes of the checkpoint. Then it looks for every event, and records what it saw.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final, TypeAlias

from tests.support.faults.campaign import Campaign, Segment
from tests.support.faults.job import Job, Life
from tests.support.faults.processes import start_driver
from tests.support.faults.timeline import Audit, Timeline
from tests.support.spark_settings import quick_settings

EVERY_S: Final = 2.0
AHEAD: Final = 12
"""How many files wait at each look: more than micro-batches come until the next."""
EVENTS: Final = 1000
KEYS: Final = 300
VERSIONS: Final = 10
SETTINGS: Final = {
    "spark.sql.streaming.minBatchesToRetain": str(VERSIONS),
    "spark.sql.streaming.fileSource.log.cleanupDelay": "60s",
}
MEMORY: Final = ("driver", "JVM", "Python workers")
BYTES: Final = ("checkpoint", "state", "log of files read")
NUMBERS: Final = (
    "threads of the JVM",
    "threads of Python",
    "handles of the JVM",
    "handles of Python",
    "files of the checkpoint",
)
HOUR: Final = Path(__file__).with_name("hour.json")
MEGABYTE: Final = 1_000_000

Sample: TypeAlias = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch the memory and the bytes of a steady job.")
    parser.add_argument("--seconds", type=float, default=3600, help="how long; default: an hour")
    parser.add_argument("--record", type=Path, default=HOUR, help="the file of what it saw")
    parser.add_argument("--trigger", default="1 second", help="of the query; default: 1 second")
    parser.add_argument(
        "--restarts", type=int, default=0, help="how often its driver is killed; default: 0"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sessionkit-soak-") as name:
        folder = Path(name)
        campaign = Campaign(folder, quick_settings() | SETTINGS, Random(0), AHEAD)  # noqa: S311 (no secret)
        with campaign.running():
            samples, line, _ = soak(campaign, options.seconds, options.restarts, options.trigger)
        print(line)
        options.record.write_text(recorded(samples), "utf-8")


def soak(
    campaign: Campaign, seconds: float, restarts: int, trigger: str
) -> tuple[list[Sample], str, Audit]:
    """Run a job in one JVM; return what was seen, a line that says it, and what became of it."""
    job = Job("sessions", "buckets", "RocksDB", campaign.folder / "job")
    segment = Segment(job, Timeline("soak", EVENTS, KEYS))
    begun, lives = time.monotonic(), restarts + 1
    samples: list[Sample] = []
    for life in range(1, lives + 1):
        samples += _life(campaign, segment, trigger, begun, begun + seconds * life / lives)
    batches = max(segment.done())
    segment.end(campaign.jvm)
    campaign.drain(job)
    audit = segment.audit()
    shown = [f"{name} {trend(samples, name, MEGABYTE)} MB" for name in (*MEMORY, *BYTES)]
    shown += [f"{name} {trend(samples, name)}" for name in NUMBERS]
    ran = f"soak: {seconds:.0f} s, {batches} micro-batches, {restarts} restarts"
    return samples, f"{ran}; {'; '.join(shown)}; {audit}", audit


def _life(
    campaign: Campaign, segment: Segment, trigger: str, begun: float, end: float
) -> Iterator[Sample]:
    """Run the driver until then, and kill it; yield what is seen meanwhile."""
    jvm, job = campaign.jvm, segment.job
    segment.feed(jvm, campaign.ahead)
    driver = start_driver(Life(job, jvm.address, until=trigger))
    while time.monotonic() < end:
        time.sleep(EVERY_S)
        if not driver.look():
            raise RuntimeError(driver.failure)
        segment.feed(jvm, campaign.ahead)
        python = [driver.process.pid, *jvm.daemons(), *jvm.workers()]
        yield {
            "minutes": (time.monotonic() - begun) / 60,
            "driver": memory_of(driver.process.pid),
            "JVM": memory_of(jvm.pid),
            "Python workers": sum(map(memory_of, python[1:])),
            "checkpoint": sum(sizes_in(job.checkpoint)),
            "state": sum(sizes_in(job.checkpoint / "state")),
            "log of files read": sum(sizes_in(job.checkpoint / "sources")),
            "threads of the JVM": entries_of(jvm.pid, "task"),
            "threads of Python": sum(entries_of(pid, "task") for pid in python),
            "handles of the JVM": entries_of(jvm.pid, "fd"),
            "handles of Python": sum(entries_of(pid, "fd") for pid in python),
            "files of the checkpoint": len(sizes_in(job.checkpoint)),
        }
    driver.kill()


def recorded(samples: Sequence[Sample]) -> str:
    """Return the mean megabytes of each minute, in JSON with a line for each series."""
    by_minute = [[*part] for _, part in groupby(samples, lambda sample: int(sample["minutes"]))]
    series: dict[str, list[float]] = {"minutes": [int(part[0]["minutes"]) for part in by_minute]}
    for name in (*MEMORY, *BYTES):
        means = (mean(sample[name] for sample in part) for part in by_minute)
        series[name] = [round(value / MEGABYTE, 1) for value in means]
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(line)}" for name, line in series.items())
    return f"{{\n{lines}\n}}\n"


def trend(samples: Sequence[Sample], name: str, unit: int = 1) -> str:
    """Say the mean of the second quarter and of the last: the first one warms up."""
    before, after = quarters(samples, name)
    return f"{before / unit:.0f}, then {after / unit:.0f}"


def quarters(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Return the mean of the second quarter and of the last."""
    quarter = max(1, len(samples) // 4)
    parts = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    before, after = (mean(sample[name] for sample in part) for part in parts)
    return before, after


def entries_of(pid: int, what: str) -> int:
    """Return how many threads (`task`) or handles (`fd`) a process has."""
    try:
        return len([*Path(f"/proc/{pid}/{what}").iterdir()])
    except OSError:
        return 0  # it has ended meanwhile


def memory_of(pid: int) -> int:
    """Return the bytes of a process's memory; of what it shares, its share."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended meanwhile
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def sizes_in(folder: Path) -> list[int]:
    """Return the bytes of each file in a folder."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes += [path.stat().st_size] if path.is_file() else []
        except OSError:
            continue  # Spark has deleted it meanwhile
    return sizes


if __name__ == "__main__":
    main()
