"""Windowed aggregation with Spark's own operators, checked before Spark runs."""

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._arguments import column_name, columns_named, explains, one_of
from sessionkit._instants import Duration, duration_of, duration_text, span_us
from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import check_key_and_time, column, no_frame_yet
from sessionkit.spark._content import check_compared
from sessionkit.spark._plan import plan_of
from sessionkit.spark.sinks import OutputMode
from sessionkit.spark.watermarks import declare_watermark, declared_watermarks
from sessionkit.spec.base import whole_milliseconds

__all__ = [
    "session",
    "sliding",
    "tumbling",
]

Expression: TypeAlias = str | Column  # a Column needs a Spark session
NOTHING: Final = timedelta(0)
WINDOW_COLUMNS: Final = ("window_start", "window_end", "window_time")
RESERVED: Final = {"window", *WINDOW_COLUMNS}


# No equality for a class that may hold a Column: comparing two Columns makes a third.
@attrs.frozen(eq=False)
class WindowShape:
    """The shape of windows; `length` is the gap of sessions without a dynamic gap."""

    kind: Literal["tumbling", "sliding", "session"]
    event_time: str = attrs.field(validator=column_name)
    length: timedelta = NOTHING
    every: timedelta = NOTHING
    start_time: timedelta = NOTHING
    dynamic_gap: Expression | None = None

    def window(self) -> Column:
        time, spans = column(self.event_time), (self.length, self.every, self.start_time)
        # All of Spark's parsers read only this spelling alike.
        length, every, start_time = (f"{span_us(span)} microseconds" for span in spans)
        if self.kind != "session":
            return F.window(time, length, every, start_time)
        gap = length if self.dynamic_gap is None else _expression(self.dynamic_gap)
        return F.session_window(time, gap)

    def rejection(self) -> Column:
        """Return why a row falls into no window, by the same test as Spark's filter."""
        time = column(self.event_time)
        reason = F.when(time.isNull(), F.lit(f"`{self.event_time}` is null"))
        if self.dynamic_gap is None:
            return reason
        end = time + _expression(self.dynamic_gap).cast("interval")
        unreadable = F.lit("the gap is null, or an interval that Spark can't parse")
        not_positive = F.lit("the gap is zero or negative")
        return reason.when(end.isNull(), unreadable).when(end <= time, not_positive)


def _expression(value: Expression) -> Column:
    return F.expr(value) if isinstance(value, str) else value


@explains
def tumbling(
    length: Duration,
    *,
    event_time: str,
    keys: str | Sequence[str] = (),
    watermark_delay: Duration | None = None,
    start_time: Duration = NOTHING,
) -> "Windows":
    """
    Define windows of one length that don't overlap: each row falls into exactly one.

    They are aligned to 1970-01-01 00:00 UTC, whatever the session's time zone is.

    Example:
        from sessionkit.spark.windows import tumbling

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        by_hour = tumbling("1 hour", event_time="ts", keys="page", watermark_delay="10 minutes")
        found = by_hour.agg(n="count(*)").apply(views)
        assert found.columns == ["page", "window_start", "window_end", "n"]

    Args:
        length: The length of a window. A day is 24 hours; months and years have no fixed length.
        event_time: The event-time column, a timestamp.
        keys: The key columns: each key has windows of its own; none for windows over all rows. Add
            a computed key first, with `withColumn`.
        watermark_delay: How far a row may trail the latest event time, in whole milliseconds.
            Leave it out for a batch, and for a stream that already has a watermark.
        start_time: How long after 00:00 UTC windows start, less than their length: with `"5
            hours"`, one-day windows start at 05:00 UTC.

    Returns:
        A `Windows`. `agg(n="count(*)")` takes aggregates as SQL text or Columns and returns a
        definition. Its `apply(frame)` returns a row for each key and window: the keys,
        `window_start`, `window_end` (exclusive) and the aggregates. Its `rejected(frame)` returns
        the rows that fall into no window, with a `reason`.

    Raises:
        SpecError: A duration can't be parsed, `start_time` is not less than the length, the delay
            is zero or not in whole milliseconds, or a key isn't a name, appears twice, or is a
            column of the window.
    """
    span = duration_of(length, "length")
    shift = _shift(start_time, span, "length")
    return _windows(WindowShape("tumbling", event_time, span, span, shift), keys, watermark_delay)


