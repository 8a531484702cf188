"""
Kills: a job is started and killed, again and again, and then every event is looked for.

A driver lives until something ends it. Before that, Python workers are killed under it: Spark runs
a task again twice, so one life takes many of those. A JVM outlives its drivers, because its start
takes most of the time; each segment kills it too.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Final

import attrs

from tests.support.faults import servers
from tests.support.faults.job import TABLES, Job, Life, rows_in
from tests.support.faults.ledger import begin
from tests.support.faults.processes import (
    PATIENCE_S,
    Driver,
    Jvm,
    batches_in,
    kill,
    start_driver,
    start_jvm,
    wait_for,
)
from tests.support.faults.timeline import Arrival, Audit, Timeline, audited, table_of
from tests.support.streams import write_files

JOBS: Final = (
    ("sessions", "buckets", "HDFS"),
    ("keys", "buckets", "RocksDB"),
    ("sessions", "pages", "RocksDB"),
    ("keys", "pages", "RocksDB"),
    ("sessions", "buckets", "RocksDB"),
    ("keys", "buckets", "HDFS"),
)
"""Spec, layout and state store."""
KINDS: Final = {
    "worker": 10,
    "daemon": 1,
    "driver": 3,
    "in the transaction": 3,
    "after the commit": 3,
    "JVM after the commit": 1,
    "JVM": 1,
}
"""How often something is killed, in parts: a worker under a life, the others to end it."""
OF_JVM: Final = {"JVM": 2, "JVM with rows unlogged": 3, "JVM after the commit": 3}
"""The same where Spark writes the files: its JVM is all that can be killed in between."""
AHEAD: Final = 6
"""How many files wait before the source, unless a campaign says another number."""
WORKERS: Final = ("worker", "daemon")


def deck(random: Random, kills: int, kinds: Mapping[str, int] = KINDS) -> list[str]:
    """Return as many kinds of kills, each about as often as it should come, in any order."""
    pack = [kind for kind, times in kinds.items() for _ in range(times)]
    dealt: list[str] = []
    while len(dealt) < kills:
        random.shuffle(pack)
        dealt += pack
    return dealt[:kills]


class LifeError(Exception):
    """Raised when a job has failed though nothing of it was killed."""


@attrs.define
class Segment:
    """One job, from its first start to its last row."""

    job: Job
    timeline: Timeline
    batches: int = 0

    def __attrs_post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.job.ledger.parent.mkdir(parents=True, exist_ok=True)
        begin(self.job.ledger)

    def done(self) -> list[int]:
        """Return the micro-batches that Spark has finished."""
        return sorted(batches_in(self.job.checkpoint / "commits"))

    def feed(self, jvm: Jvm, ahead: int = AHEAD) -> None:
        """Feed the source, until this many files are left to read."""
        done = max(self.done(), default=-1) + 1
        while self.batches < done + ahead:
            self._put(jvm, self.timeline.batch(self.batches))
            self.batches += 1

    def end(self, jvm: Jvm) -> None:
        """Put the last event before the source: it closes all sessions."""
        self._put(jvm, self.timeline.end(self.batches))

    def watermarks(self) -> dict[int, datetime]:
        """
        Return the watermark under which each file was read.

        Spark's file sink doesn't run a micro-batch again whose rows it has, so that one doesn't
        move the watermark. After many such kills there is none yet.
        """
        found = {}
        for log in (self.job.checkpoint / "sources" / "0").glob("[0-9]*"):
            for entry in map(json.loads, log.read_text().splitlines()[1:]):
                offsets = self.job.checkpoint / "offsets" / str(entry["batchId"])
                watermark_ms = json.loads(offsets.read_text().splitlines()[1])["batchWatermarkMs"]
                at = datetime.fromtimestamp(watermark_ms / 1000, UTC)
                found[int(Path(entry["path"]).stem)] = at
        return found

    def audit(self) -> Audit:
        watermarks = self.watermarks() if self.job.alone == "Files" else {}
        places = self.timeline.places(self.batches, watermarks)
        if self.job.is_chained:
            places = {number: place for number, place in places.items() if place[1:]}
        return audited(places, rows_in(self.job))

    def keep(self) -> None:
        self._copy(self.folders, ".kept")
        if self.job.servers is not None:
            servers.keep(self.job)

    def restore_checkpoint(self) -> None:
        """Put the checkpoint back as it was copied."""
        self._copy([self.job.checkpoint], "", ".kept")

    def restore_sink(self) -> None:
        """Put the sink back as it was copied."""
        self._copy(self.folders[1:], "", ".kept")
        if self.job.servers is not None:
            servers.restore(self.job)

    @property
    def folders(self) -> list[Path]:
        """The checkpoint, and the folders of the sink."""
        return [self.job.checkpoint, self.job.ledger.parent, self.job.rejected]

    def _copy(self, folders: Sequence[Path], to: str, of: str = "") -> None:
        for folder in folders:
            target, source = (folder.with_name(f"{folder.name}{end}") for end in (to, of))
            shutil.rmtree(target, ignore_errors=True)
            if source.exists():
                shutil.copytree(source, target)

    def _put(self, jvm: Jvm, rows: Sequence[Arrival]) -> None:
        if self.job.servers is None:
            write_files(self.job.source, [table_of(rows)], first=self.batches)
        else:
            servers.send(jvm, self.job, rows)


@attrs.define
class Campaign:
    """Runs jobs and kills them; one JVM after the other."""

    folder: Path
    settings: Mapping[str, str]
    random: Random
    ahead: int = AHEAD
    kills: Counter[str] = attrs.field(factory=Counter)
    checks: Counter[str] = attrs.field(factory=Counter)
    failures: Counter[str] = attrs.field(factory=Counter)
    starts: int = 0
    _jvm: Jvm | None = None
    _has_lost_workers: bool = False

    @contextmanager
    def running(self) -> Iterator["Campaign"]:
        try:
            yield self
        finally:
            if self._jvm is not None:
                self._jvm.kill()

    @property
    def jvm(self) -> Jvm:
        """The JVM that runs; another one if that was killed."""
        if self._jvm is None or not self._jvm.is_alive:
            self._jvm = start_jvm(self.folder, self.settings)
            self.starts += 1
        return self._jvm

    def segment(
        self, job: Job, seed: str, kinds: Sequence[str], *, is_restored: bool = True
    ) -> Audit:
        """Run a job to its end, with kills on the way; then, from copies, once more."""
        segment = Segment(job, Timeline(seed))
        workers = [kind for kind in kinds if kind in WORKERS]
        enders = [kind for kind in kinds if kind not in WORKERS] or ["driver"]
        for place, ender in enumerate(enders):
            if is_restored and place == len(enders) - 1:
                segment.feed(self.jvm, self.ahead)
                self.drain(job)
                segment.keep()
            share = workers[place :: len(enders)]
            self._life(segment, share, ender)
        segment.end(self.jvm)
        self.drain(job, is_watched=True)
        self.checks["earlier runs refused"] += job.alone is None
        audit = segment.audit()
        if not (is_restored and audit.is_sound):
            return audit
        self._restore(segment)
        return segment.audit()

    def _restore(self, segment: Segment) -> None:
        """Put the copies back: an older checkpoint alone is refused, and with its sink goes on."""
        segment.restore_checkpoint()
        driver = start_driver(Life(segment.job, self.jvm.address, "availableNow"))
        if driver.wait() == 0 or "hasn't planned yet" not in (driver.failure or ""):
            message = f"an older checkpoint was started: {driver.failure}"
            raise LifeError(message)
        segment.restore_sink()
        self.drain(segment.job)
        self.checks["older checkpoints refused"] += 1

    def drain(self, job: Job, *, is_watched: bool = False) -> None:
        """Run a job until it has read all."""
        while (driver := self._drained(job, is_watched=is_watched)).wait() != 0:
            if not self._has_lost_workers:
                raise LifeError(driver.failure)
            self.failures[cause_of(driver.failure)] += 1
            # Spark still tried workers that were killed before; it does so once.
            self._has_lost_workers = False

    def _drained(self, job: Job, *, is_watched: bool) -> Driver:
        return start_driver(Life(job, self.jvm.address, "availableNow", is_watched))

    def _life(self, segment: Segment, workers: Sequence[str], ender: str) -> None:
        """Start a driver, kill workers under it, and then end it."""
        driver = self._start(segment)
        for kind in (*workers, ender):
            driver = self._killed(segment, driver, kind)

    def _killed(self, segment: Segment, driver: Driver, kind: str) -> Driver:
        """Kill something once; return the driver of then, which may be another one."""
        ways = {
            "worker": self._kill_worker,
            "daemon": self._kill_daemon,
            "driver": self._kill_driver,
            "JVM": self._kill_jvm,
        }
        end = time.monotonic() + PATIENCE_S
        while not ways.get(kind, self._kill_in_sink)(segment, driver, kind):
            if time.monotonic() > end:
                message = f"nothing to kill: {kind}"
                raise TimeoutError(message)
            driver = self._revived(driver, segment)
        self.kills[kind] += 1
        return driver

    def _start(self, segment: Segment) -> Driver:
        segment.feed(self.jvm, self.ahead)
        return start_driver(Life(segment.job, self.jvm.address))

    def _revived(self, driver: Driver, segment: Segment) -> Driver:
        """Return the driver, or another one if its query has failed for want of its workers."""
        segment.feed(self.jvm, self.ahead)
        if driver.look():
            return driver
        if not self._has_lost_workers:
            raise LifeError(driver.failure)
        self.failures[cause_of(driver.failure)] += 1
        return self._start(segment)

    def _kill_worker(self, segment: Segment, driver: Driver, kind: str) -> bool:
        """Kill a Python worker; say whether there was one."""
        self._pause(0.3)
        found = self.jvm.workers()
        return self._kill_below_jvm(self.random.sample(found, k=min(1, len(found))))

    def _kill_daemon(self, segment: Segment, driver: Driver, kind: str) -> bool:
        """Kill what workers are forked from, and the workers, which would go on without it."""
        self._pause(0.3)
        return self._kill_below_jvm([*self.jvm.daemons(), *self.jvm.workers()])

    def _kill_below_jvm(self, pids: Sequence[int]) -> bool:
        killed = [pid for pid in pids if kill(pid)]
        self._has_lost_workers = self._has_lost_workers or bool(killed)
        return bool(killed)

    def _kill_driver(self, segment: Segment, driver: Driver, kind: str) -> bool:
        self._pause(1.5)
        return driver.kill() == -SIGKILL

    def _kill_jvm(self, segment: Segment, driver: Driver, kind: str) -> bool:
        self._pause(1.5)
        return self._end_jvm(driver)

    def _kill_in_sink(self, segment: Segment, driver: Driver, kind: str) -> bool:
        segment.feed(self.jvm, self.ahead)
        if segment.job.servers is not None:
            return self._kill_at_server(segment.job, driver, kind)
        if segment.job.alone == "Files":
            return self._kill_at_folder(segment.job, driver, kind)
        driver.order(kind)
        wait_for("the sink", lambda: driver.has_committed or not driver.look())
        return self._end_jvm(driver) if driver.has_committed else driver.wait() == -SIGKILL

    def _kill_at_server(self, job: Job, driver: Driver, kind: str) -> bool:
        """Kill where the sink has written and not committed, or as soon as it has committed."""
        if kind == "in the transaction":
            name = self.random.choice(TABLES)
            wait_for("a table", lambda: servers.has_table(job, name) or not driver.look())
            if not servers.has_table(job, name):
                return False
            with servers.held(job, name):
                wait_for("the sink", lambda: servers.is_waited_for(job) or not driver.look())
                return driver.kill() == -SIGKILL
        before = servers.last_batch(job, TABLES[-1])
        wait_for(
            "a commit", lambda: servers.last_batch(job, TABLES[-1]) > before or not driver.look()
        )
        if kind == "JVM after the commit":
            return self._end_jvm(driver)
        return driver.kill() == -SIGKILL

    def _kill_at_folder(self, job: Job, driver: Driver, kind: str) -> bool:
        """Kill where Spark has begun to write a file, or as soon as its log has one more entry."""
        what = "part-*" if kind == "JVM with rows unlogged" else "_spark_metadata/[0-9]*"
        before = {*job.rejected.glob(what)}
        wait_for("rows", lambda: {*job.rejected.glob(what)} - before or not driver.look())
        return driver.look() and self._end_jvm(driver)

    def _end_jvm(self, driver: Driver) -> bool:
        self.jvm.kill()
        self._has_lost_workers = False
        driver.kill()
        return True

    def _pause(self, at_most_s: float) -> None:
        time.sleep(self.random.uniform(0, at_most_s))


def cause_of(failure: str | None) -> str:
    """Return the line of a failure that says what has failed."""
    lines = [line.strip() for line in (failure or "no word").splitlines()]
    causes = [line for line in lines if "Exception" in line and not line.startswith("at ")]
    return (causes or lines)[-1][:150]
