"""What a user writes for state per key that is no session: a spec, and what it may return."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._functions import check_function
from sessionkit._instants import LAST_INSTANT_US, Duration, duration, span_us
from sessionkit._key_view import BatchTimes, KeyState, KeyTimes, TimerRules
from sessionkit._spec import (
    MILLISECOND,
    at_least_one,
    check_bucket_count,
    check_columns,
    check_whole_milliseconds,
    choice,
    column_name,
    longest_span,
    optional_columns,
    read_keys,
    read_passthrough,
    read_skew,
    retention_in_ms,
    typed_columns,
)
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import Field, codec_of
from sessionkit.timeouts import Clock, EventTimeGap, FirstOf, TimeoutPolicy, deadlines_of
from sessionkit.typing import FinishResult

__all__ = [
    "AnyStatefulSpec",
    "BucketResult",
    "ByBucket",
    "ByFrame",
    "Handler",
    "StatefulSpec",
    "by_bucket",
    "by_frame",
]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")

Handler: TypeAlias = Literal["events", "frame", "bucket"]


@attrs.frozen
class BucketResult:
    """
    What a function under `by_bucket` returns.

    Attributes:
        states: The state of each key that has one from now on, a row a key: key columns and the
            fields of the state. A key that was handed in and is not here is forgotten.
        results: Result rows: key columns and the fields of the result; None for no rows.
    """

    states: pa.Table
    results: pa.Table | None = None


@attrs.frozen
class ByFrame(Generic[S, R]):
    """A function that takes the events of a key as a DataFrame; made by `by_frame`."""

    function: Callable[[Any, pd.DataFrame, KeyState[S], KeyTimes], FinishResult[R] | pd.DataFrame]


@attrs.frozen
class ByBucket:
    """A function that takes many keys at once as Arrow tables; made by `by_bucket`."""

    function: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult]


def by_frame(
    function: Callable[[Any, pd.DataFrame, KeyState[S], KeyTimes], FinishResult[R] | pd.DataFrame],
) -> ByFrame[S, R]:
    """
    Ask for the events of a key as a pandas DataFrame: `process=by_frame(function)`.

    The DataFrame has a column for the event time and one for each field of the event, and its rows
    come in the order of event time, then content. Validators and converters of the event class
    don't run.

    Args:
        function: `function(key, events, state, times)`. It returns what `process` returns, and it
            may also return a DataFrame with the fields of the result as columns.
    """
    return ByFrame(function)


def by_bucket(function: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult]) -> ByBucket:
    """
    Ask for all keys of a bucket at once, as Arrow tables: `process=by_bucket(function)`.

    Args:
        function: `function(events, states, times)`, called once for each bucket and micro-batch
            with events: the table of the events, in the order of key, event time and content, and
            that of the states of their keys, both with the key columns in front. `times` is a
            `BatchTimes`. It returns a `BucketResult`, and it can't set timers.
    """
    return ByBucket(function)


def _read_delay(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "watermark_delay", zero_allowed=True)


def _read_retention(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "late_retention", zero_allowed=True)


def _flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        found = f"`{attribute.name}` must be True or False, found {value!r}"
        raise SpecError(with_hint(found, "leave it out for False"))


@attrs.frozen(kw_only=True)
class StatefulSpec(Generic[E, S, R]):
    """
    The definition of logic over any state per key: what is read, what is kept, when it is over.

    The same spec runs on a stream, on a batch and in a test.

    Attributes:
        keys: The key columns and their types: str, int, bool, bytes, date, datetime or Decimal.
        event: The attrs class of an event. Its fields name the columns that are read, and their
            types; nothing else crosses to Python. A null in a field that is not Optional
            quarantines the row.
        state: The attrs class of the state of one key.
        result: The attrs class of a result row. Its fields become columns, behind those of the
            key.
        process: `process(key, events, state, times)`, called once for each key and micro-batch
            with events: a list of `event` objects in the order of event time, then content. It
            returns a result row, several, or None, or is a generator of rows. `state` is a
            `KeyState`, `times` a `KeyTimes`.
            For events as a DataFrame, or many keys at once as Arrow tables, pass
            `by_frame(function)` or `by_bucket(function)`.
        on_timer: `on_timer(key, name, state, times)`, called when a named timer of the key has
            gone off, or, with the name `event_time_gap`, `processing_time_gap` or `time_to_live`,
            when the timeout policy ends the key; after that call nothing of the key is kept.
        timeout: When a key is over: `EventTimeGap`, `ProcessingTimeGap`, `TimeToLive`, several
            of them joined with `|`, or `NoTimeout()` where `process` itself removes every state.
        event_time: The timestamp column that says when an event happened; None where none does.
            Events then come in the order of their content.
        watermark_delay: How far the watermark trails behind the latest event time seen. None:
            there is no watermark, no event is late, and no timer can be set in event time.
        processing_timers: Whether timers may be set in processing time. Spark then runs a
            micro-batch at every trigger, and with the `availableNow` trigger never ends.
        order: `"arrival"`, or `"event_time"`.
        late: What becomes of an event at or behind the watermark. `"reject"`: it is counted as
            late and left out. `"process"`: it is handed to `process` like any other, up to
            `late_retention` behind the watermark; what comes later than that Spark drops.
        nulls: `"reject"` counts rows with a null where there must be none, and leaves them
            out; `"refuse"` makes nullable columns an error on the driver.
        on_error: `"raise"` stops the query where a function raises; `"reject"` counts the events
            of that call as failed and leaves state and timers of the key as they were; a timer
            whose `on_timer` raises is gone, and so is a key that its policy ends, both reported as
            `failed_output`.
        max_future_skew: An event time further ahead of the processing time than this is
            quarantined before it can move the watermark. None lets every time pass.
        late_retention: How far behind the watermark events still reach sessionkit, to be counted as
            late or processed rather than dropped by Spark; 7 days by default. Of no effect with a
            clock in processing time, under which Spark drops nothing.
        max_buffered_per_key: How many events of a key may wait under `order="event_time"`.
        passthrough: Columns and their types that travel with an event only to be shown where it is
            rejected, such as an offset or the raw payload.
        layout: `"buckets"` packs many keys into one Spark group: microseconds a key.
            `"per_key"` gives each key a group and a row of state of its own, some milliseconds a
            key, whose columns Spark's own state reader shows.
        bucket_count: Into how many groups the keys are hashed. Fixed for the life of a checkpoint.
        state_version: Raise it when stored state must not be read by this code any more.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    keys: Mapping[str, Any] = attrs.field(converter=read_keys)
    event: type[E]
    state: type[S]
    result: type[R]
    process: (
        Callable[[Any, list[E], KeyState[S], KeyTimes], FinishResult[R]] | ByFrame[S, R] | ByBucket
    )
    on_timer: Callable[[Any, str, KeyState[S], KeyTimes], FinishResult[R]] | None = None
    timeout: TimeoutPolicy
    event_time: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(column_name)
    )
    watermark_delay: timedelta | None = attrs.field(default=None, converter=_read_delay)
    processing_timers: bool = attrs.field(default=False, validator=_flag)
    order: Literal["arrival", "event_time"] = attrs.field(
        default="arrival", validator=choice("arrival", "event_time")
    )
    late: Literal["reject", "process"] = attrs.field(
        default="reject", validator=choice("reject", "process")
    )
    nulls: Literal["reject", "refuse"] = attrs.field(
        default="reject", validator=choice("reject", "refuse")
    )
    on_error: Literal["raise", "reject"] = attrs.field(
        default="raise", validator=choice("raise", "reject")
    )
    max_future_skew: timedelta | None = attrs.field(default=timedelta(days=1), converter=read_skew)
    late_retention: timedelta | None = attrs.field(default=None, converter=_read_retention)
    max_buffered_per_key: int = attrs.field(default=100_000, validator=at_least_one)
    passthrough: Mapping[str, Any] = attrs.field(factory=dict, converter=read_passthrough)
    layout: Literal["buckets", "per_key"] = attrs.field(
        default="buckets", validator=choice("buckets", "per_key")
    )
    bucket_count: int = attrs.field(default=64, validator=at_least_one)
    state_version: int = attrs.field(default=1, validator=at_least_one)
    row_kind: ClassVar = "result"

    def __attrs_post_init__(self) -> None:
        """Check what the single fields cannot see."""
        check_columns(self.keys, self.passthrough, self.result)
        for cls in (self.event, self.state):
            codec_of(cls)
        _check_clocks(self)
        _check_order(self)
        _check_functions(self)
        check_bucket_count(self.bucket_count)

    @property
    def handler(self) -> Handler:
        """How `process` takes events: as a list, as a DataFrame, or a whole bucket of keys."""
        if isinstance(self.process, ByFrame):
            return "frame"
        return "bucket" if isinstance(self.process, ByBucket) else "events"

    @property
    def function(self) -> Callable[..., Any]:
        """The function in `process`, without what `by_frame` or `by_bucket` put around it."""
        if isinstance(self.process, ByFrame | ByBucket):
            return self.process.function
        return self.process

    @property
    def clock(self) -> Clock | None:
        """
        The clock by which Spark wakes keys: the kind of timeout that its operator has.

        An operator has one kind. Where both clocks are needed it is that of processing time, under
        which every bucket with an event timer is looked at in each micro-batch.
        """
        clocks = {deadline.clock for deadline in deadlines_of(self.timeout)}
        if self.processing_timers or "processing_time" in clocks:
            return "processing_time"
        return None if self.watermark_delay is None else "event_time"

    @property
    def timer_rules(self) -> TimerRules:
        """Which timers the functions may set."""
        return TimerRules(
            on_timer=self.on_timer is not None,
            event_time=self.watermark_delay is not None,
            processing_time=self.processing_timers,
            reserved=POLICY_NAMES,
        )

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns, typed."""
        return typed_columns(self.keys, "keys")

    @property
    def passthrough_fields(self) -> tuple[Field, ...]:
        """The carried columns, typed; all may be null."""
        return optional_columns(self.passthrough)

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of a result row: those of the key and the fields of the result."""
        return (*self.key_fields, *codec_of(self.result).type.fields)

    @property
    def latest_event_us(self) -> int:
        """The last event time whose deadlines still lie within the years of a `datetime`."""
        return LAST_INSTANT_US - span_us(longest_span(self.timeout))

    @property
    def retention_ms(self) -> int:
        """How far Spark's watermark is declared behind the one in force, in milliseconds."""
        if self.clock != "event_time":
            return 0
        return retention_in_ms(self.late_retention, timedelta(0))

    @property
    def delay_ms(self) -> int | None:
        """The watermark delay in milliseconds; None where there is no watermark."""
        return None if self.watermark_delay is None else self.watermark_delay // MILLISECOND


