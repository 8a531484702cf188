"""A query that goes on from the state of another one, or from where a batch ended."""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import EventTimeGap, SessionkitError, SpecError, Storage
from sessionkit._engine.wire.packing import joined_packs
from sessionkit.errors import StateError
from sessionkit.spark import (
    Files,
    batch_counts,
    bootstrap,
    erase_key,
    migrate,
    read_erasures,
    read_seed,
    read_state,
    sessionize,
)
from sessionkit.spark._grouping import bucket_number, bucket_of_forms, key_forms
from sessionkit.spark._logs import OFFSETS
from sessionkit.spark._seeds import seed_among
from sessionkit.spark.checkpoints.reading import key_row
from sessionkit.state import DecimalType
from sessionkit.state._types import key_form
from sessionkit.testing import SessionDriver, StatefulDriver
from tests.support.session_specs import Reading, collecting, in_order
from tests.support.spark_settings import changed
from tests.support.stateful_specs import Amount, summing
from tests.support.streams import FileStream, with_gap

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
GAP, DELAY = timedelta(minutes=10), timedelta(minutes=20)


def minutes(*at: float) -> list[tuple[str, datetime, int]]:
    """Return an event of each of six keys at some minutes."""
    return [
        (f"key {key}", NOON + timedelta(minutes=minute, seconds=key), int(minute))
        for minute in at
        for key in range(6)
    ]


def table(events: list[tuple[str, datetime, int]]) -> pa.Table:
    keys, at, values = zip(*events, strict=True)
    instants = pa.array(at, pa.timestamp("us", tz="UTC"))
    return pa.table({"key": keys, "at": instants, "value": values, "number": values})


FILES = [minutes(0, 3, 5), minutes(9, 21, 30), minutes(31, 33, 55), minutes(80, 95), minutes(200)]
FIRST, SECOND = FILES[0] + FILES[1], FILES[2] + FILES[3]

LAST = [("the end", NOON + timedelta(days=1), 0)]
"""Closes the sessions of all other keys: Spark 3.5 can't read those that are open."""


def unread(rows: DataFrame, *, seed: Any) -> DataFrame:
    """Leave out what the old query has read."""
    return with_gap(seed.unread(rows))


def found_on_spark(stream: FileStream) -> list[Any]:
    """Return what closed and what is open, as lists of values."""
    closed = [tuple(row["values"]) for row in stream.rows()]
    return sorted(closed) + sorted(tuple(one.state.values) for one in stream.open())


def found_on_driver(driver: Any) -> list[Any]:
    """Return what closed and what is open, as lists of values."""
    closed = [tuple(row.result.values) for row in driver.take_rows()]
    return sorted(closed) + sorted(tuple(one.state.values) for one in driver.open_sessions())


CHANGES: dict[str, tuple[Any, Any]] = {
    "layout and order, with events that wait": (
        in_order(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(layout="pages")),
        collecting(EventTimeGap(GAP), watermark_delay=DELAY),
    ),
    "to pages, in time order, with another gap and delay and fewer buckets": (
        in_order(EventTimeGap(GAP), watermark_delay=DELAY),
        in_order(
            EventTimeGap(2 * GAP),
            watermark_delay=DELAY / 2,
            storage=Storage(layout="pages", bucket_count=2),
        ),
    ),
}


