"""Columns of DataFrames: names, types, event times, and casts for Python."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn, cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit._arguments import nearest, quoted
from sessionkit._arrays import INSTANT
from sessionkit._instants import span_us
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark._sail import check_no_stream
from sessionkit.spark._settings import said_if_silent
from sessionkit.spec.columns import WireColumn

OF_REJECTED: Final = "sessionkit.of_rejected"
"""The metadata key that says whether only rejected rows have a column, under any name."""

ROW_KIND: Final = "sessionkit.row_kind"
"""The metadata key of the column `kind` with the kind of result rows."""
ANY_FRAME: Final = "pass what spark.read, spark.readStream or spark.createDataFrame returns"
NANOSECONDS: Final = re.compile(r"timestamp(_ltz|_ntz)?(\([7-9]\)|_nanos)", re.IGNORECASE)
WHOLE_MICROS: Final = 'cast it to whole microseconds: F.col(...).cast("timestamp_ltz")'
DAY_US: Final = span_us(timedelta(days=1))
LARGEST_OFFSET_US: Final = span_us(timedelta(hours=18))
"""The largest offset from UTC of a time zone in Spark."""

A_STREAM: Final = "pass what spark.readStream returns, or a frame made from it"
FROM_IT: Final = "pass the frame that its .agg(...), .events() or .apply(frame) returns"


class NotAFrameError(SpecError, AttributeError):
    """Raised when a method of a frame is called on an object that only makes a frame."""


def no_frame_yet(what: str, hint: str) -> Callable[[object, str], NoReturn]:
    """Return the `__getattr__` of a class whose objects make a frame."""

    def refuse(_: object, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotAFrameError(f"{what} has no `{name}`: it isn't a frame yet", hint)

    return refuse


def check_frame(frame: object, name: str, hint: str = ANY_FRAME) -> None:
    """Check that an argument is a DataFrame of classic Spark or of Connect; on Sail, a batch."""
    kind = type(frame)
    if not hasattr(kind, "isStreaming"):
        package = kind.__module__.partition(".")[0]
        hint = FROM_IT if package == "sessionkit" else hint
        if kind.__module__.startswith("pyspark.pandas"):
            hint = f"write {name}.to_spark()"
        owner = "" if package == "builtins" else f"{package}."
        text = f"`{name}` must be a DataFrame of Spark, found {owner}{kind.__name__}"
        raise SchemaError(text, hint)
    given = cast("DataFrame", frame)
    try:
        with said_if_silent(given):  # the first question to the server, mostly
            check_no_stream(given, name)
            _ = given.schema
    except PySparkException as error:
        if (found := NANOSECONDS.search(str(error))) is None:
            raise
        text = f"`{name}` has a column of nanoseconds ({found[0]}), which PySpark can't read"
        raise SchemaError(text, f"{WHOLE_MICROS}, before anything else") from error


def in_nanoseconds(kind: T.DataType) -> bool:
    """Return whether a column is a timestamp of nanoseconds; PySpark 4.3 has no class for it."""
    return NANOSECONDS.fullmatch(kind.simpleString()) is not None


def column(name: str) -> Column:
    """Return the column of exactly this name: a dot in it means no field."""
    return F.col(quoted(name))


def to_wire(wire: WireColumn) -> Column:
    """Return a column for Python, cast to a type that Arrow converts to the declared type."""
    value, kind = column(wire.field.name), wire.kind
    is_cast = kind.facts is not None and kind.facts.is_cast
    return (value.cast(kind.sql) if is_cast else value).alias(wire.name)


SOME: Final[Mapping[pa.DataType, Any]] = {
    pa.int64(): 0,
    pa.float64(): math.nan,
    pa.bool_(): False,
    pa.string(): "",
    pa.binary(): b"",
    pa.date32(): date(1970, 1, 1),
    pa.duration("us"): timedelta(0),
}
"""A value of each scalar type. For floats it's NaN, which Spark may have read as a null."""


def some_value(kind: pa.DataType) -> Column:
    """Return a constant of a type that isn't null."""
    match kind:
        case pa.StructType():
            return F.struct(*(some_value(part.type).alias(part.name) for part in kind))
        case pa.ListType():
            return F.array()
        case pa.MapType():
            return F.create_map()
        case pa.Decimal128Type():
            return F.lit(Decimal(0).scaleb(-kind.scale))
    if kind == INSTANT:
        # On Sail, what `timestamp_micros` returns is in UTC, and shows so in any session.
        return F.timestamp_micros(F.lit(0)).cast("timestamp_ltz")
    return F.lit(SOME[kind])


