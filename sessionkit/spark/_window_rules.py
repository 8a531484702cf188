"""The shape of windows, and the rules of a windowed aggregation."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionkit._instants import Duration, duration_of, duration_text, span_us
from sessionkit.errors import SpecError, with_hint
from sessionkit.spark._columns import column, read_delay
from sessionkit.spark._plan import analyzed_plan, plan_tree
from sessionkit.spark.sinks.protocol import OutputMode
from sessionkit.spark.watermarks import declared_watermarks

Expression: TypeAlias = str | Column
"""SQL text, which needs no Spark session, or a Column, which does."""
NOTHING: Final = timedelta(0)
WINDOW_COLUMNS: Final = ("window_start", "window_end", "window_time")
RESERVED: Final = {"window", *WINDOW_COLUMNS}


# No equality on what may hold a Column: comparing two Columns makes a third one.
@attrs.frozen(eq=False)
class WindowShape:
    """
    How rows fall into windows.

    Attributes:
        length: The length of a window; for a session, the gap that ends it.
        every: The time from the start of one window to the start of the next; not for sessions.
        start_time: The offset of the windows from the epoch; not for sessions.
        dynamic_gap: The gap that each row brings for its session, instead of `length`.
    """

    kind: Literal["tumbling", "sliding", "session"]
    on: str
    length: timedelta = NOTHING
    every: timedelta = NOTHING
    start_time: timedelta = NOTHING
    dynamic_gap: Expression | None = None

    def window(self) -> Column:
        """Return the window of a row, as Spark computes it."""
        time = column(self.on)
        if self.dynamic_gap is not None:
            return F.session_window(time, expression(self.dynamic_gap))
        if self.kind == "session":
            return F.session_window(time, _micros(self.length))
        return F.window(time, _micros(self.length), _micros(self.every), _micros(self.start_time))

    def rejection(self) -> Column:
        """Return why a row falls into no window, using the same test as Spark's filter."""
        time = column(self.on)
        reason = F.when(time.isNull(), F.lit(f"`{self.on}` is null"))
        if self.dynamic_gap is None:
            return reason
        end = time + expression(self.dynamic_gap).cast("interval")
        unreadable = F.lit("the gap is null, or an interval that Spark can't parse")
        return reason.when(end.isNull(), unreadable).when(
            end <= time, F.lit("the gap is zero or negative")
        )


def expression(value: Expression) -> Column:
    return F.expr(value) if isinstance(value, str) else value


def _micros(span: timedelta) -> str:
    """Return a duration in the one spelling that all of Spark's parsers read alike."""
    return f"{span_us(span)} microseconds"


def growth(mode: OutputMode, on: str) -> str:
    """Return the text of the warning that the state grows forever."""
    rows = "the state grows by one row for each key and window, forever"
    if mode == "complete":
        return f"mode 'complete' drops no window, with or without a watermark: {rows}"
    return f"no watermark is declared on `{on}`: {rows}"


def read_positive_delay(value: Duration) -> timedelta:
    """Parse a watermark delay: whole milliseconds, more than zero."""
    span = read_delay(value, zero_allowed=True)
    if not span:
        found = "a watermark delay of zero: the latest event time is the watermark itself, so a"
        reason = "window that ends there is closed (end <= watermark), and any later row is lost"
        hint = 'say how late rows may arrive; for a source in order, "1 millisecond"'
        raise SpecError(with_hint(f"{found} {reason}", hint))
    return span


def read_shift(value: Duration, period: timedelta, name: str) -> timedelta:
    """Parse the offset of windows: less than the period at which they repeat."""
    shift = duration_of(value, "start_time", zero_allowed=True)
    if shift >= period:
        found = f"`start_time` must be less than `{name}`, found {duration_text(shift)}"
        raise SpecError(with_hint(found, f"windows repeat every {duration_text(period)}"))
    return shift


def check_names(keys: Iterable[object], aggregates: Iterable[str] = ()) -> None:
    """Check that the columns of the result have distinct names."""
    seen = set(RESERVED)
    for name in (*keys, *aggregates):
        if not isinstance(name, str):
            found = f"`by` takes column names, found {name!r} ({type(name).__name__})"
            hint = 'add a computed key first, .withColumn("day", ...), and write .by("day")'
            raise SpecError(with_hint(found, hint))
        if name.lower() in RESERVED:
            found = f"`{name}` is reserved for a column of the window"
            raise SpecError(with_hint(found, "rename the column or the aggregate"))
        if name.lower() in seen:
            found = f"two columns of the result would have the name `{name}`"
            raise SpecError(with_hint(found, "name each key and each aggregate once"))
        seen.add(name.lower())


def check_aggregates(aggregates: Sequence[tuple[str, object]]) -> None:
    if not aggregates:
        hint = 'name at least one, such as .agg(n="count(*)")'
        raise SpecError(with_hint("`agg` has no aggregate", hint))
    for name, value in aggregates:
        hint = f'write {name}="count(*)", or {name}=F.count("*") where a session is active'
        check_expression(value, f"`agg`: `{name}`", hint)


def check_expression(value: object, name: str, hint: str) -> None:
    # Not isinstance: on Spark 3.5, Spark Connect has a Column class of its own.
    is_column = callable(getattr(value, "alias", None))
    if not is_column and not (isinstance(value, str) and value.strip()):
        raise SpecError(with_hint(f"{name} must be SQL text or a Column, found {value!r}", hint))


def check_chained(frame: DataFrame, on: str, delay: timedelta | None, mode: OutputMode) -> None:
    """Refuse windows over an aggregation of which Spark closes none, or says something else."""
    root = plan_tree(analyzed_plan(frame))
    if root is None or not root.aggregates_stream:
        return
    if mode != "append":
        found = f"windows over an aggregation can't be written in mode {mode!r}: the first one"
        reason = "would send rows that it corrects later, and the second one can't take them back"
        hint = "use mode 'append', or write the first result to a table and start a second query"
        raise SpecError(with_hint(f"{found} {reason}", hint))
    own = watermark_on(frame, on)
    if (delay not in {None, own}) or root.is_watermarked_late:
        found = f"a watermark is declared after an aggregation, for the windows over `{on}`: Spark"
        reason = "starts such a query, but its watermark stays at 1970 and no window ever closes"
        hint = "declare it only before the first aggregation; `window_time` carries it further"
        raise SpecError(with_hint(f"{found} {reason}", hint))
    if own is None:
        found = f"the frame is already an aggregation, and `{on}` carries no watermark"
        hint = (
            "declare the watermark before the first aggregation, and use the column that carries "
            'it further: .with_window_time() there, and on="window_time" here'
        )
        raise SpecError(with_hint(found, hint))


def watermark_on(frame: DataFrame, on: str) -> timedelta | None:
    """Return the delay of the watermark that a stream has on a column, if any."""
    return next((one.delay for one in declared_watermarks(frame) if one.column == on), None)
