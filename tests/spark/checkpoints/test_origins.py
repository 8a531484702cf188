"""State that knows its query: what another run has stored isn't read, and a whole copy is."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, Functions, SessionSpec, Storage
from tests.support.streams import FileStream

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
USERS = [f"user {number}" for number in range(40)]


@attrs.frozen
class View:
    number: int


@attrs.define
class Views:
    views: int = 0


def count(state: Views, event: View) -> None:
    state.views += event.number


def merge(left: Views, right: Views) -> Views:
    return Views(left.views + right.views)


def spec_of(layout: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec(
        keys={"user": str},
        event_time="at",
        logic=Functions(update=count, merge=merge),
        timeout=EventTimeGap("30m"),
        watermark_delay="10m",
        storage=Storage(bucket_count=8, layout=layout),
    )


def views(minute: int) -> pa.Table:
    times = [NOON + timedelta(minutes=minute)] * len(USERS)
    at = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"user": USERS, "at": at, "number": [1] * len(USERS)})


def begun(spark: SparkSession, spec: Any, folder: Path) -> FileStream:
    """Return a stopped query after two micro-batches."""
    stream = FileStream(spark, spec, folder)
    stream.put(views(0), views(1))
    stream.run()
    return stream


@pytest.mark.parametrize("layout", ["buckets", pytest.param("pages", marks=pytest.mark.long)])
def test_the_state_of_another_run_does_not_start_and_a_whole_copy_does(
    spark: SparkSession, layout: str, tmp_path: Path
) -> None:
    """
    Neither a partition nor all of it, though spec, buckets and micro-batches are the same.

    A whole copy has the id of its query, so two versions of a job run side by side.
    """
    one, other = (begun(spark, spec_of(layout), tmp_path / name) for name in ("one", "other"))
    for part in ("0/1", "0", "whole"):
        copy = attrs.evolve(one, folder=tmp_path / f"other_{part[-1]}", files=one.source)
        shutil.copytree(one.checkpoint, copy.checkpoint)
        if part == "whole":
            break
        shutil.rmtree(f"{copy.checkpoint}/state/{part}")
        shutil.copytree(f"{other.checkpoint}/state/{part}", f"{copy.checkpoint}/state/{part}")
        one.put(views(2))
        with pytest.raises(Exception, match="belongs to another query"):
            copy.run()

    for stream in (one, copy):
        stream.run()
        assert [4] * len(USERS) == [session.state.views for session in stream.open()]