@explains
def sliding(
    length: Duration,
    *,
    every: Duration,
    event_time: str,
    keys: str | Sequence[str] = (),
    watermark_delay: Duration | None = None,
    start_time: Duration = NOTHING,
) -> "Windows":
    """
    Define windows of one length that overlap: a row falls into every window that covers it.

    Windows are aligned as with `tumbling`. Each row counts `length / every` times, and the state is
    that many times larger than with `tumbling`. If the division leaves a remainder, some rows count
    once more than others.

    Example:
        from sessionkit.spark.windows import sliding

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        busy = sliding("1 hour", every="10 minutes", event_time="ts", watermark_delay="5 minutes")
        found = busy.agg(n="count(*)").apply(views)
        assert found.selectExpr("max(n)").first()[0] == 4

    Args:
        length: The length of a window.
        every: The time from the start of a window to the start of the next, at most its length.
        event_time: The event-time column, a timestamp.
        keys: As for `tumbling`.
        watermark_delay: As for `tumbling`.
        start_time: How long after 00:00 UTC windows start, less than `every`.

    Returns:
        A `Windows`, as from `tumbling`.

    Raises:
        SpecError: As from `tumbling`; or `every` is longer than the windows.
    """
    span, step = duration_of(length, "length"), duration_of(every, "every")
    if step > span:
        found = f"`every` ({duration_text(step)}) must be at most the length, {duration_text(span)}"
        hint = "make the windows longer, or start them more often: each row must fall into one"
        raise SpecError(found, hint)
    shift = _shift(start_time, step, "every")
    return _windows(WindowShape("sliding", event_time, span, step, shift), keys, watermark_delay)


@explains
def session(
    gap: Duration | None = None,
    *,
    event_time: str,
    keys: str | Sequence[str] = (),
    watermark_delay: Duration | None = None,
    dynamic_gap: Expression | None = None,
) -> "Windows":
    """
    Define windows that last as long as rows of a key keep coming within the gap.

    A window ends one gap after its last row, and a row at exactly that time extends it. A stream
    needs a key, and can't run in update mode. For sessions with logic of your own, see
    `sessionkit.SessionSpec`.

    Example:
        from sessionkit.spark.windows import session

        # views: a stream or a batch with the columns user, ts (a timestamp) and page
        of_users = session("30m", event_time="ts", keys="user", watermark_delay="10 minutes")
        visits = of_users.agg(n="count(*)").apply(views)
        assert sorted(row.n for row in visits.collect()) == [1, 1, 3]

    Args:
        gap: One gap for all rows.
        event_time: The event-time column, a timestamp.
        keys: As for `tumbling`.
        watermark_delay: As for `tumbling`.
        dynamic_gap: Instead of `gap`, a gap for each row: SQL text or a Column that gives an
            interval, or text such as `'5 minutes'`; Spark reads `'5m'` as null. Rows whose gap is
            null, zero or negative belong to no window; `rejected` returns them.

    Returns:
        A `Windows`, as from `tumbling`; `window_end` is the last row's time plus the gap.

    Raises:
        SpecError: As from `tumbling`; or neither or both of the two gaps are given.
    """
    if (gap is None) == (dynamic_gap is None):
        hint = 'write session("30 minutes", event_time=...) for a fixed gap'
        raise SpecError("`session` takes either a gap or a dynamic_gap", hint)
    if gap is None:
        hint = "write dynamic_gap=\"CASE WHEN mobile THEN '5 minutes' ELSE '30 minutes' END\""
        _check_expression(dynamic_gap, "`dynamic_gap`", hint)
        shape = WindowShape("session", event_time, dynamic_gap=dynamic_gap)
    else:
        shape = WindowShape("session", event_time, duration_of(gap, "gap"))
    return _windows(shape, keys, watermark_delay)


