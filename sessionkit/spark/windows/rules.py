"""Checks of the names, the frame and the watermark of a windowed aggregation."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame

from sessionkit._instants import Duration, duration, duration_text
from sessionkit.errors import SchemaError, SpecError, with_hint
from sessionkit.spark._event_time import check_event_time, read_delay
from sessionkit.spark.query.plan import Plan, plan_of
from sessionkit.spark.query.rules import OutputMode, check_output
from sessionkit.spark.watermarks import Watermark, declared_watermarks

__all__ = [
    "WINDOW_COLUMNS",
    "check_aggregates",
    "check_columns",
    "check_gap",
    "check_names",
    "own_watermark",
    "read_positive_delay",
    "read_shift",
]

WINDOW_COLUMNS: Final = ("window_start", "window_end", "window_time")
RESERVED: Final = {"window", *WINDOW_COLUMNS}


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
    shift = duration(value, "start_time", zero_allowed=True)
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


def check_aggregates(aggregates: Iterable[tuple[str, object]]) -> None:
    """Check that there is an aggregate, and that each is SQL text or a Column."""
    aggregates = tuple(aggregates)
    if not aggregates:
        hint = 'name at least one, such as .agg(n="count(*)")'
        raise SpecError(with_hint("`agg` has no aggregate", hint))
    for name, value in aggregates:
        if not _is_expression(value):
            found = f"`agg`: `{name}` must be SQL text or a Column, found {value!r}"
            hint = f'write {name}="count(*)", or {name}=F.count("*") where a session is active'
            raise SpecError(with_hint(found, hint))


def check_gap(value: object) -> None:
    """Check that a dynamic gap is SQL text or a Column."""
    if not _is_expression(value):
        found = f"`dynamic_gap` must be SQL text or a Column, found {value!r}"
        hint = "write dynamic_gap=\"CASE WHEN mobile THEN '5 minutes' ELSE '30 minutes' END\""
        raise SpecError(with_hint(found, hint))


def _is_expression(value: object) -> bool:
    # Not isinstance: on Spark 3.5, Spark Connect has a Column class of its own.
    is_column = callable(getattr(value, "alias", None))
    return is_column or (isinstance(value, str) and bool(value.strip()))


def check_columns(frame: DataFrame, on: str, keys: tuple[str, ...]) -> None:
    """Check that a frame has the keys and the event time, a timestamp."""
    check_event_time(frame.schema, on)
    for key in keys:
        if key not in frame.columns:
            near = [name for name in frame.columns if name.lower() == key.lower()]
            found = f"the key `{key}` is missing; the frame has {', '.join(frame.columns)}"
            hint = f"write it `{near[0]}`" if near else "rename a column, or select it"
            raise SchemaError(with_hint(found, hint))


def own_watermark(
    frame: DataFrame, on: str, delay: timedelta | None, mode: OutputMode
) -> timedelta | None:
    """
    Return the delay of the watermark that a stream already has for its windows, if any.

    Args:
        frame: The stream.
        on: The event-time column of the windows.
        delay: The delay that the definition declares.
        mode: The output mode of the query.

    Raises:
        SpecError: The frame's watermark doesn't fit the definition.
    """
    declared = declared_watermarks(frame)
    own = next((watermark for watermark in declared if watermark.column == on), None)
    plan = plan_of(frame)
    if plan.has_aggregation:
        _check_chained(plan, on, own, delay, mode)
    elif own is None and declared and (delay is not None or mode != "complete"):
        raise _elsewhere(on, declared)
    elif own is not None and delay not in {None, own.delay}:
        found = f"a watermark is declared twice on `{on}`: {duration_text(own.delay)} on the frame"
        reason = f"and {duration_text(delay or own.delay)} here; Spark fails after the start"
        raise SpecError(with_hint(f"{found}, {reason}", "leave one of them out"))
    return None if own is None else own.delay


def _elsewhere(on: str, declared: tuple[Watermark, ...]) -> SpecError:
    others = ", ".join(f"`{watermark.column}`" for watermark in declared)
    found = f"the frame has a watermark on {others}, but the windows are over `{on}`"
    reason = f"a watermark on {others} doesn't say when a window over `{on}` closes"
    return SpecError(with_hint(f"{found}: {reason}", f"declare the watermark on `{on}` instead"))


def _check_chained(
    plan: Plan, on: str, own: Watermark | None, delay: timedelta | None, mode: OutputMode
) -> None:
    """Check windows over a frame that is already an aggregation."""
    check_output("chained_aggregation", mode)
    again = delay is not None and (own is None or own.delay != delay)
    if again or plan.is_watermarked_late:
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
