"""
What Spark's Python worker can carry: state values, timeouts, clocks.

Each function takes what a test or a function under test gave, and returns what Spark would see, or
refuses it with the place (`where`) in the message.
"""

import datetime as dt
import decimal
import operator
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal, SupportsIndex

import numpy as np
import pandas as pd

from sessionkit.errors import with_hint

TimeoutConf = Literal["NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout"]
"""The timeout mode of the query, spelled as PySpark's `GroupStateTimeout` spells it."""

_MAX_LONG = 2**63 - 1
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)

# What Spark's pickle reader turns into a column value. Anything else fails the task or, worse,
# is stored as NULL or as the name of a Java class.
_PLAIN_TYPES = frozenset(
    {type(None), bool, int, float, str, bytes, bytearray, decimal.Decimal}
    | {dt.date, dt.time, dt.datetime, dt.timedelta}
)


def state_value(where: str, value: object) -> tuple[Any, ...]:
    """Convert the fields of a state value as PySpark does; refuse what Spark cannot store."""
    taken_apart = isinstance(value, str | bytes | bytearray | Mapping | AbstractSet)
    if taken_apart or not isinstance(value, Iterable):
        found = f"`{where}`: a state value is a tuple of fields, found {spark_type_name(value)}."
        hint = "pass a tuple, `(count,)` for a single field; to drop the state call `remove()`."
        raise TypeError(with_hint(found, hint))
    fields = tuple(_converted(field) for field in value)
    for position, field in enumerate(fields):
        _check_plain(where, f"[{position}]", field)
    return fields


def _converted(field: object) -> object:
    if isinstance(field, np.generic):
        return field.tolist()
    if isinstance(field, pd.Timedelta):
        return field.to_pytimedelta()
    if isinstance(field, pd.Timestamp):
        return field.to_pydatetime()
    return field


def _check_plain(where: str, path: str, field: object) -> None:
    if isinstance(field, dict):
        for key, item in field.items():
            _check_plain(where, f"{path}[{key!r}]", item)
    elif isinstance(field, list | tuple):
        for position, item in enumerate(field):
            _check_plain(where, f"{path}[{position}]", item)
    elif type(field) not in _PLAIN_TYPES:
        found = f"`{where}`: {path} of the state value is {spark_type_name(field)}, which Spark "
        found += "cannot store: the task fails, or the field becomes NULL."
        hint = "convert it to a plain Python value first, `None` for a missing one."
        raise TypeError(with_hint(found, hint))


def epoch_ms(when: dt.datetime) -> float:
    """Give epoch milliseconds, to the microsecond; a naive time is the machine's."""
    if pd.isna(when):
        found = "`setTimeoutTimestamp(timestampMs)`: a time is needed, found NaT."
        hint = "drop rows without an event time before the timer is computed."
        raise ValueError(with_hint(found, hint))
    if isinstance(when, pd.Timestamp):
        when = when.to_pydatetime(warn=False)
    return (when.astimezone(dt.UTC) - _EPOCH) / dt.timedelta(milliseconds=1)


def positive_ms(where: str, value: object) -> float:
    """Let pass what survives the trip to Spark: an `int` or `float` above 0, within 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise not_a_number(where, value)
    if value <= 0:
        found = f"`{where}`: a positive number of milliseconds is needed, found {value!r}."
        raise ValueError(with_hint(found, "to leave the key without a timer, set none."))
    if not value <= _MAX_LONG:
        found = f"`{where}`: {value!r} does not fit a 64-bit number of milliseconds."
        raise ValueError(with_hint(found, "check that the unit is milliseconds."))
    return value


def not_a_number(where: str, value: object) -> TypeError:
    """Make the error for a timeout of a type that Spark's worker cannot send back."""
    kind = spark_type_name(value)
    found = f"`{where}`: a number of milliseconds is needed, found {value!r} ({kind})."
    hint = "pass `int(...)`; a NumPy integer passes Spark's setter and then fails the task."
    return TypeError(with_hint(found, hint))


def whole_ms(name: str, value: SupportsIndex) -> int:
    """Give the reading of a clock as a plain `int`; refuse a negative one."""
    try:
        moment = operator.index(value)
    except TypeError:
        kind = spark_type_name(value)
        found = f"`{name}`: epoch milliseconds as an `int` are needed, found {value!r} ({kind})."
        hint = "pass `int(when.timestamp() * 1000)` of an aware datetime."
        raise TypeError(with_hint(found, hint)) from None
    if moment < 0:
        found = f"`{name}`: found {moment}; Spark's clocks start at 0, the epoch."
        hint = "pass 0 for the watermark of a first batch, None for no watermark."
        raise ValueError(with_hint(found, hint))
    return moment


def later(name: str, before: int | None, after: int | None) -> int | None:
    """Return a clock at the next call, by default where it was; refuse one that goes back."""
    if before is not None and after is not None and after < before:
        found = f"`next_call({name}={after})`: the clock stands at {before}, and never goes back."
        raise ValueError(with_hint(found, f"pass a `{name}` of at least {before}."))
    return before if after is None else after


def spark_type_name(value: object) -> str:
    """Name the type of the value, with its module unless it is a builtin."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
