"""
Windowed aggregation over Spark's own operators, its rules checked before Spark runs.

    counts = (
        sliding("10 minutes", every="5 minutes", on="ts")
        .by("word")
        .watermark("10 minutes")
        .agg(n="count(*)")
        .output_mode("append")
    )
    frame = counts.apply(words)

A definition is a frozen value: each method returns a new one. The same definition is applied to
streams and to batches. It reads in the order in which rows pass: window, keys, watermark,
aggregates, and then what is done with the result.
"""

import warnings
from datetime import timedelta
from typing import NoReturn, get_args

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionkit._instants import Duration, duration, duration_text
from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import quoted
from sessionkit.spark._event_time import MILLISECOND
from sessionkit.spark.query.rules import OutputMode, QueryType, check_output
from sessionkit.spark.windows.rules import (
    WINDOW_COLUMNS,
    check_aggregates,
    check_columns,
    check_gap,
    check_names,
    own_watermark,
    read_positive_delay,
    read_shift,
)
from sessionkit.spark.windows.shape import Expression, WindowShape, expression
from sessionkit.spark.windows.text import explanation, growth

__all__ = [
    "UnboundedStateWarning",
    "WindowedAggregation",
    "Windows",
    "session",
    "sliding",
    "tumbling",
]


class UnboundedStateWarning(UserWarning):
    """Warned when a streaming aggregation keeps every window in its state for ever."""


def tumbling(length: Duration, *, on: str, start_time: Duration = timedelta(0)) -> "Windows":
    """
    Return windows of one length that follow one another: a row falls into exactly one.

    Windows are cut in multiples of their length since 1970-01-01 00:00 UTC, event time, so those
    of a day begin at midnight in UTC, whatever the time zone of the session is.

    Args:
        length: How long a window is. A day is 24 hours; months and years have no fixed length.
        on: The column of the event time, a timestamp.
        start_time: By how much the windows are shifted, less than their length: `"5 hours"` has
            those of a day begin at 05:00 UTC.

    Raises:
        SpecError: A duration cannot be read, or the shift is not less than the length.
    """
    span = duration(length, "length")
    return Windows(WindowShape("tumbling", on, span, span, read_shift(start_time, span, "length")))


def sliding(
    length: Duration, *, every: Duration, on: str, start_time: Duration = timedelta(0)
) -> "Windows":
    """
    Return windows of one length that overlap: a row falls into each that covers it.

    A row is counted `length / every` times, and the state is as much larger than that of
    `tumbling`. Windows start in multiples of `every` since 1970-01-01 00:00 UTC, event time.

    Args:
        length: How long a window is.
        every: From the start of a window to the start of the next one, at most its length.
        on: The column of the event time, a timestamp.
        start_time: By how much the windows are shifted, less than `every`.

    Raises:
        SpecError: A duration cannot be read, `every` is longer than the windows, or the shift is
            not less than `every`.
    """
    span, step = duration(length, "length"), duration(every, "every")
    if step > span:
        found = (
            f"`every` must be at most the length, found {duration_text(step)} for windows of "
            f"{duration_text(span)}: rows between two windows would be in none"
        )
        raise SpecError(with_hint(found, "make the windows longer, or let them start more often"))
    return Windows(WindowShape("sliding", on, span, step, read_shift(start_time, step, "every")))


def session(
    gap: Duration | None = None, *, on: str, dynamic_gap: Expression | None = None
) -> "Windows":
    """
    Return windows that last as long as rows of a key follow one another closely enough.

    Each row lasts from its event time for the gap; rows of a key that overlap, or touch, are one
    session. It ends one gap behind the row that lasts longest. A stream needs a key (`by`), and
    has no update mode. For sessions with logic of your own, see `sessionkit.SessionSpec`.

    Args:
        gap: One gap for all rows.
        on: The column of the event time, a timestamp.
        dynamic_gap: In place of `gap`, the gap of each row: SQL text or a Column, of an interval
            such as `make_interval(0, 0, 0, 0, 0, minutes)` or of text such as `'5 minutes'`. Spark
            reads that text, and reads `'5m'` as null. Rows whose gap is null, zero or negative
            are in no session: `rejected` returns them.

    Raises:
        SpecError: The gap is no duration, or not exactly one of the two is given.
    """
    if (gap is None) == (dynamic_gap is None):
        found = "`session` takes either a gap or a dynamic_gap"
        raise SpecError(with_hint(found, 'write session("30 minutes", on=...) for a fixed gap'))
    if gap is None:
        check_gap(dynamic_gap)
        return Windows(WindowShape("session", on, dynamic_gap=dynamic_gap))
    return Windows(WindowShape("session", on, duration(gap, "gap")))