@pytest.mark.parametrize(
    ("name", "offsets"),
    [
        pytest.param("layout and order, with events that wait", "1", marks=pytest.mark.long),
        pytest.param(
            "to pages, in time order, with another gap and delay and fewer buckets",
            "2",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_sessions_go_on_under_other_rules(
    spark: SparkSession, tmp_path: Path, name: str, offsets: str
) -> None:
    """
    Carried over and restarted, the new query has the rows that a driver has with the same cut.

    It reads the same folder, without the files that the old query has read, and its watermark
    doesn't begin anew.
    """
    before, after = CHANGES[name]
    folder = tmp_path / "events here"
    old = FileStream(spark, before, tmp_path / "old", shape=with_gap, files=folder)
    old.put(table(FIRST))
    with changed(spark, {OFFSETS: offsets}):
        old.run()
    seed = migrate(old.checkpoint, before, after, str(tmp_path / "seed"), spark=spark)
    old.put(table(SECOND))
    shape = partial(unread, seed=read_seed(str(tmp_path / "seed"), spark=spark))
    new = FileStream(spark, after, tmp_path / "new", shape=shape, seed=seed, files=folder)
    new.run()
    new.put(table(FILES[4]))
    new.run()

    first = on_driver(SessionDriver(before), [FIRST])
    first.run_until_idle()
    closed = found_on_driver(first)[: len(old.rows())]
    moved = on_driver(first.migrate(after), [SECOND])
    moved.run_until_idle()
    assert closed == sorted(tuple(row["values"]) for row in old.rows())
    assert seed == read_seed(str(tmp_path / "seed"), spark=spark)
    assert first.watermark == seed.watermark
    assert found_on_driver(on_driver(moved, FILES[4:])) == found_on_spark(new)


def on_driver(driver: Any, files: list[Any]) -> Any:
    """Run files on a driver, a batch for each."""
    for events in files:
        for key, at, value in events:
            driver.add(key, at, Reading(value, GAP))
        driver.run_batch()
    return driver


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [("pages", "buckets"), ("buckets", "pages")])
def test_keys_go_on_in_another_layout(
    spark: SparkSession, tmp_path: Path, before: Any, after: Any
) -> None:
    """Keys in buckets become keys in pages, and the other way round."""
    old = FileStream(spark, summing(storage=Storage(layout=before)), tmp_path / "old")
    old.put(*map(table, FILES[:2]))
    old.run()
    spec = summing(storage=Storage(layout=after))
    seed = migrate(old.checkpoint, old.spec, spec, str(tmp_path / "seed"), spark=spark)
    elsewhere = partial(seed.unread, source=None)
    new = FileStream(spark, spec, tmp_path / "new", shape=elsewhere, seed=seed)
    new.put(table(FILES[2]))
    new.run()

    driver: Any = StatefulDriver(old.spec)
    for key, at, number in [event for file in FILES[:3] for event in file]:
        driver.add(key, at, Amount(number))
    driver.run_batch()
    assert driver.stored_keys() == sorted(
        read_state(new.checkpoint, spec, spark=spark), key=lambda one: one.key
    )


@pytest.mark.nightly
def test_a_batch_is_handed_over_to_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """
    Batch to T, a stream from T and one after `migrate` have the rows of one batch over everything.

    A row counts once where nobody filters: history that a stream reads again is late.
    """
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(bucket_count=4))
    until, history = NOON + timedelta(minutes=32), FILES[:3]
    first = FileStream(spark, spec, tmp_path / "first", shape=with_gap)
    first.put(*map(table, history))
    batch = first.batch()
    seed = bootstrap(batch, spec, until, str(tmp_path / "seed"))
    closed = sessionize(batch, spec, until=until).collect()
    assert 6 == len(closed)
    with_seed = attrs.evolve(first, seed=seed)
    sink = Files("parquet", first.folder / "out")
    counts = [batch_counts(one) for one in with_seed.run_to(sink).recentProgress]
    with_seed.run_to(sink)
    with pytest.raises(StateError, match="with 2 sources, .*the frame has 1\n\nHint: a seed"):
        first.run_to(sink)
    moved = migrate(first.checkpoint, spec, spec, str(tmp_path / "moved"), spark=spark)
    elsewhere = partial(unread, seed=moved)
    first.put(table(history[0]), table([*FILES[3], *LAST]))
    second = FileStream(
        spark, spec, tmp_path / "second", shape=elsewhere, seed=moved, files=first.source
    )
    more = second.run()

    whole = FileStream(spark, spec, tmp_path / "whole", shape=with_gap)
    whole.put(table([event for file in FILES[:4] for event in file] + LAST))
    once = sessionize(whole.batch(), spec).where(F.col("key") != LAST[0][0])
    assert sorted(tuple(row["values"]) for row in once.collect()) == sorted(
        tuple(row["values"]) for row in [*closed, *first.rows(), *second.rows()]
    )
    before = [event for file in history for event in file if event[1] < until]
    assert len(before) == sum(count.late for count in counts)
    assert len(history[0]) == sum(count.late for count in more)
    assert until == seed.until == moved.until
    with pytest.raises(SpecError, match="`seed` is for a stream"):
        sessionize(batch, spec, seed=seed)
    with pytest.raises(SpecError, match="`until` is for a batch"):
        sessionize(first.events(), spec, until=until)
    with pytest.raises(SpecError, match="`until` must be a datetime with a time zone"):
        sessionize(batch, spec, until=datetime(2026, 3, 8))  # noqa: DTZ001 (that is refused)
    with pytest.raises(SessionkitError, match="there is a seed at .* already"):
        bootstrap(batch, spec, until, str(tmp_path / "seed"))


def test_a_seed_is_known_by_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """A query has read them by the name that its seed gave the folder of its rows."""
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY)
    stream = FileStream(spark, spec, tmp_path, shape=with_gap)
    stream.put(table(FILES[0]))
    seed = bootstrap(stream.batch(), spec, NOON + timedelta(minutes=4), tmp_path / "rows" / "seed")
    others = [f"file:{tmp_path}/rows/of a user.parquet", f"file:{seed.path}/rows-of/a.parquet"]
    files = [path.as_uri() for path in Path(seed.path, seed.rows).glob("*.parquet")]
    assert files

    for named in (seed.rows, "rows"):
        read = [others, [path.replace(seed.rows, named) for path in files]]
        found = seed_among(read, spark)
        assert found is not None
        assert (seed.rows, seed.until) == (found.rows, found.until)
    assert seed_among([others], spark) is None