POLICY_NAMES: Final = frozenset({"event_time_gap", "processing_time_gap", "time_to_live"})


def _check_clocks(spec: StatefulSpec[Any, Any, Any]) -> None:
    policy = spec.timeout
    if not isinstance(policy, TimeoutPolicy):
        found = f"`timeout` must be a policy, found {policy!r}"
        hint = 'write timeout=EventTimeGap("30 minutes"), TimeToLive("7 days") or NoTimeout()'
        raise SpecError(with_hint(found, hint))
    for part in policy.policies if isinstance(policy, FirstOf) else (policy,):
        if isinstance(part, EventTimeGap) and (callable(part.gap) or not part.gap_inclusive):
            found = (
                f"`timeout` of a StatefulSpec has one gap and no events to split, found {part!r}"
            )
            raise SpecError(with_hint(found, 'write EventTimeGap("30 minutes")'))
    if spec.watermark_delay is not None:
        check_whole_milliseconds(spec.watermark_delay, "watermark_delay")
        if spec.event_time is None:
            found = "`watermark_delay` needs an event time, and `event_time` is missing"
            raise SpecError(with_hint(found, 'add event_time="ts"'))
    elif any(deadline.clock == "event_time" for deadline in deadlines_of(policy)):
        found = f"`timeout` counts in event time, and there is no watermark: {policy!r}"
        raise SpecError(with_hint(found, 'add event_time="ts" and watermark_delay="10 minutes"'))
    elif spec.late_retention is not None or spec.late != "reject":
        found = "`late` and `late_retention` have no meaning without a watermark"
        raise SpecError(with_hint(found, 'add watermark_delay="10 minutes", or leave them out'))