# No equality on what may hold a Column: comparing two Columns makes a third one.
@attrs.frozen(eq=False)
class Windows:
    """
    How rows fall into windows, and how late they may come; `agg` makes it an aggregation.

    Made by `tumbling`, `sliding` and `session`.

    Attributes:
        shape: The kind of window, its column and its durations.
        keys: The other columns that are grouped by.
        delay: The delay of the watermark; None where none is declared here.
    """

    shape: WindowShape
    keys: tuple[str, ...] = ()
    delay: timedelta | None = None

    def by(self, *columns: str) -> "Windows":
        """
        Return these windows for each combination of values of columns.

        Args:
            columns: Names of columns of the frame. What has to be computed is added to the frame
                first, with `withColumn`.

        Raises:
            SpecError: A name is no text, comes twice, or is one of the window's own.
        """
        check_names((*self.keys, *columns))
        return attrs.evolve(self, keys=(*self.keys, *columns))

    def watermark(self, delay: Duration) -> "Windows":
        """
        Return these windows with a watermark on their own column, event time.

        The watermark is the latest event time seen less the delay; Spark moves it between
        micro-batches. A frame that has it already needs none here; a batch has no watermark.

        Args:
            delay: How much older than the latest event time a row may be. Whole milliseconds.

        Raises:
            SpecError: The delay is no duration, is zero or finer than a millisecond, or there is
                one already.
        """
        span = read_positive_delay(delay)
        if self.delay is not None:
            found = f"a second watermark of {delay!r}; there is one of {duration_text(self.delay)}"
            raise SpecError(with_hint(found, "declare it once"))
        return attrs.evolve(self, delay=span)

    def agg(self, **aggregates: Expression) -> "WindowedAggregation":
        """
        Return the aggregation of each window and key.

        Args:
            aggregates: For each output column its aggregate: SQL text, such as `"count(*)"`, or a
                Column, such as `F.count("*")`. Classic PySpark makes a Column only while a session
                is active: write text where the definition is made before there is one.

        Raises:
            SpecError: There is none, one is neither text nor a Column, or a name is taken.
        """
        return WindowedAggregation(self, tuple(aggregates.items()))