def is_future(time: Column, skew: timedelta, *, is_batch: bool) -> Column:
    """
    Return whether an event time is too far ahead of the query's time; null or false if it isn't.

    On a stream, Spark inlines the micro-batch's time into generated code, so it would compile the
    stage again in every micro-batch. `zip_with` has no generated code, but is slower for each row.
    So it only runs for rows that the date of the micro-batch doesn't decide.
    """
    ahead_us, time_us = F.lit(span_us(skew)), F.unix_micros(time)
    if is_batch:
        return time_us > F.unix_micros(F.current_timestamp()) + ahead_us
    # The date is in the session's time zone, so the day began at most this much earlier.
    day_us = F.unix_date(F.current_date()) * F.lit(DAY_US) - F.lit(LARGEST_OFFSET_US)
    now, at = (F.array_repeat(us, 1) for us in (F.unix_micros(F.current_timestamp()), time_us))
    is_ahead = F.zip_with(now, at, lambda now_us, at_us: at_us > now_us + ahead_us)
    return F.when(time_us > day_us + ahead_us, F.get(is_ahead, F.lit(0)))


def check_event_time(schema: T.StructType, name: str) -> None:
    """Check that a frame has an event time of this name: a top-level timestamp column."""
    problem = time_problem(schema, name)
    if problem is not None:
        raise SchemaError(*problem)


def check_key_and_time(
    frame: DataFrame, on: str | None, keys: Sequence[str], hint: str = ANY_FRAME
) -> None:
    """Check that a frame has the event time `on`, unless None, and the key columns."""
    check_frame(frame, "frame", hint)
    for problem in twice_problems(frame, keys if on is None else (*keys, on)):
        raise SchemaError(*problem)
    if on is not None:
        check_event_time(frame.schema, on)
    for key in keys:
        if key not in frame.columns:
            found = f"the key `{key}` is missing; the frame has {', '.join(frame.columns)}"
            raise SchemaError(found, near(key, frame.columns))


def twice_problems(frame: DataFrame, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield why a name is ambiguous, and a hint, for each that is."""
    for name in names:
        same = [other for other in frame.columns if other.lower() == name.lower()]
        spellings = dict.fromkeys(same)
        if len(same) > len(spellings) or (len(spellings) > 1 and not is_case_sensitive(frame)):
            found = f"{len(same)} columns of the frame are called `{'` or `'.join(spellings)}`"
            yield found, f'rename or drop one; of a join, write .join(other, "{name}")'


def is_case_sensitive(frame: DataFrame) -> bool:
    return frame.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"


def time_problem(schema: T.StructType, name: str) -> tuple[str, str] | None:
    """Return why a column can't be the event time, and a hint; None if it can."""
    if name not in schema.names:
        found = f"the event time `{name}` is missing; the frame has {', '.join(schema.names)}"
        return found, near(name, schema.names)
    kind = schema[name].dataType
    if isinstance(kind, T.TimestampType):
        return None
    if in_nanoseconds(kind):
        return f"the event time `{name}` is in nanoseconds ({kind.simpleString()})", WHOLE_MICROS
    if isinstance(kind, T.TimestampNTZType):
        found = f"the event time `{name}` is a timestamp_ntz, which has no time zone"
        cast = f'col("{name}").cast("timestamp_ltz")'
        return found, f"cast it in the time zone it was written in: {cast}"
    found = f"the event time `{name}` must be a timestamp, found {kind.simpleString()}"
    return found, "convert it, such as timestamp_millis(col) or to_timestamp(col)"


def near(name: str, names: Sequence[str]) -> str:
    """Return a hint for a name that isn't in `names`."""
    for other in names:
        if other.lower() == name.lower():
            return f"write it `{other}`"
    parent, _, child = name.partition(".")
    if child and parent in names:
        return f'move it to the top level first: withColumn("{child}", col("{name}"))'
    close = nearest(name, names)
    return f"write `{close}`" if close else "rename a column, or select it"
