"""A stream of keys to erase, next to the events."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import SchemaError, SessionkitError, SpecError, Storage
from sessionkit.__main__ import main
from sessionkit.spark import batch_counts, erase_key, sessionize
from sessionkit.spark._logs import progress_of
from sessionkit.spark.checkpoints.erasing import unread_erasures
from tests.support.nothing_there import NothingThere
from tests.support.streams import FileStream
from tests.support.visits import NOON, SESSIONS

SPEC = attrs.evolve(SESSIONS, keys={"user": str, "day": date}, storage=Storage(bucket_count=2))
IN_PAGES = attrs.evolve(SPEC, storage=Storage(layout="pages", bucket_count=2))
DAY = date(2026, 3, 8)


def views(*rows: tuple[str, float]) -> pa.Table:
    """Return page views: the user, and how many minutes after noon."""
    users, minutes = zip(*rows, strict=True)
    at = [NOON + timedelta(minutes=one) for one in minutes]
    columns = {"user": users, "day": [DAY] * len(rows), "url": ["/"] * len(rows)}
    return pa.table({**columns, "at": pa.array(at, pa.timestamp("us", "UTC"))})


@pytest.mark.parametrize("name", ["SPEC", pytest.param("IN_PAGES", marks=pytest.mark.long)])
def test_a_query_erases_the_keys_that_the_command_line_asks_for(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the first micro-batch after; the watermark stays, and moves on with events alone."""
    stream = FileStream(spark, globals()[name], tmp_path, with_rejected=True, erases=True)
    stream.put(views(("ann", 0), ("bob", 1)), views(("ann", 20)))
    stream.run()
    before = progress_of(stream.checkpoint, spark).watermark_ms
    command = [stream.checkpoint, "--spec", f"{__name__}:{name}", "--key"]

    assert 0 == main(["erase", *command, "ann", "2026-03-08"])
    assert 1 == main(["erase", *command, "ann"])
    (erasing,) = stream.progress()

    counts = batch_counts(erasing)
    assert (0, 1, 1) == (counts.events, counts.erasures, counts.erased_states)
    assert before == progress_of(stream.checkpoint, spark).watermark_ms
    assert ["bob"] == [one.key.user for one in stream.open()]
    stream.put(views(("ann", 21), ("bob", 90)))
    stream.run()
    assert {("erased", "ann", None), ("session", "bob", 1), ("session", "ann", 1)} == {
        (row["kind"], row["user"], row["views"]) for row in stream.rows()
    }
    assert not list(Path(stream.checkpoint, "erasures").glob("*.parquet"))
    assert "a key has the columns user, day" in capsys.readouterr().err


def test_a_checkpoint_without_requests_has_none_to_carry_over() -> None:
    """On Connect too, where a frame of a path that isn't there comes without an error."""
    nowhere: Any = NothingThere()

    assert 0 == unread_erasures("nowhere", SPEC, (), nowhere).num_rows


def test_what_cannot_be_erased_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Keys come as a stream, next to a stream, in columns of the key, without a watermark."""
    stream = FileStream(spark, SPEC, tmp_path)
    stream.put(views(("ann", 0)))
    events, batch = stream.events(), stream.batch()

    with pytest.raises(SpecError, match="`erase` is a batch"):
        sessionize(events, SPEC, erase=batch)
    with pytest.raises(SpecError, match="`events` is a batch"):
        sessionize(batch, SPEC, erase=events)
    with pytest.raises(SchemaError, match="`day` .key.day. is missing"):
        sessionize(events, SPEC, erase=events.select("user"))
    with pytest.raises(SchemaError, match="already declared"):
        sessionize(events, SPEC, erase=events.withWatermark("at", "1 minute"))
    with pytest.raises(SessionkitError, match="reads no erasures"):
        erase_key(str(tmp_path), SPEC, ("ann", DAY), spark=spark)