def _check_order(spec: StatefulSpec[Any, Any, Any]) -> None:
    if spec.order != "event_time":
        return
    refused = '`order="event_time"`'
    if spec.watermark_delay is None:
        found = f"{refused} waits for the watermark, and there is none"
        hint = 'add event_time="ts" and watermark_delay="10 minutes"'
        raise SpecError(with_hint(found, hint))
    if spec.late == "process":
        found = f'{refused} has no place for the late events of `late="process"`'
        raise SpecError(with_hint(found, 'leave `late` out, or write order="arrival"'))
    if spec.handler != "events":
        found = f"{refused} hands out events as a list, and `process` is by_{spec.handler}(...)"
        hint = 'pass the function over a list of events, or write order="arrival"'
        raise SpecError(with_hint(found, hint))


def _check_functions(spec: StatefulSpec[Any, Any, Any]) -> None:
    wanted: Iterable[str] = ("key", "events", "state", "times")
    if spec.handler == "bucket":
        wanted = ("events", "states", "times")
        _check_bucket_names(spec)
    check_function(spec.function, "process", **dict.fromkeys(wanted))
    if spec.handler == "bucket" and spec.processing_timers:
        found = "`processing_timers` is asked for, and a function by_bucket(...) cannot set a timer"
        hint = "leave processing_timers out, or pass a function over the events of one key"
        raise SpecError(with_hint(found, hint))
    if spec.on_timer is not None:
        check_function(spec.on_timer, "on_timer", key=None, name=None, state=None, times=None)
    elif spec.processing_timers:
        found = "`processing_timers` is asked for, and there is no function to call for them"
        raise SpecError(with_hint(found, "add on_timer=..., or leave processing_timers out"))


def _check_bucket_names(spec: StatefulSpec[Any, Any, Any]) -> None:
    """Check that key and state can be columns of one table."""
    for field in codec_of(spec.state).type.fields:
        if field.name in spec.keys:
            found = f"a function by_bucket(...) would be given two columns named `{field.name}`"
            raise SpecError(with_hint(found, f"leave the key out of {spec.state.__name__}"))
    if spec.layout == "per_key":
        found = "by_bucket(...) folds many keys at once, and layout='per_key' has one a group"
        raise SpecError(with_hint(found, 'write layout="buckets", or pass by_frame(...)'))


AnyStatefulSpec: TypeAlias = StatefulSpec[Any, Any, Any]
