"""PySpark's `GroupState` for unit tests: the same contract, no pyspark, no JVM."""

import copy
import datetime as dt
from collections.abc import Iterable
from typing import Any, get_args

import attrs

from sessionkit.errors import with_hint
from sessionkit.testing.spark_values import (
    TimeoutConf,
    epoch_ms,
    later,
    not_a_number,
    positive_ms,
    state_value,
    whole_ms,
)

_NO_TIMESTAMP = -1


@attrs.frozen
class StoredGroup:
    """
    The row that Spark keeps for one key between two calls.

    Attributes:
        value: the state value; None for a row that holds nothing but a timer.
        timeout_timestamp_ms: the timer, epoch milliseconds of the query's timeout clock; None
            when no timer is set, so that only new data wakes the key.
    """

    value: tuple[Any, ...] | None
    timeout_timestamp_ms: int | None


@attrs.define(kw_only=True, eq=False, repr=False)
class FakeGroupState:
    """
    The `state` argument of a function written for `applyInPandasWithState`.

    It answers, converts and refuses as PySpark's own `GroupState` does, and adds what a test
    wants to see: `is_updated`, `is_removed`, `timeout_timestamp_ms`, `stored_after`, `next_call`.
    One object serves one call of the function, as in Spark.

    It is stricter than PySpark's class where Spark accepts a call and then fails the task or
    silently stores something else. It refuses at once:

    * a timeout that is neither `int` nor `float` (nor `datetime`, for a timestamp): NumPy
      integers pass Spark's setters, and the task then fails;
    * a timeout that is NaN, infinite or beyond 64 bits (Spark wraps it round and fires at once), or
      a `bool` (a duration of True is one millisecond in Spark, a timestamp of True fails the task);
    * a state value made of NumPy scalars below the top level, NumPy arrays, `pd.NA`, `pd.NaT` or
      objects of the user's own classes;
    * a state value that is text, a mapping or a set (Spark takes it apart into fields), or whose
      number of fields differs from that of the value before it.

    It does not know the state schema, so a field of the wrong plain type (an `int` for a double),
    which Spark stores as NULL, goes unnoticed.

    Args:
        value: the stored state value; None when there is none.
        timeout: the query's timeout mode.
        watermark_ms: event-time watermark of this batch, epoch milliseconds; 0 in the first
            batch of a query, None when the query declares no watermark.
        processing_time_ms: processing time of this batch, epoch milliseconds.
        has_timed_out: whether Spark calls because the timer fired, without data.
        stored_timeout_ms: the timer stored by an earlier call, on the clock of `timeout`. When
            the call is a timeout, the default is the latest timer that fires: one millisecond
            before the clock, because Spark fires on strictly less.

    Raises:
        TypeError: a clock is not an integer, or `value` is not a tuple of plain values.
        ValueError: Spark never makes such a call, say a timeout while timeouts are off.
    """

    _value: tuple[Any, ...] | None = None
    _timeout: TimeoutConf = "NoTimeout"
    _watermark_ms: int | None = None
    _processing_time_ms: int = 0
    _has_timed_out: bool = False
    _stored_timeout_ms: int | None = None
    _stored: StoredGroup | None = attrs.field(init=False)
    _updated: bool = attrs.field(default=False, init=False)
    _removed: bool = attrs.field(default=False, init=False)
    _armed_ms: int | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Check the call against what Spark can do, and fix the stored row."""
        if self._value is not None:
            self._value = copy.deepcopy(state_value("value", self._value))
        if self._watermark_ms is not None:
            self._watermark_ms = whole_ms("watermark_ms", self._watermark_ms)
        self._processing_time_ms = whole_ms("processing_time_ms", self._processing_time_ms)
        if self._timeout not in get_args(TimeoutConf):
            known = ", ".join(get_args(TimeoutConf))
            found = f"`timeout`: one of {known} is needed, found {self._timeout!r}."
            hint = "the names are those of PySpark's `GroupStateTimeout`."
            raise ValueError(with_hint(found, hint))
        if self._timeout == "EventTimeTimeout" and self._watermark_ms is None:
            found = '`timeout="EventTimeTimeout"` without a watermark: Spark refuses such a query.'
            hint = "pass `watermark_ms=...`; it is 0 in the first batch of a query."
            raise ValueError(with_hint(found, hint))
        self._stored_timeout_ms = self._checked_stored_timeout()
        self._stored = _row(self._value, self._stored_timeout_ms)

    @property
    def exists(self) -> bool:
        """Whether the key has a state value; false again after `remove`."""
        return self._value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """
        The state value, one element for each field.

        Raises:
            ValueError: there is none (PySpark: STATE_NOT_EXISTS).
        """
        if self._value is None:
            found = "`state.get`: the key has no state value."
            hint = "ask `state.exists` first, or use `state.getOption`, which gives None."
            raise ValueError(with_hint(found, hint))
        return self._value

    @property
    def getOption(self) -> tuple[Any, ...] | None:  # noqa: N802 - PySpark's name
        """The state value, or None when there is none."""
        return self._value

    @property
    def hasTimedOut(self) -> bool:  # noqa: N802 - PySpark's name
        """Whether Spark calls because the timer of the key fired."""
        return self._has_timed_out

    @property
    def oldTimeoutTimestamp(self) -> int:  # noqa: N802 - PySpark's name
        """Always -1: Spark never tells the Python function about the stored timer."""
        return _NO_TIMESTAMP

    @property
    def is_updated(self) -> bool:
        """Whether this call gave the key a value and did not remove it afterwards."""
        return self._updated

    @property
    def is_removed(self) -> bool:
        """Whether this call removed the value and gave no new one afterwards."""
        return self._removed

    @property
    def timeout_timestamp_ms(self) -> int | None:
        """
        The timer armed by this call, epoch milliseconds; None when the call armed none.

        It is on the clock of the query's timeout mode: event time or processing time.
        """
        return self._armed_ms

    def update(self, newValue: Iterable[Any]) -> None:  # noqa: N803 - PySpark's name
        """
        Give the key a new state value.

        Top-level NumPy scalars, `pd.Timestamp` and `pd.Timedelta` become Python values, as in
        PySpark. A timer stored by an earlier call is cleared unless this call sets a new one.

        Raises:
            TypeError: `newValue` is None (PySpark: CANNOT_BE_NONE), is not a sequence of fields,
                or holds something that a state row cannot hold.
            ValueError: the number of fields differs from that of the value before.
        """
        value = state_value("update(newValue)", newValue)
        stored = self._stored.value if self._stored else None
        before = stored if self._value is None else self._value
        if before is not None and len(before) != len(value):
            found = f"`update(newValue)`: the state value has {len(before)} fields, the new one "
            found += f"has {len(value)}; Spark fails the task on it."
            hint = "give one element for each field of the state schema, in its order."
            raise ValueError(with_hint(found, hint))
        self._value = value
        self._updated, self._removed = True, False

    def remove(self) -> None:
        """
        Remove the state value.

        A timer stored by an earlier call goes too. A timer set by this call, before or after,
        keeps a row without a value, and fires.
        """
        self._value = None
        self._updated, self._removed = False, True

    def setTimeoutDuration(self, durationMs: float) -> None:  # noqa: N802, N803 - PySpark's names
        """
        Arm the timer `durationMs` milliseconds of processing time from now.

        Raises:
            TypeError: not an `int` or a `float`; text is not supported by PySpark either.
            RuntimeError: the timeout mode is not ProcessingTimeTimeout.
            ValueError: not positive, or not a number that fits 64 bits.
        """
        where = "setTimeoutDuration(durationMs)"
        if isinstance(durationMs, str):
            # PySpark looks at text before it looks at the timeout mode, and at the rest after.
            raise not_a_number(where, durationMs)
        self._require_timeout_conf("setTimeoutDuration", "ProcessingTimeTimeout")
        duration = positive_ms(where, durationMs)
        self._armed_ms = int(duration + self._processing_time_ms)

    def setTimeoutTimestamp(  # noqa: N802 - PySpark's name
        self,
        timestampMs: float | dt.datetime,  # noqa: N803 - PySpark's name
    ) -> None:
        """
        Arm the timer at an event time: epoch milliseconds, or a `datetime`.

        Fractions of a millisecond are cut off. A naive `datetime` is read in the time zone of the
        machine, as PySpark does on its workers: give an aware one.

        Raises:
            RuntimeError: the timeout mode is not EventTimeTimeout.
            TypeError: not an `int`, a `float` or a `datetime`.
            ValueError: not positive, not a number that fits 64 bits, or before the current
                watermark (PySpark: INVALID_TIMEOUT_TIMESTAMP); equal to it is accepted.
        """
        self._require_timeout_conf("setTimeoutTimestamp", "EventTimeTimeout")
        raw = epoch_ms(timestampMs) if isinstance(timestampMs, dt.datetime) else timestampMs
        timestamp = positive_ms("setTimeoutTimestamp(timestampMs)", raw)
        if self._watermark_ms is not None and timestamp < self._watermark_ms:
            found = f"`setTimeoutTimestamp(timestampMs)`: {timestamp} is before the current "
            hint = "pass `max(timestamp_ms, state.getCurrentWatermarkMs())`; a row that is only "
            hint += "just on time can be before the watermark of its own batch."
            raise ValueError(with_hint(f"{found}watermark, {self._watermark_ms}.", hint))
        self._armed_ms = int(timestamp)

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 - PySpark's name
        """
        Give the event-time watermark of this batch, epoch milliseconds; 0 in the first batch.

        Raises:
            RuntimeError: the query declares no watermark.
        """
        if self._watermark_ms is None:
            found = "`state.getCurrentWatermarkMs()`: the query has no watermark."
            hint = "build the state with `watermark_ms=...`, and the query with `withWatermark`."
            raise RuntimeError(with_hint(found, hint))
        return self._watermark_ms

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - PySpark's name
        """Give the processing time of this batch, epoch milliseconds; a call doesn't change it."""
        return self._processing_time_ms

    def stored_after(self) -> StoredGroup | None:
        """
        Return the row that Spark keeps once the call is over; None when it keeps none.

        Spark writes a row when the call updated, removed or armed a timer, and then with the
        timer of this call only: `update` alone clears the old timer. A call that did none of
        these leaves the row as it was, timer included, so a timeout that does nothing fires again
        in every later batch. `remove` without a timer deletes the row.
        """
        if self._updated or self._removed or self._armed_ms is not None:
            return _row(self._value, self._armed_ms)
        return copy.deepcopy(self._stored)

    def next_call(
        self,
        *,
        watermark_ms: int | None = None,
        processing_time_ms: int | None = None,
        has_timed_out: bool = False,
    ) -> "FakeGroupState":
        """
        Make the state of the next call for this key: what this call stored, and later clocks.

        Args:
            watermark_ms: event-time watermark of the later batch; by default the same.
            processing_time_ms: processing time of the later batch; by default the same.
            has_timed_out: whether that call is a timeout.

        Raises:
            ValueError: a clock goes back, or `has_timed_out` and no stored timer is before the
                clock, so that Spark would not call.
        """
        watermark_ms = later("watermark_ms", self._watermark_ms, watermark_ms)
        now_ms = later("processing_time_ms", self._processing_time_ms, processing_time_ms)
        row = self.stored_after() or StoredGroup(None, None)
        if has_timed_out and row.timeout_timestamp_ms is None:
            found = "`next_call(has_timed_out=True)`: no timer is stored for the key."
            hint = "the function has to set the timer again in every call that updates."
            raise ValueError(with_hint(found, hint))
        return FakeGroupState(
            value=row.value,
            timeout=self._timeout,
            watermark_ms=watermark_ms,
            processing_time_ms=now_ms or 0,
            has_timed_out=has_timed_out,
            stored_timeout_ms=row.timeout_timestamp_ms,
        )

    def __str__(self) -> str:
        """Give the text of PySpark's class."""
        return f"GroupState({self._value if self.exists else '<undefined>'})"

    def __repr__(self) -> str:
        """Show what a failing test asks about first."""
        return (
            f"FakeGroupState(value={self._value}, timeout={self._timeout!r}, "
            f"is_updated={self._updated}, is_removed={self._removed}, "
            f"timeout_timestamp_ms={self._armed_ms})"
        )

    def _require_timeout_conf(self, method: str, needed: TimeoutConf) -> None:
        if self._timeout != needed:
            found = f"`state.{method}` needs {needed}; this state has {self._timeout}."
            hint = f'build the state with `timeout="{needed}"`, and the query with it.'
            raise RuntimeError(with_hint(found, hint))

    def _checked_stored_timeout(self) -> int | None:
        stored = self._stored_timeout_ms
        if stored is not None:
            stored = whole_ms("stored_timeout_ms", stored)
        if self._timeout == "NoTimeout":
            if stored is not None or self._has_timed_out:
                found = "`has_timed_out` and `stored_timeout_ms` need a timeout mode."
                hint = 'pass `timeout="EventTimeTimeout"` or `timeout="ProcessingTimeTimeout"`.'
                raise ValueError(with_hint(found, hint))
            return None
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


def _row(value: tuple[Any, ...] | None, timer: int | None) -> StoredGroup | None:
    """Copy the value: Spark pickles it, so a list changed later in place changes no stored row."""
    if value is None and timer is None:
        return None
    return StoredGroup(copy.deepcopy(value), timer)
