"""What a user writes: the spec of a session, a frozen value that is valid once it exists."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import attrs

from sessionkit._functions import check_function
from sessionkit._instants import LAST_INSTANT_US, Duration, duration, span_us
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
from sessionkit.state import DatetimeType, Field, FieldType, StrType, codec_of
from sessionkit.timeouts import Clock, EventTimeGap
from sessionkit.typing import FinishResult

__all__ = ["SESSION_COLUMNS", "AnySessionSpec", "Session", "SessionSpec"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")

SESSION_COLUMNS: Final = ("session_id", "session_start", "session_end")
"""The columns that sessionkit adds to every result row, behind those of the key."""


@attrs.frozen
class Session:
    """
    A closed session, as `finish` is given it. All times are event time, in UTC.

    Attributes:
        key: The key: a named tuple with the columns of `SessionSpec.keys`.
        id: A hash of key and start, the same in every run and for every cut into batches.
        start: The time of the first event.
        end: The time of the last event plus the gap, exclusive.
        events: How many events were folded.
    """

    key: Any
    id: str
    start: datetime
    end: datetime
    events: int


def _read_delay(value: Duration) -> timedelta:
    return duration(value, "watermark_delay", zero_allowed=True)


def _read_retention(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "late_retention")


@attrs.frozen(kw_only=True)
class SessionSpec(Generic[E, S, R]):
    """
    The definition of a session: what is read, how it is folded, when it is over.

    The same spec runs on a stream, on a batch and in a test. All times are event time.

    Attributes:
        keys: The key columns and their types: str, int, bool, bytes, date, datetime or Decimal.
        event_time: The timestamp column that says when an event happened.
        event: The attrs class of an event. Its fields name the columns that are read, and their
            types; nothing else crosses to Python. A null in a field that is not Optional
            quarantines the row.
        state: The attrs class of the state of an open session.
        result: The attrs class of a result row. Its fields become columns, behind those of the
            key and `session_id`, `session_start`, `session_end`.
        create: `create(key, event) -> state`, for the first event of a session.
        update: `update(state, event) -> state`, for each further event. It may change the state
            that it is given and return that.
        merge: `merge(left, right) -> state`, for two open sessions that an event between them
            bridges; `left` starts first. A spec without it must say `order="event_time"`, where
            no event can come between.
        finish: `finish(session, state)` for a session that is over: a result row, several, or
            None. Called once a session.
        timeout: When a session is over, an `EventTimeGap`.
        watermark_delay: How far the watermark trails behind the latest event time seen: how late
            an event may come and still be counted for certain.
        order: `"arrival"` folds events as they come, in time order within a micro-batch, so
            `create`, `update` and `merge` must give the same for any order. `"event_time"` holds
            events until the watermark passes them and folds them in time order.
        late_by: Which window must be over for an event to be late. `"event"`: its own, event time +
            gap, as in Spark. `"session"`: that of the session it would join, as in Flink.
        nulls: `"reject"` counts rows with a null where there must be none, and leaves them
            out; `"refuse"` makes nullable columns an error on the driver.
        on_error: `"raise"` stops the query where a function raises; `"reject"` counts the event
            as failed and folds the session without it.
        max_future_skew: An event time further ahead of the processing time than this is
            quarantined before it can move the watermark. None lets every time pass.
        late_retention: How far behind the watermark events still reach sessionkit, to be counted as
            late rather than dropped by Spark; at least the longest gap. By default the longest gap
            plus 7 days.
        max_buffered_per_key: How many events of a key may wait under `order="event_time"`; those
            beyond, in time order, are quarantined.
        passthrough: Columns and their types that travel with an event only to be shown where it is
            rejected, such as an offset or the raw payload.
        bucket_count: Into how many groups the keys are hashed. Fixed for the life of a checkpoint.
        state_version: Raise it when stored state must not be read by this code any more.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    keys: Mapping[str, Any] = attrs.field(converter=read_keys)
    event_time: str = attrs.field(validator=column_name)
    event: type[E]
    state: type[S]
    result: type[R]
    create: Callable[[Any, E], S]
    update: Callable[[S, E], S]
    merge: Callable[[S, S], S] | None = None
    finish: Callable[[Session, S], FinishResult[R]]
    timeout: EventTimeGap
    watermark_delay: timedelta = attrs.field(converter=_read_delay)
    order: Literal["arrival", "event_time"] = attrs.field(
        default="arrival", validator=choice("arrival", "event_time")
    )
    late_by: Literal["event", "session"] = attrs.field(
        default="event", validator=choice("event", "session")
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
    bucket_count: int = attrs.field(default=64, validator=at_least_one)
    state_version: int = attrs.field(default=1, validator=at_least_one)
    row_kind: ClassVar = "session"
    layout: ClassVar = "buckets"
    clock: ClassVar[Clock] = "event_time"

    def __attrs_post_init__(self) -> None:
        """Check what the single fields cannot see."""
        check_columns(self.keys, self.passthrough, self.result, SESSION_COLUMNS)
        for cls in (self.event, self.state):
            codec_of(cls)
        _check_functions(self)
        _check_times(self)
        check_bucket_count(self.bucket_count)

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
        """The columns of a result row: key, session and the fields of the result."""
        types: tuple[FieldType, ...] = (StrType(), DatetimeType(), DatetimeType())
        own = [Field(name, kind, name) for name, kind in zip(SESSION_COLUMNS, types, strict=True)]
        return (*self.key_fields, *own, *codec_of(self.result).type.fields)

    @property
    def latest_event_us(self) -> int:
        """The last event time whose session still ends within the years of a `datetime`."""
        return LAST_INSTANT_US - span_us(longest_span(self.timeout))

    @property
    def retention_ms(self) -> int:
        """How far Spark's watermark is declared behind the one in force, in milliseconds."""
        return retention_in_ms(self.late_retention, self.timeout.longest)

    @property
    def delay_ms(self) -> int:
        """The watermark delay in milliseconds."""
        return self.watermark_delay // MILLISECOND

    @property
    def create_takes_time(self) -> bool:
        """Whether `create` is given the event's time too."""
        return False

    @property
    def update_takes_time(self) -> bool:
        """Whether `update` is given the event's time too."""
        return False


def _check_functions(spec: SessionSpec[Any, Any, Any]) -> None:
    check_function(spec.create, "create", key=None, event=spec.event)
    check_function(spec.update, "update", state=spec.state, event=spec.event)
    check_function(spec.finish, "finish", session=Session, state=spec.state)
    if spec.merge is not None:
        check_function(spec.merge, "merge", left=spec.state, right=spec.state)
    elif spec.order != "event_time":
        found = "`merge` is missing: an event may bridge two open sessions"
        hint = 'pass merge=..., or order="event_time", where no event can come between'
        raise SpecError(with_hint(found, hint))


def _check_times(spec: SessionSpec[Any, Any, Any]) -> None:
    if not isinstance(spec.timeout, EventTimeGap):
        found = f"`timeout` of a session must be an EventTimeGap, found {spec.timeout!r}"
        raise SpecError(with_hint(found, 'write timeout=EventTimeGap("30 minutes")'))
    if callable(spec.timeout.gap):
        check_function(spec.timeout.gap, "gap", event=spec.event)
    check_whole_milliseconds(spec.watermark_delay, "watermark_delay")
    if spec.late_retention is not None and span_us(spec.late_retention) < span_us(
        spec.timeout.longest
    ):
        found = (
            f"`late_retention` must be at least the longest gap, {spec.timeout.longest}, "
            f"found {spec.late_retention}"
        )
        raise SpecError(with_hint(found, "leave it out for the longest gap plus 7 days"))


AnySessionSpec: TypeAlias = SessionSpec[Any, Any, Any]
