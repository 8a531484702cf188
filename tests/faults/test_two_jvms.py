"""Two JVMs run one query on one checkpoint, as where a job is started twice."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.faults.campaign import Segment, cause_of
from tests.support.faults.job import Alone, Job, Life
from tests.support.faults.processes import Jvm, start_driver, start_jvm, wait_for
from tests.support.faults.servers import class_path, running
from tests.support.faults.timeline import Timeline
from tests.support.figures import FIGURES, Record
from tests.support.spark_settings import quick_settings

ENDS: dict[str, Alone | None] = {
    "SQLite and a folder": None,
    "PostgreSQL": None,
    "a folder": "Files",
    "a function": "AtLeastOnce",
    "Delta": "Delta",
}
ROUNDS = int(os.environ.get("ROUNDS", "6"))
"""How often one of the two ends, and is started again."""
WORDS = ("another run writes with the checkpoint", "a later run has it")
"""What the one that ends says, in words of ours."""

pytestmark = [pytest.mark.spark, pytest.mark.no_cover, pytest.mark.long]


@contextmanager
def _jvm(folder: Path, settings: dict[str, str]) -> Iterator[Jvm]:
    folder.mkdir()
    jvm = start_jvm(folder, settings)
    try:
        yield jvm
    finally:
        if jvm.is_alive:
            jvm.kill()


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=[pytest.mark.cell("delta")] * (end == "Delta")) for end in ENDS]
)
def test_nothing_is_lost_or_doubled_by_two_jvms(
    end: str, tmp_path: Path, spark_settings: dict[str, str], record_property: Record
) -> None:
    """One of them ends, each time; and every event is found once, in the right session."""
    with ExitStack() as stack:
        servers, settings = None, spark_settings
        if end == "PostgreSQL":
            servers = stack.enter_context(running(tmp_path))
            settings = quick_settings(class_path(servers))
        jvms = [stack.enter_context(_jvm(tmp_path / name, settings)) for name in ("one", "other")]
        job = Job("sessions", "buckets", "HDFS", tmp_path / "job", servers, ENDS[end])
        segment, causes = Segment(job, Timeline(end)), Counter[str]()
        segment.feed(jvms[0])
        drivers = [start_driver(Life(job, jvm.address)) for jvm in jvms]

        def has_ended() -> bool:
            segment.feed(jvms[0])
            return not all(driver.look() for driver in drivers)

        for _ in range(ROUNDS):
            wait_for("an end", has_ended)
            for place, driver in enumerate(drivers):
                if not driver.look():
                    driver.wait()
                    failure = driver.failure or "no word"
                    causes[next((w for w in WORDS if w in failure), cause_of(failure))] += 1
                    drivers[place] = start_driver(Life(job, jvms[place].address))
        for driver in drivers:
            driver.kill()
        jvms[1].kill()  # or its query, whose driver is gone, would go on
        segment.end(jvms[0])
        last = start_driver(Life(job, jvms[0].address, "availableNow"))
        assert 0 == last.wait(), last.failure
        audit = segment.audit()

    record_property(FIGURES, f"two JVMs, {end}: {audit}; {dict(causes)}")
    assert audit.is_sound
    assert {*causes} <= {*WORDS}