def _windows(
    shape: "WindowShape", keys: str | Sequence[str], watermark_delay: Duration | None
) -> "Windows":
    names = columns_named("keys", keys, "user")
    _check_names(names)
    if watermark_delay is None:
        return Windows(shape, names)
    delay = whole_milliseconds(watermark_delay, "watermark_delay", zero_allowed=True)
    if not delay:
        found = "`watermark_delay` is zero: the latest event time is the watermark itself"
        hint = 'say how late rows may arrive; for a source in order, "1 millisecond"'
        raise SpecError(f"{found}, so any later row of that time is lost", hint)
    return Windows(shape, names, delay)


# No equality for a class that may hold a Column: comparing two Columns makes a third.
@attrs.frozen(eq=False)
class Windows:
    """Windows, from `tumbling`, `sliding` or `session`. `agg` turns them into an aggregation."""

    shape: WindowShape
    keys: tuple[str, ...] = ()
    watermark_delay: timedelta | None = None

    if not TYPE_CHECKING:  # a type checker reports a missing attribute itself
        __getattr__ = no_frame_yet("`Windows`", 'write .agg(n="count(*)").apply(frame)')

    @explains
    def agg(self, **aggregates: Expression) -> "WindowedAggregation":
        """
        Return the aggregation over each window and key.

        Args:
            aggregates: The aggregate of each output column: SQL text, such as `"count(*)"`, or a
                Column, such as `F.count("*")`, which classic PySpark makes only in a session.

        Raises:
            SpecError: No aggregate is given, one is neither text nor a Column, or a name is taken.
        """
        return WindowedAggregation(self, tuple(aggregates.items()))


