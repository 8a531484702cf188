"""`python -m sessionkit`: what it prints on a checkpoint, and on anything else."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import (
    EventTimeGap,
    Inputs,
    KeyState,
    KeyTimes,
    Lateness,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit.__main__ import main
from sessionkit.spark._logs import Progress
from sessionkit.spark.checkpoints import inspecting
from sessionkit.testing import SessionDriver, hours
from tests.support.streams import FileStream
from tests.support.visits import NOON, View, views


@attrs.define
class Views:
    n: int = 0

    def update(self, event: View) -> None:
        self.n += 1

    def merge(self, other: "Views") -> None:
        self.n += other.n


VISITS: SessionSpec[View, Views, Views] = SessionSpec.of(
    Views,
    keys={"user": str},
    event_time="at",
    gap="30 minutes",
    watermark_delay="1 hour",
    storage=Storage(bucket_count=4),
)
LONGER = attrs.evolve(VISITS, timeout=EventTimeGap("2 hours"))


def process(key: Any, events: list[View], state: KeyState[Views], times: KeyTimes) -> None:
    state.set(Views(state.get(Views()).n + len(events)))
    times.set_event_timer("later", NOON + timedelta(hours=3))


def on_timer(key: Any, name: str, state: KeyState[Views], times: KeyTimes) -> Views:
    return state.get(Views())


USERS: StatefulSpec[View, Views, Views] = StatefulSpec(
    keys={"user": str},
    event_time="at",
    process=process,
    on_timer=on_timer,
    timeout=EventTimeGap("4 hours"),
    watermark_delay="1 hour",
)


def printed(capsys: Any, *arguments: str, code: int = 0) -> str:
    """Run a command, and return what it prints."""
    assert code == main(arguments)
    found = capsys.readouterr()
    text: str = found.err if code else found.out
    return text


def spec(name: str) -> str:
    """Return how the command line names a spec of this file."""
    return f"tests.spark.checkpoints.test_inspecting:{name}"


def test_the_command_says_what_is_stored_of_sessions(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    """How far the query came, what runs again, what is stored, and why a session is open."""
    stream = FileStream(spark, VISITS, tmp_path)
    stream.put(views(("ann", 0), ("bob", 5), ("ann", 20)), views(("cyd", 70)))
    stream.run()
    offsets = Path(stream.checkpoint, "offsets")
    shutil.copy(offsets / "2", offsets / "3")

    text = printed(capsys, "inspect", stream.checkpoint, "--spec", spec("VISITS"))

    assert f"checkpoint  {stream.checkpoint}\n" in text
    assert "finished    batch 2\nruns again  batch 3\n" in text
    assert "watermark   2026-03-08 12:10:00Z, in force next\n" in text
    assert 'source 0    {"logOffset":1}, 2 files\n' in text
    assert "stored      3 open sessions, 0 events that wait\n" in text
    assert " in 1 of 4 buckets\n            bucket 3: " in text
    assert "kept\n" in text
    assert "the spec    may go on from here\n" in text
    assert "damaged" not in text
    text = printed(capsys, "inspect", stream.checkpoint, "--spec", spec("LONGER"))
    assert "the spec    is refused: the checkpoint" in text
    assert "`gap` is 2 hours in the spec, 30 minutes in the checkpoint" in text
    ann = printed(capsys, "sessions", stream.checkpoint, "--spec", spec("VISITS"), "--key", "ann")
    assert "  events    2 from 2026-03-08 12:00:00Z\n  state     Views(n=2)\n" in ann
    over = "it is over at 2026-03-08 12:50:00Z, by `gap`: no event for 30 minutes"
    assert f"  open      {over}; an event at 2026-03-08 13:50:00Z lets it close\n" in ann
    dan = printed(capsys, "sessions", stream.checkpoint, "--spec", spec("VISITS"), "--key", "dan")
    assert "no session of this key is open\n" in dan


@pytest.mark.parametrize(
    "options",
    [
        {"inputs": Inputs(drop_duplicates_for="2 days")},
        pytest.param({"lateness": Lateness(allowed="2 days")}, marks=pytest.mark.nightly),
        pytest.param(
            {"lateness": Lateness(allowed="2 days"), "storage": Storage(layout="pages")},
            marks=pytest.mark.long,
        ),
    ],
)
def test_closed_sessions_are_not_called_open(
    spark: SparkSession, tmp_path: Path, capsys: Any, options: dict[str, Any]
) -> None:
    """What is only remembered of a session that has closed is counted apart."""
    stream = FileStream(spark, attrs.evolve(VISITS, **options), tmp_path)
    stream.put(views(("ann", 0), ("bob", 5)), views(("cyd", 200)), views(("dan", 210)))
    stream.run()

    text = printed(capsys, "inspect", stream.checkpoint)

    said = "2 open sessions, 2 closed ones that are remembered, 0 events that wait"
    assert f"stored      {said}\n" in text


CUT = SessionRules("30 minutes", max_events=1, close_idle_after="5 minutes")


@pytest.mark.parametrize(
    ("watermark", "said"),
    [
        (
            NOON - hours(1),
            (
                "it is over at 2026-03-08 12:00:00Z, by `max_events`: it has 1 event; "
                "an event at 2026-03-08 13:00:00Z lets it close; or it closes by `idle`, once "
                "nothing has moved the watermark for 5 minutes of processing time"
            ),
        ),
        (
            NOON,
            (
                "it was over at 2026-03-08 12:00:00Z, by `max_events`: it has 1 event; "
                "the next micro-batch closes it"
            ),
        ),
    ],
)
def test_a_session_is_open_until_its_rule(watermark: datetime, said: str) -> None:
    """Not until its end by the gap; an idle source closes it too."""
    spec = attrs.evolve(VISITS, timeout=CUT, order="event_time")
    driver = SessionDriver(spec, processing_time=NOON)
    driver.add("ann", NOON, View("/"))
    driver.run_batch()
    (session,) = driver.open_sessions()
    progress = Progress(0, None, int(watermark.timestamp() * 1_000), (), ())
    assert said == inspecting._why_open(session, spec, progress)


def test_the_command_counts_keys_and_lists_timers(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    """Keys are counted, and the timers of one key are listed."""
    stream = FileStream(spark, USERS, tmp_path)
    stream.put(views(("ann", 0), ("bob", 5), ("ann", 20)))
    stream.run()

    text = printed(capsys, "inspect", stream.checkpoint)
    ann = printed(capsys, "sessions", stream.checkpoint, "--spec", spec("USERS"), "--key", "ann")

    assert "stored      2 keys, 0 events that wait\n" in text
    assert " of 8 buckets\n" in text
    assert "state       Views(n=2)\ntimer later 2026-03-08 15:00:00Z, event_time\n" in ann


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "/nowhere"], "there is no checkpoint at /nowhere"),
        (["inspect", "/nowhere", "--spec", "tests:NOTHING"], "there is no spec `tests:NOTHING`"),
    ],
)
def test_what_can_not_be_inspected_is_said(
    spark: SparkSession, capsys: Any, arguments: list[str], said: str
) -> None:
    """The message goes to the standard error, and the exit code is 1."""
    assert said in printed(capsys, *arguments, code=1)
