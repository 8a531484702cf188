"""Tumbling, sliding and session windows as Spark expressions, and the rows that fall into none."""

from datetime import timedelta
from typing import Final, Literal, TypeAlias

import attrs
from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._instants import span_us
from sessionkit.spark._columns import quoted

__all__ = ["Expression", "WindowShape", "expression"]

Expression: TypeAlias = str | Column
"""SQL text, which needs no Spark session, or a Column, which does."""

NOTHING: Final = timedelta(0)


# No equality on what may hold a Column: comparing two Columns makes a third one.
@attrs.frozen(eq=False)
class WindowShape:
    """
    How rows fall into windows.

    Attributes:
        kind: The kind of window.
        on: The event-time column.
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

    def column(self) -> Column:
        """Return the window of a row, as Spark computes it."""
        time = F.col(quoted(self.on))
        if self.dynamic_gap is not None:
            return F.session_window(time, expression(self.dynamic_gap))
        if self.kind == "session":
            return F.session_window(time, _micros(self.length))
        return F.window(time, _micros(self.length), _micros(self.every), _micros(self.start_time))

    def rejection(self) -> Column:
        """Return why a row falls into no window, using the same test as Spark's filter."""
        time = F.col(quoted(self.on))
        reason = F.when(time.isNull(), F.lit(f"`{self.on}` is null"))
        if self.dynamic_gap is None:
            return reason
        end = time + expression(self.dynamic_gap).cast("interval")
        unreadable = F.lit("the gap is null, or an interval that Spark can't parse")
        return reason.when(end.isNull(), unreadable).when(
            end <= time, F.lit("the gap is zero or negative")
        )


def expression(value: Expression) -> Column:
    """Return the user's expression as a Column."""
    return F.expr(value) if isinstance(value, str) else value


def _micros(span: timedelta) -> str:
    """Return a duration in the one spelling that all of Spark's parsers read alike."""
    return f"{span_us(span)} microseconds"
