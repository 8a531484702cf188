"""What a user writes: the spec of a session, a frozen value that is valid once it exists."""

from collections import namedtuple
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from keyword import iskeyword
from typing import Any, Final, Generic, Literal, TypeVar

import attrs

from sessionkit._functions import check_function
from sessionkit._instants import Duration, duration, span_us
from sessionkit._session_id import KEY_TYPES
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import Field, OptionalType, codec_of, field_type
from sessionkit.timeouts import EventTimeGap
from sessionkit.typing import FinishResult

__all__ = ["REJECTED_COLUMNS", "SESSION_COLUMNS", "Session", "SessionSpec", "key_class"]

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")

MILLISECOND: Final = timedelta(milliseconds=1)
LARGEST_BUCKET_COUNT: Final = 65_536
SESSION_COLUMNS: Final = ("session_id", "session_start", "session_end")
"""The columns that sessionkit adds to every result row, behind those of the key."""
REJECTED_COLUMNS: Final = ("reason", "event_time")
"""The columns that rejected rows add, before the carried ones; `kind` comes before all."""


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


@lru_cache(maxsize=256)
def key_class(names: tuple[str, ...]) -> Any:
    """Return the named tuple in which the functions of the user get the key."""
    return namedtuple("Key", names)  # noqa: PYI024 (the names come from the spec)


