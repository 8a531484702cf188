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
    optional_columns,
    read_keys,
    read_passthrough,
    read_skew,
    typed_columns,
)
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import Field, codec_of
from sessionkit.timeouts import Clock, EventTimeGap, FirstOf, TimeoutPolicy, deadlines_of
from sessionkit.typing import FinishResult

__all__ = ["BucketResult", "Handler", "StatefulSpec"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")

Handler: TypeAlias = Literal["process", "process_frame", "process_bucket"]
HANDLERS: Final[tuple[Handler, ...]] = ("process", "process_frame", "process_bucket")
DEFAULT_RETENTION: Final = timedelta(hours=1)


@attrs.frozen
class BucketResult:
    """
    What `process_bucket` returns.

    Attributes:
        states: The state of each key that has one from now on, a row a key: key columns and the
            fields of the state. A key that was handed in and is not here is forgotten.
        results: Result rows: key columns and the fields of the result; None for no rows.
    """

    states: pa.Table
    results: pa.Table | None = None


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

    The same spec runs on a stream, on a batch and in a test. Exactly one of `process`,
    `process_frame` and `process_bucket` says what to do with the events of a micro-batch.

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
        process_frame: The same with a pandas DataFrame in place of the list: a column for the
            event time and each field of the event, its rows in the same order. It may also return
            a DataFrame with the fields of the result as columns. Validators and converters of the
            event class do not run.
        process_bucket: `process_bucket(events, states, times)`, called once for each bucket of
            keys and micro-batch with events: Arrow tables of the events, in the order of key,
            event time and content, and of the states of their keys, both with the key columns in
            front; `times` is a `BatchTimes`. It returns a `BucketResult`.
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
            late or processed rather than dropped by Spark; an hour by default. Of no effect with a
            clock in processing time, under which Spark drops nothing.
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
    process: Callable[[Any, list[E], KeyState[S], KeyTimes], FinishResult[R]] | None = None
    process_frame: (
        Callable[[Any, pd.DataFrame, KeyState[S], KeyTimes], FinishResult[R] | pd.DataFrame] | None
    ) = None
    process_bucket: Callable[[pa.Table, pa.Table, BatchTimes], BucketResult] | None = None
    on_timer: Callable[[Any, str, KeyState[S], KeyTimes], FinishResult[R]] | None = None
    timeout: TimeoutPolicy
    event_time: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(column_name)
    )
    watermark_delay: timedelta | None = attrs.field(default=None, converter=_read_delay)
    processing_timers: bool = attrs.field(default=False, validator=_flag)
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
        _check_functions(self)
        check_bucket_count(self.bucket_count)

    @property
    def handler(self) -> Handler:
        """Which of the three functions takes the events."""
        return next(name for name in HANDLERS if getattr(self, name) is not None)

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
        spans = [
            deadline.span
            for deadline in deadlines_of(self.timeout)
            if deadline.clock == "event_time"
        ]
        return LAST_INSTANT_US - span_us(max(spans, default=timedelta(0)))

    @property
    def retention_ms(self) -> int:
        """How far Spark's watermark is declared behind the one in force, in milliseconds."""
        if self.clock != "event_time":
            return 0
        retention = DEFAULT_RETENTION if self.late_retention is None else self.late_retention
        return -(-retention // MILLISECOND)

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


def _check_functions(spec: StatefulSpec[Any, Any, Any]) -> None:
    given = [name for name in HANDLERS if getattr(spec, name) is not None]
    if len(given) != 1:
        found = f"exactly one of {', '.join(HANDLERS)} must be given, found {given or 'none'}"
        raise SpecError(with_hint(found, "pass process=... for plain functions over events"))
    if spec.process_bucket is None:
        wanted: Iterable[str] = ("key", "events", "state", "times")
    else:
        wanted = ("events", "states", "times")
        _check_bucket_names(spec)
    check_function(getattr(spec, given[0]), given[0], **dict.fromkeys(wanted))
    if spec.process_bucket is not None and spec.processing_timers:
        found = "`processing_timers` is asked for, and `process_bucket` cannot set a timer"
        raise SpecError(with_hint(found, "leave processing_timers out, or pass process=..."))
    if spec.on_timer is not None:
        check_function(spec.on_timer, "on_timer", key=None, name=None, state=None, times=None)
    elif spec.processing_timers:
        found = "`processing_timers` is asked for, and there is no function to call for them"
        raise SpecError(with_hint(found, "add on_timer=..., or leave processing_timers out"))


def _check_bucket_names(spec: StatefulSpec[Any, Any, Any]) -> None:
    """Check that key and state can be columns of one table."""
    for field in codec_of(spec.state).type.fields:
        if field.name in spec.keys:
            found = f"`process_bucket` would be given two columns named `{field.name}`"
            raise SpecError(with_hint(found, f"leave the key out of {spec.state.__name__}"))
    if spec.layout == "per_key":
        found = "`process_bucket` folds many keys at once, and layout='per_key' has one a group"
        raise SpecError(with_hint(found, 'write layout="buckets", or pass process_frame'))