def test_what_a_killed_call_has_left_is_no_second_seed(spark: SparkSession, tmp_path: Path) -> None:
    """The end of a job takes the files of every task below `_temporary` of its folder."""
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY)
    stream = FileStream(spark, spec, tmp_path, shape=with_gap)
    stream.put(table(FILES[0]))
    left = tmp_path / "seed" / "about" / "_temporary" / "0" / "task_1_0000_m_0"
    left.mkdir(parents=True)
    (left / "part-00000-of-a-killed-call.txt").write_text("{}")
    with pytest.raises(SessionkitError, match="there is no seed"):
        read_seed(tmp_path / "seed", spark=spark)

    seed = bootstrap(stream.batch(), spec, NOON + timedelta(minutes=4), tmp_path / "seed")
    assert seed == read_seed(tmp_path / "seed", spark=spark)


def test_a_stream_that_may_have_what_the_seed_has_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A source that isn't told to leave out what was read is refused, beside one that is, too."""
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY)
    old = FileStream(spark, spec, tmp_path / "old", shape=with_gap)
    old.put(table(FILES[0]))
    old.run()
    seed = migrate(old.checkpoint, spec, spec, str(tmp_path / "seed"), spark=spark)
    raw = spark.readStream.schema(old.schema).parquet(str(old.source))
    keys = spark.createDataFrame([("key 0", "a key")], "key string, name string")

    for rows in (
        raw,
        raw.union(seed.unread(raw)),
        raw.join(keys, "key"),
        seed.unread(raw).union(raw),
    ):
        with pytest.raises(SpecError, match="the seed has them already\n\nHint: .*seed.unread"):
            sessionize(with_gap(rows), spec, seed=seed)
    for rows in (
        seed.unread(raw).join(keys, "key"),
        seed.unread(raw).union(seed.unread(raw, None)),
    ):
        assert sessionize(with_gap(rows), spec, seed=seed).isStreaming
    rate = spark.readStream.format("rate").load()
    with pytest.raises(SessionkitError, match="the rows don't say from which file they are"):
        seed.unread(rate)
    with pytest.raises(SessionkitError, match="the old query had 1 sources, and `source` is 1"):
        seed.unread(raw, 1)


@pytest.mark.long
def test_a_query_that_finished_nothing_is_not_carried_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What it began with is in its seed, but for keys that it was asked to erase."""
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(bucket_count=1))
    plain = FileStream(spark, spec, tmp_path / "plain", shape=with_gap)
    plain.put(table(FILES[0]))
    plain.run()
    handed = bootstrap(plain.batch(), spec, NOON + timedelta(minutes=4), str(tmp_path / "handed"))
    moved = migrate(plain.checkpoint, spec, spec, str(tmp_path / "moved"), spark=spark)
    streams = [plain]
    for seed, shape in ((handed, with_gap), (moved, partial(unread, seed=moved))):
        folder = tmp_path / f"with {Path(seed.path).name}"
        streams.append(FileStream(spark, spec, folder, shape=shape, seed=seed))
        streams[-1].put(table(FILES[1]))
        streams[-1].run()
    read_erasures(moving := streams[-1].checkpoint, spec, spark=spark)

    for stream, said in zip(
        streams,
        (
            "no micro-batch\n\nHint: start the new query without a seed$",
            r"in the seed .*/handed with .*\n\nHint: .* with that seed; .* bootstrap again",
            r"in the seed .*/moved with .*\n\nHint: .* with that seed; .* migrate again",
        ),
        strict=True,
    ):
        shutil.rmtree(Path(stream.checkpoint) / "commits")
        with pytest.raises(SessionkitError, match=said):
            migrate(stream.checkpoint, spec, spec, str(tmp_path / "next"), spark=spark)
    erase_key(moving, spec, "key 0", spark=spark)
    with pytest.raises(SessionkitError, match="hasn't erased the keys .*\n\nHint: start it once"):
        migrate(moving, spec, spec, str(tmp_path / "next"), spark=spark)


@pytest.mark.nightly
def test_two_calls_at_once_do_not_mix_their_seeds(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the one that came first stay, and nobody takes one seed for the other."""
    if spark.conf.get("spark.master") == "local":
        pytest.skip("not run: this session has one core, and a task that waits has it")
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(bucket_count=4))
    stream = FileStream(spark, spec, tmp_path / "first", shape=with_gap)
    stream.put(table(FILES[0]))
    until, to, go_on = NOON + timedelta(minutes=6), tmp_path / "seed", tmp_path / "go on"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not go_on.exists():
            time.sleep(0.05)
        yield from batches

    batch = stream.batch()
    held = batch.where(F.col("key") == "key 0").mapInArrow(wait, batch.schema)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(bootstrap, held, spec, until, str(to))
        try:
            seed = bootstrap(batch, spec, until, str(to))
        finally:
            go_on.touch()
        with pytest.raises(SessionkitError, match="there are 2 seeds at .*calls at one moment"):
            late.result()
    rows = spark.read.parquet(f"{to}/{seed.rows}").where("_kept is not null").collect()
    kept = joined_packs(seed.format.kept, [bytes(row["_kept"]) for row in rows])
    assert 6 == kept.num_rows
    with pytest.raises(SessionkitError, match="there are 2 seeds"):
        read_seed(to, spark=spark)


