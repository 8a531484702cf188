"""PySpark's `GroupState` for unit tests: no pyspark, no JVM."""

import copy
import datetime as dt
from collections.abc import Iterable
from typing import Any, Literal, get_args

import attrs
import numpy as np
import pandas as pd

from sessionkit.errors import with_hint

TimeoutConf = Literal["NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout"]
"""The timeout mode of a query, spelled as in PySpark's `GroupStateTimeout`."""

EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@attrs.frozen
class StoredGroup:
    """
    The row that Spark stores for a key between two calls.

    Attributes:
        value: The state value; None for a row with only a timer.
        timeout_timestamp_ms: The timer, in epoch milliseconds of the query's timeout clock; None
            without a timer: then only new data wakes the key.
    """

    value: tuple[Any, ...] | None
    timeout_timestamp_ms: int | None


@attrs.define(kw_only=True, eq=False, repr=False)
class FakeGroupState:
    """
    Stand in for Spark's `GroupState`, in a test of a function written for `applyInPandasWithState`.

    Pass it as the `state` argument. It answers, converts and refuses as PySpark's own `GroupState`
    does, with the same error types. For tests, it adds the attributes below, `stored_after`, and
    `next_call`. An object serves a single call of the function, as in Spark. It also refuses a
    timeout on which Spark fails later: one that is neither `int` nor `float` (nor `datetime`, for a
    timestamp), such as a NumPy integer.

    It doesn't know the state schema, so it accepts a value that doesn't fit the schema, although
    Spark fails the task or stores NULL.

    Args:
        value: The stored state value; None when there is none.
        timeout: The query's timeout mode.
        watermark_ms: The event-time watermark of this batch, in epoch milliseconds; 0 in the first
            batch of a query, None when the query declares no watermark.
        processing_time_ms: The processing time of this batch, in epoch milliseconds.
        has_timed_out: Whether Spark calls because the timer fired, without data.
        stored_timeout_ms: The timer stored by an earlier call, on the clock of `timeout`. When
            the call is a timeout, the default is the latest timer that fires: one millisecond
            before the clock, because Spark fires on strictly less.

    Attributes:
        is_updated: Whether this call set a value and didn't remove it afterwards.
        is_removed: Whether this call removed the value and set no new value afterwards.
        timeout_timestamp_ms: The timer set by this call, in epoch milliseconds of the query's
            timeout clock; None when the call set none.

    Raises:
        ValueError: Spark never makes such a call, for example a timeout while timeouts are off.
    """

    _value: tuple[Any, ...] | None = None
    _timeout: TimeoutConf = "NoTimeout"
    _watermark_ms: int | None = None
    _processing_time_ms: int = 0
    _has_timed_out: bool = False
    _stored_timeout_ms: int | None = None
    _stored: StoredGroup | None = attrs.field(init=False)
    is_updated: bool = attrs.field(default=False, init=False)
    is_removed: bool = attrs.field(default=False, init=False)
    timeout_timestamp_ms: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Check the call against what Spark can do, and copy the stored row."""
        if self._value is not None:
            self._value = copy.deepcopy(tuple(map(_converted, self._value)))
        if self._timeout not in get_args(TimeoutConf):
            known = ", ".join(get_args(TimeoutConf))
            found = f"`timeout`: one of {known} is needed, found {self._timeout!r}."
            hint = "write a name of PySpark's `GroupStateTimeout`."
            raise ValueError(with_hint(found, hint))
        if self._timeout == "EventTimeTimeout" and self._watermark_ms is None:
            found = '`timeout="EventTimeTimeout"` without a watermark: Spark refuses such a query.'
            hint = "pass `watermark_ms=...`; it is 0 in the first batch of a query."
            raise ValueError(with_hint(found, hint))
        self._stored = _row(self._value, self._stored_timer())

    def _stored_timer(self) -> int | None:
        stored = self._stored_timeout_ms
        if self._timeout == "NoTimeout" and (stored is not None or self._has_timed_out):
            found = "`has_timed_out` and `stored_timeout_ms` need a timeout mode."
            hint = 'pass `timeout="EventTimeTimeout"` or `timeout="ProcessingTimeTimeout"`.'
            raise ValueError(with_hint(found, hint))
        if not self._has_timed_out:
            return stored
        name, now = "processing_time_ms", self._processing_time_ms
        if self._timeout == "EventTimeTimeout":
            name, now = "watermark_ms", self._watermark_ms or 0
        timer = now - 1 if stored is None else stored
        if not 0 < timer < now:
            found = f"`has_timed_out=True`: a timer at {timer} does not fire at {name}={now}; "
            found += "Spark fires positive timers strictly before the clock."
            raise ValueError(with_hint(found, f"pass a `{name}` later than the timer."))
        return timer

    @property
    def exists(self) -> bool:
        """Whether the key has a state value; false again after `remove`."""
        return self._value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """The state value, a tuple with a value for each field; raises ValueError without one."""
        if self._value is None:
            found = "`state.get`: the key has no state value."
            hint = "ask `state.exists` first, or use `state.getOption`, which gives None."
            raise ValueError(with_hint(found, hint))
        return self._value

    @property
    def getOption(self) -> tuple[Any, ...] | None:  # noqa: N802 - PySpark's name
        """The state value, or None."""
        return self._value

    @property
    def hasTimedOut(self) -> bool:  # noqa: N802 - PySpark's name
        """Whether Spark calls because the timer of the key fired."""
        return self._has_timed_out

    @property
    def oldTimeoutTimestamp(self) -> int:  # noqa: N802 - PySpark's name
        """Always -1: Spark never passes the stored timer to the Python function."""
        return -1

    def update(self, newValue: Iterable[Any]) -> None:  # noqa: N803 - PySpark's name
        """
        Set a new state value.

        Top-level NumPy scalars, `pd.Timestamp` and `pd.Timedelta` become Python values, as in
        PySpark. A timer stored by an earlier call is cleared unless this call sets a new one.
        """
        self._value = tuple(map(_converted, newValue))
        self.is_updated, self.is_removed = True, False

    def remove(self) -> None:
        """
        Remove the state value.

        This also removes a timer stored by an earlier call. A timer set by this call, before or
        after, stays in a row without a value, and fires.
        """
        self._value = None
        self.is_updated, self.is_removed = False, True

    def setTimeoutDuration(self, durationMs: float) -> None:  # noqa: N802, N803 - PySpark's names
        """Set the timer to `durationMs` milliseconds of processing time from now."""
        # PySpark refuses text before it checks the timeout mode, and other types after.
        if not isinstance(durationMs, str):
            self._require_timeout("setTimeoutDuration", "ProcessingTimeTimeout")
        duration = _positive_ms("setTimeoutDuration(durationMs)", durationMs)
        self.timeout_timestamp_ms = int(duration + self._processing_time_ms)

    def setTimeoutTimestamp(  # noqa: N802 - PySpark's name
        self,
        timestampMs: float | dt.datetime,  # noqa: N803 - PySpark's name
    ) -> None:
        """
        Set the timer to an event time: epoch milliseconds, or a `datetime`.

        Fractions of a millisecond are truncated. Pass an aware `datetime`: a naive one is read in
        the time zone of the machine, as PySpark does on its workers. A time before the current
        watermark raises ValueError; a time equal to it is accepted.
        """
        self._require_timeout("setTimeoutTimestamp", "EventTimeTimeout")
        raw = _epoch_ms(timestampMs) if isinstance(timestampMs, dt.datetime) else timestampMs
        timestamp = _positive_ms("setTimeoutTimestamp(timestampMs)", raw)
        if self._watermark_ms is not None and timestamp < self._watermark_ms:
            found = (
                f"`setTimeoutTimestamp`: {timestamp} is before the watermark, {self._watermark_ms}"
            )
            hint = "pass `max(timestamp_ms, state.getCurrentWatermarkMs())`; a row that is only "
            hint += "just on time can be before the watermark of its own batch."
            raise ValueError(with_hint(found, hint))
        self.timeout_timestamp_ms = int(timestamp)

    def _require_timeout(self, method: str, needed: TimeoutConf) -> None:
        if self._timeout != needed:
            found = f"`state.{method}` needs {needed}; this state has {self._timeout}."
            hint = f'build the state with `timeout="{needed}"`, and the query with it.'
            raise RuntimeError(with_hint(found, hint))

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 - PySpark's name
        """Return the watermark of this batch, in epoch milliseconds; 0 in the first batch."""
        if self._watermark_ms is None:
            found = "`state.getCurrentWatermarkMs()`: the query has no watermark."
            hint = "build the state with `watermark_ms=...`, and the query with `withWatermark`."
            raise RuntimeError(with_hint(found, hint))
        return self._watermark_ms

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - PySpark's name
        """Return the processing time of this batch, in epoch milliseconds; fixed during a call."""
        return self._processing_time_ms

    def stored_after(self) -> StoredGroup | None:
        """
        Return the row that Spark stores after the call, with `value` and `timeout_timestamp_ms`.

        None if it stores none.

        A call that updated, removed or set a timer stores its value and the timer that it set:
        `update` without a timer clears the old timer, and `remove` without a timer deletes the row.
        Any other call leaves the row unchanged, with its timer. So a timeout call that does nothing
        fires again in every later batch.
        """
        if self.is_updated or self.is_removed or self.timeout_timestamp_ms is not None:
            return _row(self._value, self.timeout_timestamp_ms)
        return copy.deepcopy(self._stored)

    def next_call(
        self,
        *,
        watermark_ms: int | None = None,
        processing_time_ms: int | None = None,
        has_timed_out: bool = False,
    ) -> "FakeGroupState":
        """
        Return the state of the next call for this key: the stored row, at later clocks.

        Args:
            watermark_ms: The watermark of the later batch; by default the same.
            processing_time_ms: The processing time of the later batch; by default the same.
            has_timed_out: Whether that call is a timeout.

        Raises:
            ValueError: A clock goes back, or `has_timed_out` and no stored timer is before the
                clock, so that Spark would not call.
        """
        now_ms = _later("processing_time_ms", self._processing_time_ms, processing_time_ms)
        row = self.stored_after() or StoredGroup(None, None)
        if has_timed_out and row.timeout_timestamp_ms is None:
            found = "`next_call(has_timed_out=True)`: no timer is stored for the key."
            hint = "the function has to set the timer again in every call that updates."
            raise ValueError(with_hint(found, hint))
        return FakeGroupState(
            value=row.value,
            timeout=self._timeout,
            watermark_ms=_later("watermark_ms", self._watermark_ms, watermark_ms),
            processing_time_ms=now_ms or 0,
            has_timed_out=has_timed_out,
            stored_timeout_ms=row.timeout_timestamp_ms,
        )

    def __str__(self) -> str:
        """Return the same text as PySpark's class."""
        return f"GroupState({self._value if self.exists else '<undefined>'})"

    def __repr__(self) -> str:
        """Return the value and the effects of the call, for the messages of failing tests."""
        return (
            f"FakeGroupState(value={self._value}, timeout={self._timeout!r}, "
            f"is_updated={self.is_updated}, is_removed={self.is_removed}, "
            f"timeout_timestamp_ms={self.timeout_timestamp_ms})"
        )