def _choice(*options: str) -> Any:
    def check(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
        if value not in options:
            found = f"`{attribute.name}` must be one of {', '.join(map(repr, options))}"
            raise SpecError(
                with_hint(f"{found}, found {value!r}", f"the default is {options[0]!r}")
            )

    return attrs.validators.and_(check)


def _at_least_one(_: Any, attribute: "attrs.Attribute[int]", value: object) -> None:
    if type(value) is not int or value < 1:
        found = f"`{attribute.name}` must be a whole number from 1, found {value!r}"
        raise SpecError(with_hint(found, f"leave it out for the default, {attribute.default}"))


def _column_name(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or not value:
        found = f"`{attribute.name}` must be the name of a column, found {value!r}"
        raise SpecError(with_hint(found, f'write {attribute.name}="ts"'))


def _read_delay(value: Duration) -> timedelta:
    return duration(value, "watermark_delay", zero_allowed=True)


def _read_skew(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "max_future_skew")


def _read_horizon(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "late_horizon")


def _read_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    return _copied(value, "keys")


def _read_carry(value: Mapping[str, Any]) -> dict[str, Any]:
    return _copied(value, "carry")


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
        late: Which window must be over for an event to be late. `"own"`: its own, event time +
            gap, as in Spark. `"merged"`: that of the session it would join, as in Flink.
        nulls: `"quarantine"` counts rows with a null where there must be none, and leaves them
            out; `"refuse"` makes nullable columns an error on the driver.
        on_error: `"raise"` stops the query where a function raises; `"reject"` counts the event
            as failed and folds the session without it.
        max_future_skew: An event time further ahead of the processing time than this is
            quarantined before it can move the watermark. None lets every time pass.
        late_horizon: How far behind the watermark events still reach sessionkit, to be counted as
            late rather than dropped by Spark; at least the longest gap, which is the default.
        max_held_per_key: How many events a key may hold under `order="event_time"`; those beyond,
            in time order, are quarantined.
        carry: Columns and their types that travel with an event only to be shown where it is
            rejected, such as an offset or the raw payload.
        bucket_count: Into how many groups the keys are hashed. Fixed for the life of a checkpoint.
        state_version: Raise it when stored state must not be read by this code any more.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """

    keys: Mapping[str, Any] = attrs.field(converter=_read_keys)
    event_time: str = attrs.field(validator=_column_name)
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
        default="arrival", validator=_choice("arrival", "event_time")
    )
    late: Literal["own", "merged"] = attrs.field(default="own", validator=_choice("own", "merged"))
    nulls: Literal["quarantine", "refuse"] = attrs.field(
        default="quarantine", validator=_choice("quarantine", "refuse")
    )
    on_error: Literal["raise", "reject"] = attrs.field(
        default="raise", validator=_choice("raise", "reject")
    )
    max_future_skew: timedelta | None = attrs.field(default=timedelta(days=1), converter=_read_skew)
    late_horizon: timedelta | None = attrs.field(default=None, converter=_read_horizon)
    max_held_per_key: int = attrs.field(default=100_000, validator=_at_least_one)
    carry: Mapping[str, Any] = attrs.field(factory=dict, converter=_read_carry)
    bucket_count: int = attrs.field(default=64, validator=_at_least_one)
    state_version: int = attrs.field(default=1, validator=_at_least_one)

    def __attrs_post_init__(self) -> None:
        """Check what the single fields cannot see."""
        _check_columns(self)
        _check_functions(self)
        _check_times(self)
        if self.bucket_count > LARGEST_BUCKET_COUNT:
            found = f"`bucket_count` must be at most {LARGEST_BUCKET_COUNT:,}"
            hint = "64 to 1,024 serve most streams; see docs/explanation/buckets.md"
            raise SpecError(with_hint(f"{found}, found {self.bucket_count:,}", hint))

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns, typed."""
        return _typed(self.keys, "keys")

    @property
    def carry_fields(self) -> tuple[Field, ...]:
        """The carried columns, typed; all may be null."""
        return tuple(
            attrs.evolve(field, type=OptionalType(field.type))
            for field in _typed(self.carry, "carry")
        )

    @property
    def horizon_ms(self) -> int:
        """How far Spark's watermark is declared behind the one in force, in milliseconds."""
        horizon = self.timeout.longest if self.late_horizon is None else self.late_horizon
        return -(-horizon // MILLISECOND)

    @property
    def delay_ms(self) -> int:
        """The watermark delay in milliseconds."""
        return self.watermark_delay // MILLISECOND


def _copied(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(column, str) for column in value):
        found = f"`{name}` must be a dict of column names and types, found {value!r}"
        raise SpecError(with_hint(found, f'write {name}={{"user_id": str}}'))
    return dict(value)


def _typed(columns: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    return tuple(
        Field(column, field_type(kind, f"{name}.{column}"), column)
        for column, kind in columns.items()
    )


def _check_columns(spec: SessionSpec[Any, Any, Any]) -> None:
    if not spec.keys:
        hint = 'write keys={"user_id": str}; for one global session add a constant column'
        raise SpecError(with_hint("`keys` must name at least one column, found none", hint))
    for field in spec.key_fields:
        if not isinstance(field.type, KEY_TYPES):
            found = f"the key column `{field.name}` cannot be a {spec.keys[field.name]}"
            hint = "use str, int, bool, bytes, date, datetime or Decimal; cast a float to Decimal"
            raise SpecError(with_hint(found, hint))
    for field in _typed(spec.carry, "carry"):
        if not (isinstance(field.type, KEY_TYPES) or field.type.plain):
            found = f"the carried column `{field.name}` cannot be a {spec.carry[field.name]}"
            hint = "carry plain columns; every one may be null, so none need be Optional"
            raise SpecError(with_hint(found, hint))
    _check_names(spec)
    for cls in (spec.event, spec.state, spec.result):
        codec_of(cls)


def _check_names(spec: SessionSpec[Any, Any, Any]) -> None:
    for name in spec.keys:
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            found = f"the key column `{name}` cannot be a field of a named tuple"
            raise SpecError(with_hint(found, "rename the column, with letters and digits only"))
    names = [*spec.carry, "kind", *REJECTED_COLUMNS, *spec.keys, *SESSION_COLUMNS]
    names += [field.name for field in codec_of(spec.result).type.fields]
    # Spark's names ignore case unless it is told otherwise.
    folded = [name.casefold() for name in names]
    doubled = [name for name in names if folded.count(name.casefold()) > 1]
    if doubled:
        found = f"the result would have two columns named `{doubled[-1]}`"
        hint = f"rename the column, or the field of {spec.result.__name__}"
        raise SpecError(with_hint(found, hint))


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
    if spec.watermark_delay % MILLISECOND:
        found = f"`watermark_delay` must be whole milliseconds, found {spec.watermark_delay}"
        raise SpecError(with_hint(found, "Spark's watermark counts in milliseconds: round it"))
    if spec.late_horizon is not None and span_us(spec.late_horizon) < span_us(spec.timeout.longest):
        found = (
            f"`late_horizon` must be at least the longest gap, {spec.timeout.longest}, "
            f"found {spec.late_horizon}"
        )
        raise SpecError(with_hint(found, "leave it out for the longest gap"))