@attrs.frozen(eq=False)
class WindowedAggregation:
    """
    A windowed aggregation, to be applied to streams and batches. Made by `Windows.agg`.

    Attributes:
        windows: How rows fall into windows.
        aggregates: The names and expressions of the aggregates.
        chosen_mode: What `output_mode` was called with; None where it was not called.
        sorted_by: The output columns that the result is sorted by.
        descending: Whether the largest come first.
        keeps_window_time: Whether the output has the column `window_time`.
    """

    windows: Windows
    aggregates: tuple[tuple[str, Expression], ...]
    chosen_mode: OutputMode | None = None
    sorted_by: tuple[str, ...] = ()
    descending: bool = False
    keeps_window_time: bool = False

    def __attrs_post_init__(self) -> None:
        check_aggregates(self.aggregates)
        check_names(self.windows.keys, [name for name, _ in self.aggregates])
        for name in self.sorted_by:
            if name not in self.columns:
                found = f"`order_by`: there is no output column `{name}`"
                raise SpecError(with_hint(found, f"there are {', '.join(self.columns)}"))
        if self.chosen_mode is not None:
            # The frame may have a watermark, which only `over` sees.
            self._check_mode(watermarked=True)

    @property
    def mode(self) -> OutputMode:
        """The output mode for the query: the one chosen, or Spark's default, `append`."""
        return self.chosen_mode or "append"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the output columns, in order."""
        window = WINDOW_COLUMNS if self.keeps_window_time else WINDOW_COLUMNS[:2]
        return (*self.windows.keys, *window, *(name for name, _ in self.aggregates))

    def output_mode(self, mode: OutputMode) -> "WindowedAggregation":
        """
        Return the definition for a stream in this output mode; a batch has none.

        A frame does not carry its mode: start the query with `.outputMode(definition.mode)`.

        Args:
            mode: `append` writes a window once, when it is over; `update` every window that a
                micro-batch has changed; `complete` all windows, in every micro-batch.

        Raises:
            SpecError: It is no output mode, or a query of this type cannot have it.
        """
        if mode not in get_args(OutputMode):
            found = f"there is no output mode {mode!r}"
            raise SpecError(with_hint(found, "write 'append', 'update' or 'complete'"))
        return attrs.evolve(self, chosen_mode=mode)

    def order_by(self, *columns: str, descending: bool = False) -> "WindowedAggregation":
        """
        Return the definition with its result sorted. Of a stream, complete mode alone is sorted.

        Args:
            columns: Names of output columns.
            descending: Whether the largest come first.

        Raises:
            SpecError: There is no such output column, or another mode is chosen.
        """
        return attrs.evolve(self, sorted_by=columns, descending=descending)

    def with_window_time(self) -> "WindowedAggregation":
        """
        Return the definition with the output column `window_time`, for windows over windows.

        It is the last microsecond of a window. It carries the watermark on, as `window_end` does
        not, and it lies in that larger window which holds the window.
        """
        return attrs.evolve(self, keeps_window_time=True)

    def watermark(self, delay: Duration) -> NoReturn:
        """
        Refuse: the watermark comes before the aggregation.

        Raises:
            SpecError: Always.
        """
        found = f"a watermark of {delay!r} is declared after the aggregation"
        reason = "Spark would put it on the result, where it closes no window and frees no state"
        hint = "write .watermark(...) before .agg(...)"
        raise SpecError(with_hint(f"{found}: {reason}", hint))

    def apply(self, frame: DataFrame) -> DataFrame:
        """
        Return the windows of a stream or a batch.

        The columns are the keys, `window_start` and `window_end` (event time, the end exclusive),
        with `with_window_time` also `window_time`, and the aggregates.

        A batch gives every window once; output mode and watermark have no effect. Rows that fall
        into no window are left out of both; `rejected` returns them.

        Args:
            frame: The input, with the keys and the time column, a timestamp.

        Raises:
            SchemaError: A column is missing, or the time column is no timestamp.
            SpecError: Spark would refuse the query, or would run it and give nothing.

        Warns:
            UnboundedStateWarning: The stream would keep every window for ever.
        """
        windows = self.windows
        check_columns(frame, windows.shape.on, windows.keys)
        if frame.isStreaming:
            frame = self._watermarked(frame)
        keys = [F.col(quoted(key)) for key in windows.keys]
        groups = frame.groupBy(windows.shape.column().alias("window"), *keys)
        result = groups.agg(*(expression(value).alias(name) for name, value in self.aggregates))
        times = {
            "window_start": F.col("window.start").alias("window_start"),
            "window_end": F.col("window.end").alias("window_end"),
            "window_time": F.window_time("window").alias("window_time"),
        }
        rows = result.select(*(times.get(name, F.col(quoted(name))) for name in self.columns))
        if not self.sorted_by:
            return rows
        return rows.orderBy(*map(quoted, self.sorted_by), ascending=not self.descending)

    def rejected(self, frame: DataFrame) -> DataFrame:
        """
        Return the rows of a stream or a batch that fall into no window, with a column `reason`.

        Spark leaves them out without a word and without a count: rows without an event time, and
        rows whose dynamic gap is null, unreadable, zero or negative. Late rows are not among
        them: which rows are late depends on the progress of a query.

        Args:
            frame: What `over` is given.

        Raises:
            SchemaError: A column is missing, or the time column is no timestamp.
        """
        check_columns(frame, self.windows.shape.on, self.windows.keys)
        reasoned = frame.select("*", self.windows.shape.rejection().alias("reason"))
        return reasoned.where(F.col("reason").isNotNull())

    def explain(self, frame: DataFrame | None = None) -> str:
        """
        Return in words what a stream of this does.

        The text names the type of the query, the output modes it can have and why, when a window
        is written and when it leaves the state, and which rows are late.

        Args:
            frame: The stream, which may have the watermark that the definition does not declare.
        """
        windows = self.windows
        delay = windows.delay
        if frame is not None:
            delay = own_watermark(frame, windows.shape.on, delay, self.mode) or delay
        query = self._query_type(watermarked=delay is not None)
        return explanation(windows.shape, windows.keys, delay, query, self.mode)

    def _query_type(self, *, watermarked: bool) -> QueryType:
        if self.sorted_by:
            return "sorted_aggregation"
        if self.windows.shape.kind == "session":
            return "watermarked_session_window" if watermarked else "session_window"
        return "watermarked_aggregation" if watermarked else "aggregation"

    def _check_mode(self, *, watermarked: bool) -> None:
        if self.windows.shape.kind == "session" and not self.windows.keys:
            found = "a stream of session windows is grouped by nothing else: Spark fails after it"
            hint = 'name a key: .by("user"); a batch needs none, if no output mode is chosen'
            raise SpecError(with_hint(f"{found} has started", hint))
        check_output(self._query_type(watermarked=watermarked), self.mode)

    def _watermarked(self, frame: DataFrame) -> DataFrame:
        """Check a stream, and return it with its watermark."""
        on, delay = self.windows.shape.on, self.windows.delay
        there = own_watermark(frame, on, delay, self.mode)
        watermarked = there is not None or delay is not None
        self._check_mode(watermarked=watermarked)
        if self.mode == "complete" or not watermarked:
            hint = "use mode 'append' or 'update' with a watermark, or bound the keys and the time"
            text = with_hint(growth(self.mode, on), f"{hint} of the source")
            warnings.warn(text, UnboundedStateWarning, stacklevel=3)
        if there is not None or delay is None:
            return frame
        return frame.withWatermark(quoted(on), f"{delay // MILLISECOND} milliseconds")