@attrs.frozen(eq=False)
class WindowedAggregation:
    """A windowed aggregation for streams and batches, from `Windows.agg`; `mode` is for streams."""

    windows: Windows
    aggregates: tuple[tuple[str, Expression], ...]
    mode: OutputMode = "append"
    keeps_window_time: bool = False

    if not TYPE_CHECKING:  # a type checker reports a missing attribute itself
        __getattr__ = no_frame_yet("`WindowedAggregation`", "write .apply(frame) for its rows")

    def __attrs_post_init__(self) -> None:
        if not self.aggregates:
            raise SpecError("`agg` has no aggregate", 'write one, such as .agg(n="count(*)")')
        for name, value in self.aggregates:
            hint = f'write {name}="count(*)", or {name}=F.count("*") where a session is active'
            _check_expression(value, f"`agg`: `{name}`", hint)
        _check_names((*self.windows.keys, *(name for name, _ in self.aggregates)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The output columns: keys, window and aggregates."""
        window = WINDOW_COLUMNS if self.keeps_window_time else WINDOW_COLUMNS[:2]
        return (*self.windows.keys, *window, *(name for name, _ in self.aggregates))

    def output_mode(self, mode: OutputMode) -> "WindowedAggregation":
        """
        Return the definition for a stream in this output mode; batches have none.

        A frame doesn't carry its mode: start the query with `.outputMode(definition.mode)`.

        Args:
            mode: `append` writes each window once, when it closes; `update` writes every window
                that a micro-batch has changed; `complete` writes all windows in every micro-batch.

        Raises:
            SpecError: There is no such mode.
        """
        one_of(get_args(OutputMode), "mode", mode, "the default is 'append'")
        return attrs.evolve(self, mode=mode)

    def with_window_time(self) -> "WindowedAggregation":
        """
        Return the definition with the output column `window_time`, for windows over windows.

        It has the last microsecond of a window, and carries the watermark.
        """
        return attrs.evolve(self, keeps_window_time=True)

    def apply(self, frame: DataFrame) -> DataFrame:
        """
        Return the windows of a stream or a batch.

        The columns are the keys, `window_start` and `window_end` (event time; the end is
        exclusive), `window_time` if `with_window_time` was called, and the aggregates. A batch
        returns every window once. Rows that fall into no window are left out; see `rejected`.

        Args:
            frame: The input, with the key columns and the event time, a timestamp.

        Raises:
            SchemaError: A column is missing, the event time isn't a timestamp, Spark can't compare
                a key, or the stream has a different watermark.
            SpecError: A watermark is declared after an aggregation: Spark would run the query and
                return nothing.

        Warns:
            UserWarning: The stream would keep every window forever.
        """
        windows = self.windows
        check_key_and_time(frame, windows.shape.event_time, windows.keys)
        # From Spark 4.0 on, rows are grouped by a map too.
        check_compared(frame.schema, windows.keys, but="map")
        if frame.isStreaming:
            frame = self._watermarked(frame)
        groups = frame.groupBy(windows.shape.window().alias("window"), *map(column, windows.keys))
        result = groups.agg(*(_expression(value).alias(name) for name, value in self.aggregates))
        times = (F.col("window.start"), F.col("window.end"), F.window_time("window"))
        shown = {name: time.alias(name) for name, time in zip(WINDOW_COLUMNS, times, strict=True)}
        return result.select(*(shown.get(name, column(name)) for name in self.columns))

    def rejected(self, frame: DataFrame) -> DataFrame:
        """
        Return the rows of a stream or a batch that fall into no window, with a column `reason`.

        Spark silently drops rows without an event time, and rows whose dynamic gap is null,
        unreadable, zero or negative. Late rows are not included.

        Args:
            frame: The frame that you pass to `apply`.

        Raises:
            SchemaError: A column is missing, or the event time isn't a timestamp.
        """
        check_key_and_time(frame, self.windows.shape.event_time, self.windows.keys)
        reasoned = frame.select("*", self.windows.shape.rejection().alias("reason"))
        return reasoned.where("reason IS NOT NULL")

    def _watermarked(self, frame: DataFrame) -> DataFrame:
        event_time, delay = self.windows.shape.event_time, self.windows.watermark_delay
        declared = declared_watermarks(frame)
        existing = next((w.delay for w in declared if w.event_time == event_time), None)
        root = plan_of(frame)
        # Spark starts a query with a watermark after an aggregation, and closes no window.
        is_second = root is not None and root.aggregates_stream
        if root and is_second and (delay not in {None, existing} or root.is_watermarked_late):
            found = (
                f"a watermark is declared after an aggregation, for the windows over `{event_time}`"
            )
            why = "its watermark stays at 1970 and no window ever closes"
            hint = "declare it only before the first aggregation; use `window_time` after it"
            raise SpecError(f"{found}: {why}", hint)
        if self.mode == "complete" or (existing is None and delay is None):
            why = f"no watermark is declared on `{event_time}`"
            if self.mode == "complete":
                why = "mode 'complete' drops no window, with or without a watermark"
            found = f"{why}: the state grows by one row for each key and window, forever"
            hint = "use mode 'append' or 'update' with a watermark, or bound the keys and times"
            warnings.warn(with_hint(found, hint), stacklevel=3)
        if delay is None or delay == existing:
            return frame
        return declare_watermark(frame, event_time, delay)


def _shift(value: Duration, period: timedelta, name: str) -> timedelta:
    """Parse the offset of windows: less than the period at which they repeat."""
    shift = duration_of(value, "start_time", zero_allowed=True)
    if shift >= period:
        found = f"`start_time` must be less than `{name}`, found {duration_text(shift)}"
        raise SpecError(found, f"windows repeat every {duration_text(period)}")
    return shift


def _check_names(names: Sequence[str]) -> None:
    seen = set[str]()
    for name in names:
        if name.lower() in RESERVED:
            found = f"`{name}` is reserved for a column of the window"
            raise SpecError(found, "rename the column or the aggregate")
        if name.lower() in seen:
            found = f"two columns of the result would have the name `{name}`"
            raise SpecError(found, "name each key and each aggregate once")
        seen.add(name.lower())


def _check_expression(value: object, name: str, hint: str) -> None:
    # Not isinstance: on Spark 3.5, Spark Connect has a Column class of its own.
    is_column = callable(getattr(value, "alias", None))
    if not is_column and not (isinstance(value, str) and value.strip()):
        raise SpecError(f"{name} must be SQL text or a Column, found {value!r}", hint)