def _row(value: tuple[Any, ...] | None, timer: int | None) -> StoredGroup | None:
    """Return a row with a copy of the value: Spark pickles it, so later changes aren't stored."""
    is_empty = value is None and timer is None
    return None if is_empty else StoredGroup(copy.deepcopy(value), timer)


def _converted(field: object) -> object:
    """Convert a field of a state value as PySpark does."""
    if field is pd.NaT or field is pd.NA:
        found = f"the state value has {field!r}, with which Spark's task fails."
        raise ValueError(with_hint(found, "store None for 'unknown'."))
    if isinstance(field, np.generic):
        return field.tolist()
    if isinstance(field, pd.Timedelta):
        return field.to_pytimedelta()
    return field.to_pydatetime() if isinstance(field, pd.Timestamp) else field


def _epoch_ms(when: dt.datetime) -> float:
    """Return epoch milliseconds, to the microsecond; a naive time is in the machine's zone."""
    if isinstance(when, pd.Timestamp):
        when = when.to_pydatetime(warn=False)
    return (when.astimezone(dt.UTC) - EPOCH) / dt.timedelta(milliseconds=1)


def _positive_ms(where: str, value: Any) -> float:
    """Check that a value is an `int` or `float` above 0, the types that Spark can read."""
    if not isinstance(value, int | float):
        found = f"`{where}`: a number of milliseconds is needed, found {value!r}."
        hint = "pass `int(...)`: a NumPy integer passes Spark's setter and then fails the task."
        raise TypeError(with_hint(found, hint))
    if not value > 0:
        found = f"`{where}`: a number of milliseconds above 0 is needed, found {value!r}."
        raise ValueError(with_hint(found, "for a key without a timer, set none."))
    return value


def _later(name: str, before: int | None, after: int | None) -> int | None:
    """Return a clock at the next call, by default unchanged; refuse a clock that goes back."""
    if before is not None and after is not None and after < before:
        found = f"`next_call({name}={after})`: the clock is at {before}, and never goes back."
        raise ValueError(with_hint(found, f"pass a `{name}` of at least {before}."))
    return before if after is None else after