@pytest.mark.nightly
def test_keys_that_the_old_query_was_to_erase_are_not_carried_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A request that was read, and whose file is still there, doesn't erase a second time."""
    spec = collecting(EventTimeGap(GAP), watermark_delay=DELAY, storage=Storage(bucket_count=2))
    stream = FileStream(spark, spec, tmp_path, shape=with_gap, erases=True)
    stream.put(table(FILES[0]))
    stream.run()
    erase_key(stream.checkpoint, spec, "key 0", spark=spark)
    stream.put(table(FILES[0]))
    stream.run()
    erase_key(stream.checkpoint, spec, "key 1", spark=spark)
    assert 2 == len(list(Path(stream.checkpoint, "erasures").glob("*.parquet")))

    seed = migrate(stream.checkpoint, spec, spec, str(tmp_path / "seed"), spark=spark)

    rows = spark.read.parquet(f"{seed.path}/{seed.rows}").where("_kept is not null").collect()
    kept = joined_packs(seed.format.kept, [bytes(row["_kept"]) for row in rows])
    assert ["key 0", "key 2", "key 3", "key 4", "key 5"] == sorted(kept["key.key"].to_pylist())


def test_what_can_not_be_carried_over_is_refused() -> None:
    """Each difference that stands in the way is named."""
    old = collecting(EventTimeGap(GAP))
    exclusive = EventTimeGap(GAP, gap_inclusive=False)
    new = attrs.evolve(old, keys={"other": str}, storage=Storage(version=2), timeout=exclusive)

    with pytest.raises(StateError) as refused:
        migrate("nowhere", old, new, "nowhere")

    assert "`gap_inclusive` is False in the spec, True in the checkpoint" in str(refused.value)
    assert "`state_version` is 2 in the spec, 1 in the checkpoint" in str(refused.value)
    assert "the key columns were key, and are other" in str(refused.value)


def test_a_key_is_in_the_bucket_that_spark_gives_it(spark: SparkSession) -> None:
    """For keys of every type, the forms of a stored key hash as the columns of an event do."""
    values: Any = {
        "text": (str, "ä"),
        "number": (int, -7),
        "yes": (bool, True),
        "raw": (bytes, b"\x00\xff"),
        "day": (date, date(2026, 3, 8)),
        "at": (datetime, NOON),
        "money": (Annotated[Decimal, DecimalType(12, 2)], Decimal("-10.50")),
    }
    kinds = {name: kind for name, (kind, _) in values.items()}
    spec = collecting(EventTimeGap(GAP), storage=Storage(bucket_count=10_007))
    spec = attrs.evolve(spec, keys=kinds)
    key = tuple(value for _, value in values.values())
    schema = "text string, number int, yes boolean, raw binary, day date, at timestamp, "
    events = spark.createDataFrame([key], schema + "money decimal(9,2)")
    forms = [form[0].as_py() for form in key_forms(spec, key_row(spec, key))]
    columns = [
        F.lit(bytearray(form) if isinstance(form, bytes) else form).cast(key_form(field.type).sql)
        for field, form in zip(spec.key_fields, forms, strict=True)
    ]

    row = events.select(
        bucket_number(spec, 10_007), bucket_of_forms(spec, columns, 10_007)
    ).collect()[0]

    assert row[0] == row[1]
