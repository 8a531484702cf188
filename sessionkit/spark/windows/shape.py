"""Tumbling, sliding and session windows as Spark's expressions, and the rows that fall in none."""

from datetime import timedelta
from typing import Final, Literal, TypeAlias

import attrs
from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionkit._instants import span_us
from sessionkit.spark._columns import quoted

__all__ = ["Expression", "WindowShape", "expression"]

Expression: TypeAlias = str | Column
"""SQL text, which can be written before there is a Spark session, or a Column, which cannot."""

NOTHING: Final = timedelta(0)


# No equality on what may hold a Column: comparing two Columns makes a third one.
@attrs.frozen(eq=False)
class WindowShape:
    """
    How rows fall into windows.

    Attributes:
        kind: The kind of window.
        on: The column of the event time.
        length: How long a window is; of a session, the gap that ends it.
        every: From the start of a window to that of the next one; a session has none.
        start_time: By how much windows are shifted against the epoch; sessions are not.
        dynamic_gap: The gap that each row brings for its session, in place of `length`.
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
        """Return why a row falls into no window: by the test that Spark filters with."""
        time = F.col(quoted(self.on))
        reason = F.when(time.isNull(), F.lit(f"`{self.on}` is null"))
        if self.dynamic_gap is None:
            return reason
        end = time + expression(self.dynamic_gap).cast("interval")
        unreadable = F.lit("the gap is null, or no interval that Spark can read")
        return reason.when(end.isNull(), unreadable).when(
            end <= time, F.lit("the gap is zero or negative")
        )


def expression(value: Expression) -> Column:
    """Return what the user wrote as a Column."""
    return F.expr(value) if isinstance(value, str) else value


def _micros(span: timedelta) -> str:
    """Return a duration in the one spelling that all of Spark's readers take alike."""
    return f"{span_us(span)} microseconds"
