"""Deduplication with Spark's own operators: one definition for streams and batches."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import attrs
from attrs.validators import optional
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import WindowSpec

from sessionkit._arguments import column_name, columns_named, explains
from sessionkit._instants import Duration, duration_text, span_us
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._columns import check_key_and_time, column, no_frame_yet
from sessionkit.spark._content import check_compared, in_order
from sessionkit.spark._plan import plan_of
from sessionkit.spark.watermarks import Watermark, declare_watermark, declared_watermarks
from sessionkit.spec.base import whole_milliseconds

__all__ = [
    "drop_duplicates_by_key",
    "drop_duplicates_by_key_and_time",
    "drop_duplicates_within",
]

Expiry: TypeAlias = Literal["never", "event_time", "first_event_and_delay"]
"""
When a stream forgets a key: never, or at a watermark, in event time.

`"event_time"`: at the event time of the key. `"first_event_and_delay"`: at the event time of the
key's first row, plus the delay.
"""

STATE_SIZE: Final = (
    "one row for each key, forever: about 220 bytes for a 36-character key in Spark's default "
    "store (measured on Spark 4.3), so a million new keys a day add 220 MB a day"
)


@explains
def drop_duplicates_by_key(
    keys: str | Sequence[str], *, event_time: str | None = None, unbounded_state: bool = False
) -> "Deduplication":
    """
    Define a deduplication: one row for each key, however long ago the first one arrived.

    A stream keeps every key that it has ever seen, so you must ask for unbounded state.

    Example:
        from sessionkit.spark.dedup import drop_duplicates_by_key

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        first = drop_duplicates_by_key("user", event_time="ts", unbounded_state=True)
        assert {row.page for row in first.apply(views).collect()} == {"/shoes", "/hats"}

    Args:
        keys: The key columns. Null is a value like any other: rows with null keys are duplicates.
        event_time: For a batch: the column with the event time.
        unbounded_state: Must be True: the state of a stream grows with the number of keys.

    Returns:
        A `Deduplication`. `apply(frame)` returns the unique rows of a stream or a batch, with the
        columns of the frame. A stream keeps the row that arrives first. A batch keeps the earliest
        by `event_time`; of several, or without `event_time`, the least row: values are compared
        column by column, in the order of the frame's columns, and null is the least.

    Raises:
        SpecError: `unbounded_state` isn't True, or `keys` names no column.
    """
    if unbounded_state is not True:
        found = f"without an event time, a stream must keep {STATE_SIZE}"
        hint = "use drop_duplicates_within or drop_duplicates_by_key_and_time, whose state a "
        raise SpecError(found, f"{hint}watermark bounds, or confirm with unbounded_state=True")
    return Deduplication(_names(keys), event_time, None, "never")


@explains
def drop_duplicates_by_key_and_time(
    keys: str | Sequence[str], *, event_time: str, watermark_delay: Duration
) -> "Deduplication":
    """
    Define a deduplication: one row for each key and event time.

    Use it for repeats with the event time of the original.

    A stream drops a key from its state when the watermark reaches its event time: repeats that
    arrive later are dropped as late.

    Example:
        from sessionkit.spark.dedup import drop_duplicates_by_key_and_time

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        once = drop_duplicates_by_key_and_time("user", event_time="ts", watermark_delay="10m")
        unique = once.apply(views.union(views))
        assert unique.count() == 5

    Args:
        keys: The key columns, without the event time. Null is a value like any other.
        event_time: The event time. A row without one never leaves the state: filter such rows out
            first, with `where`.
        watermark_delay: How late a repeat may arrive, in event time.

    Returns:
        A `Deduplication`. `apply(frame)` returns the unique rows of a stream or a batch, with the
        columns of the frame. Of rows with one key and time, a stream keeps the one that arrives
        first. A batch keeps the least row, as `drop_duplicates_by_key` compares them.

    Raises:
        SpecError: The delay isn't a duration, is zero or not in whole milliseconds, or `keys` names
            no column.
    """
    span = whole_milliseconds(watermark_delay, "watermark_delay")
    return Deduplication(_names(keys), event_time, span, "event_time")


@explains
def drop_duplicates_within(
    watermark_delay: Duration, *, keys: str | Sequence[str], event_time: str
) -> "Deduplication":
    """
    Define a deduplication: one row for each key within a span of event time.

    Use it for repeats whose event times differ. A stream keeps a key until the watermark reaches
    the event time of the key's first row plus the delay, and drops every row of the key until then.
    So it drops repeats at least for the delay, and often for longer. A batch keeps the first row of
    each key, and then each row that is later than the last kept row by more than the delay. The
    event time may be a key.

    Example:
        from sessionkit.spark.dedup import drop_duplicates_within

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        once_an_hour = drop_duplicates_within("1 hour", keys=["user", "page"], event_time="ts")
        unique = once_an_hour.apply(views.union(views))
        assert unique.count() == 5

    Args:
        watermark_delay: Both the time within which a key is unique, and the watermark delay.
        keys: The key columns. Null is a value like any other.
        event_time: The event time. A row without one keeps its key in state only until the next
            micro-batch with a watermark.

    Returns:
        A `Deduplication`. `apply(frame)` returns the unique rows of a stream or a batch, with the
        columns of the frame. Of rows with one key and time, a batch takes the least row first, as
        `drop_duplicates_by_key` compares them.

    Raises:
        SpecError: The delay isn't a duration, is zero or not in whole milliseconds, or `keys` names
            no column.
    """
    span = whole_milliseconds(watermark_delay, "watermark_delay")
    return Deduplication(_names(keys), event_time, span, "first_event_and_delay")


@attrs.frozen
class Deduplication:
    """
    A definition of unique rows, for any number of frames. The functions of this module create it.

    Attributes:
        keys: The key columns.
        event_time: The event-time column.
        watermark_delay: The watermark delay; None if no watermark bounds the state.
        expiry: When a stream forgets a key.
    """

    keys: tuple[str, ...]
    event_time: str | None = attrs.field(validator=optional(column_name))
    watermark_delay: timedelta | None
    expiry: Expiry

    if not TYPE_CHECKING:  # a type checker reports a missing attribute itself
        __getattr__ = no_frame_yet("`Deduplication`", "write .apply(frame) for the unique rows")

    def apply(self, frame: DataFrame) -> DataFrame:
        """
        Return the unique rows of a stream or a batch, with the columns of the frame.

        A stream keeps the row that arrives first; of rows in one micro-batch, any. A frame without
        a watermark gets one; an existing watermark must have the same column and delay. Rows whose
        event time is `<=` the watermark are dropped as late.

        Among equal rows, a batch keeps the row with the earliest event time, then the least row,
        compared column by column. Under `drop_duplicates_within`, it keeps the first row of each
        key, and each row more than the delay after the last kept row. A stream may keep fewer rows
        of a key that returns after the delay. Rows without an event time form a group of their own.

        Raises:
            SchemaError: A column is missing, a key is a float or a type that Spark doesn't compare,
                the event time isn't a timestamp, or the frame has a different watermark.
            SpecError: The frame is an aggregation, and carries no watermark.
        """
        check_key_and_time(frame, self.event_time, self.keys)
        for name in self.keys:
            kind = frame.schema[name].dataType
            if _has_float(kind):
                found = f"the key `{name}` is a {kind.simpleString()}: equal floats may differ"
                raise SchemaError(found, "cast it to decimal or string")
        check_compared(frame.schema, self.keys)
        within = self.expiry == "first_event_and_delay"
        if not frame.isStreaming:
            return self._of_batch(_apart if within else _earliest, frame)
        watermarked = self._watermarked(frame)
        if within:
            return watermarked.dropDuplicatesWithinWatermark(list(self.keys))
        return watermarked.dropDuplicates(list(self.equal_by))

    def _of_batch(
        self, first: Callable[[DataFrame, "Deduplication"], DataFrame], frame: DataFrame
    ) -> DataFrame:
        """Return the first rows, under names by place: a frame may have a name twice."""
        places = {name: f"column_{place}" for place, name in enumerate(frame.columns)}
        names = [f"column_{place}" for place, _ in enumerate(frame.columns)]
        at = None if self.event_time is None else places[self.event_time]
        rule = attrs.evolve(self, keys=tuple(places[key] for key in self.keys), event_time=at)
        return first(frame.toDF(*names), rule).toDF(*frame.columns)

    @property
    def equal_by(self) -> tuple[str, ...]:
        """The columns by which Spark compares rows."""
        if self.expiry == "event_time" and self.event_time is not None:
            return tuple(dict.fromkeys((*self.keys, self.event_time)))
        return self.keys

    def _watermarked(self, frame: DataFrame) -> DataFrame:
        if self.event_time is None or self.watermark_delay is None:
            return frame
        declared = declared_watermarks(frame)
        if not declared:
            root = plan_of(frame)
            if root is not None and root.aggregates_stream:
                found = f"after an aggregation, a watermark on `{self.event_time}` lets no row out"
                hint = "add .with_window_time() to the windows, and take event_time='window_time' "
                hint += "with the delay of the watermark before"
                raise SpecError(found, hint)
            return declare_watermark(frame, self.event_time, self.watermark_delay)
        if Watermark(self.event_time, self.watermark_delay) in declared:
            return frame
        texts = ", ".join(f"`{w.event_time}` with {duration_text(w.delay)}" for w in declared)
        found = f"the frame has a watermark on {texts}, but this is defined on `{self.event_time}`"
        hint = "remove declare_watermark, or use the frame's column and delay in the definition"
        raise SchemaError(f"{found} with {duration_text(self.watermark_delay)}", hint)


def _has_float(kind: T.DataType) -> bool:
    match kind:
        case T.ArrayType():
            return _has_float(kind.elementType)
        case T.StructType():
            return any(_has_float(field.dataType) for field in kind.fields)
    return isinstance(kind, T.FractionalType) and not isinstance(kind, T.DecimalType)


def _names(keys: str | Sequence[str]) -> tuple[str, ...]:
    names = columns_named("keys", keys, "user")
    if not names:
        found = "`keys` names no column: rows are unique by a key"
        raise SpecError(found, "name the key columns: keys='id' or keys=('id', 'source')")
    return names


def _earliest(frame: DataFrame, rule: Deduplication) -> DataFrame:
    place = F.row_number().over(_group(rule.equal_by).orderBy(*_order(frame, rule.event_time)))
    row = F.struct(*map(column, frame.columns)).alias("row")
    return frame.select(row, place.alias("place")).where("place = 1").select("row.*")


def _apart(frame: DataFrame, rule: Deduplication) -> DataFrame:
    """
    Keep the first row of each key, and each row more than the delay after the last kept row.

    A row more than the delay after the previous row is kept in any case. So the rows from one such
    row to the next are a run of their own, and no array is longer than a run.
    """
    delay_us = F.lit(span_us(rule.watermark_delay or timedelta(0)))
    keys = [f"key_{place}" for place, _ in enumerate(rule.keys)]
    order = _order(frame, rule.event_time)
    rows = frame.select(
        *(column(name).alias(key) for name, key in zip(rule.keys, keys, strict=True)),
        F.unix_micros(column(rule.event_time or "")).alias("at"),
        F.row_number().over(_group(rule.keys).orderBy(*order)).alias("place"),
        F.struct(*map(column, frame.columns)).alias("row"),
    )
    in_order = _group(keys).orderBy("place")
    before = F.lag("at").over(in_order)
    # Rows without an event time come last within a key, as a run of their own.
    begins = F.coalesce(F.col("at") - before > delay_us, before.isNotNull()).cast("int")
    numbered = rows.withColumn("begins", begins)
    runs = numbered.withColumn("run", F.sum("begins").over(in_order)).groupBy(*keys, "run")
    # Compared by place alone: the rows may contain values without an order.
    sorted_rows = F.array_sort(
        F.collect_list(F.struct("place", "at", "row")),
        lambda left, right: left["place"] - right["place"],
    )

    def keep(kept: Column, row: Column) -> Column:
        is_new = row["at"] > F.element_at(kept, -1)["at"] + delay_us
        return F.when(is_new, F.concat(kept, F.array(row))).otherwise(kept)

    kept = F.aggregate("rows", F.slice("rows", 1, 1), keep)
    rows = runs.agg(sorted_rows.alias("rows")).select(F.explode(kept).alias("kept"))
    return rows.select("kept.row.*")


def _group(names: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*map(column, names))


def _order(frame: DataFrame, event_time: str | None) -> list[Column]:
    """Return the order of rows: by event time, nulls last, then by content."""
    times = [] if event_time is None else [column(event_time).asc_nulls_last()]
    contents = [in_order(field.dataType, column(field.name)) for field in frame.schema.fields]
    return [*times, *(content.asc() for content in contents)]
