"""Checks of every event-time column and every watermark delay, before anything starts."""

from collections.abc import Iterator
from datetime import timedelta

from pyspark.sql import types as T

from sessionkit._instants import Duration, duration
from sessionkit.errors import SchemaError, SpecError, with_hint
from sessionkit.spec.shared import MILLISECOND

__all__ = ["MILLISECOND", "check_event_time", "read_delay"]


def check_event_time(schema: T.StructType, column: str) -> None:
    """Check that a frame has this event time: a timestamp at the top level."""
    problem = next(_problems(schema, column), None)
    if problem is not None:
        raise SchemaError(with_hint(*problem))


def read_delay(value: Duration, *, zero_allowed: bool = False) -> timedelta:
    """Parse a watermark delay, which Spark counts in whole milliseconds."""
    span = duration(value, "delay", zero_allowed=zero_allowed)
    if span % MILLISECOND:
        found = f"`delay` must be whole milliseconds, found {value!r}: Spark drops the rest"
        raise SpecError(with_hint(found, "round it up, such as '1 millisecond'"))
    return span


def _problems(schema: T.StructType, column: str) -> Iterator[tuple[str, str]]:
    kinds = {field.name: field.dataType for field in schema.fields}
    kind = kinds.get(column)
    if kind is None:
        found = f"the event time `{column}` is missing; the frame has {', '.join(kinds)}"
        yield found, _near(column, list(kinds))
    elif isinstance(kind, T.TimestampNTZType):
        found = f"the event time `{column}` is a timestamp_ntz, which has no time zone"
        yield (
            found,
            f'cast it in the time zone it was written in: col("{column}").cast("timestamp")',
        )
    elif not isinstance(kind, T.TimestampType):
        found = f"the event time `{column}` must be a timestamp, found {kind.simpleString()}"
        yield found, "convert it, such as timestamp_millis(col) or to_timestamp(col)"


def _near(column: str, names: list[str]) -> str:
    for name in names:
        if name.lower() == column.lower():
            return f"write it `{name}`"
    parent, _, child = column.partition(".")
    if child and parent in names:
        return f'move it to the top level first: withColumn("{child}", col("{column}"))'
    return "rename a column, or select it"
