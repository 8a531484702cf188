"""What both kinds of spec share: the arguments, what follows from them, and their checks."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property, lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias

import attrs

from sessionkit._instants import LAST_INSTANT_US, Duration, duration, span_us
from sessionkit._validators import at_least_one, choice, column_name
from sessionkit.errors import SpecError, with_hint
from sessionkit.spec.columns import COUNTS_COLUMN, REJECTED_COLUMNS
from sessionkit.spec.signatures import Place, check_class, inferred_class
from sessionkit.spec.upgrades import Upgrade, UpgradeStep, last_version, read_upgrade, upgrade_steps
from sessionkit.state import Field, OptionalType, codec_of, field_type, fields_of, may_be_key
from sessionkit.timeouts import Clock, SessionRules, TimeoutPolicy, deadlines_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

__all__ = [
    "MILLISECOND",
    "AnySpec",
    "E",
    "R",
    "S",
    "Spec",
    "check_delay",
    "check_kind",
    "check_shared",
    "key_class",
    "set_derived",
    "show_shared_arguments",
]

E = TypeVar("E", bound=attrs.AttrsInstance)
S = TypeVar("S", bound=attrs.AttrsInstance)
if TYPE_CHECKING:
    R = TypeVar("R", bound=attrs.AttrsInstance, default=S)
else:
    R = TypeVar("R", bound=attrs.AttrsInstance)

MILLISECOND: Final = timedelta(milliseconds=1)
LARGEST_BUCKET_COUNT: Final = 65_536


@lru_cache(maxsize=256)
def key_class(names: tuple[str, ...]) -> Any:
    """Return the named tuple in which the functions of the user get the key."""
    return namedtuple("Key", names)  # noqa: PYI024 (the names come from the spec)


# -- attributes ---------------------------------------------------------------------------------


def _read_columns(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(column, str) for column in value):
        found = f"`{name}` must be a dict of column names and types, found {value!r}"
        raise SpecError(with_hint(found, f'write {name}={{"user_id": str}}'))
    return dict(value)


def _read_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    return _read_columns(value, "keys")


def _read_passthrough(value: Mapping[str, Any]) -> dict[str, Any]:
    return _read_columns(value, "passthrough")


def _read_id(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return (value,) if isinstance(value, str) else value if value is None else tuple(value)


def _read_skew(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "max_future_skew")


def _read_jump(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "max_jump")


def _read_delay(value: Duration | None) -> timedelta | None:
    return None if value is None else duration(value, "watermark_delay", zero_allowed=True)


def _null() -> None:
    """Return what a column passed through is in events that were stored without it."""


def typed_columns(columns: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    """Return declared columns, typed."""
    return tuple(
        Field(column, field_type(kind, f"{name}.{column}"), column)
        for column, kind in columns.items()
    )


@attrs.frozen(kw_only=True)
class Spec(Generic[E, S, R]):
    """
    What both kinds of spec share. Users make one of the two kinds, and never inherit from this.

    Attributes:
        keys: The key columns and their types: str, int, bool, bytes, date, datetime, time or
            Decimal.
        event_time: The timestamp column that says when an event happened.
        event: The attrs class of an event. Its fields name the columns that are read, and their
            types; nothing else crosses to Python. A null in a field that isn't Optional
            quarantines the row. Left out, the annotations of the functions say it.
        state: The attrs class of the stored state. Left out, the annotations say it.
        result: The attrs class of a result row. Its fields become columns, after those of the key.
            Left out, the annotations say it.
        watermark_delay: How far the watermark trails the latest event time seen: how late an event
            may come and still be counted for certain.
        order: `"arrival"` takes events as they come, in time order within a micro-batch.
            `"event_time"` holds them until the watermark passes them, and takes them in time order.
        nulls: `"reject"` counts rows with a null where there must be none, and leaves them
            out; `"refuse"` makes nullable columns an error on the driver.
        on_error: `"raise"` stops the query where a function raises; `"reject"` counts the events
            concerned as failed and goes on without them. `"drop_session"`, for a `SessionSpec`,
            drops the whole session: its events of the micro-batch count as failed, what was folded
            of it before goes too, and it's a `failed_output` itself.
        max_future_skew: An event time further ahead of the processing time than this is
            quarantined before it can move the watermark. None lets every time pass.
        max_jump: A limit against the data itself, for replays and backfills, whose times the clock
            can't judge. Of the events that a task reads together, those after a silence longer than
            this are quarantined before they can move the watermark. The silence is looked for from
            the middle one of these events, in the order of time, onwards; so at most half of
            them may be wrong, and times that are too old do no harm. None lets every time pass.
        max_buffered_per_key: How many events of a key may wait under `order="event_time"`; those
            beyond, in time order, are quarantined, though their times move the watermark. In the
            first micro-batch, before there is a watermark, all events wait.
        passthrough: Columns and their types that travel with an event only to be shown where it is
            rejected, such as an offset or the raw payload.
        event_id: The columns that identify an event of a key, of those that are read: rejected rows
            have a hash of their values, `event_id`, and `drop_duplicates_for` goes by it. Left out,
            it is that of key, event time and event.
        layout: `"buckets"` packs the state of many keys into one row, which Spark reads and writes
            as a whole: microseconds a key. `"pages"` splits that row, and a micro-batch reads and
            writes only the pages whose keys it concerns: for much state and little input, on Spark
            4.0.2 or later (on Connect 4.1) with RocksDB. `"per_key"`, for a `StatefulSpec`, gives
            each key a row of its own, some milliseconds a key.
        bucket_count: Into how many groups the keys are hashed. Fixed for the life of a checkpoint.
        upgrade: Functions that turn a stored state of an older class into one of the next, by the
            version each starts from: `{1: from_v1}` with `def from_v1(old: VisitV1) -> Visit`.
        state_version: The version of the state class, by default the one to which `upgrade` leads.
            State of a version from which it leads nowhere is refused.
    """

    keys: Mapping[str, Any] = attrs.field(converter=_read_keys)
    event_time: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(column_name)
    )
    _event: type[E] | None = attrs.field(default=None, alias="event", eq=False, repr=False)
    _state: type[S] | None = attrs.field(default=None, alias="state", eq=False, repr=False)
    _result: type[R] | None = attrs.field(default=None, alias="result", eq=False, repr=False)
    event: type[E] = attrs.field(init=False)
    state: type[S] = attrs.field(init=False)
    result: type[R] = attrs.field(init=False)
    timeout: TimeoutPolicy | SessionRules
    watermark_delay: timedelta | None = attrs.field(default=None, converter=_read_delay)
    order: Literal["arrival", "event_time"] = attrs.field(
        default="arrival", validator=choice("arrival", "event_time")
    )
    nulls: Literal["reject", "refuse"] = attrs.field(
        default="reject", validator=choice("reject", "refuse")
    )
    on_error: Literal["raise", "reject", "drop_session"] = attrs.field(
        default="raise", validator=choice("raise", "reject", "drop_session")
    )
    max_future_skew: timedelta | None = attrs.field(default=timedelta(days=1), converter=_read_skew)
    max_jump: timedelta | None = attrs.field(default=None, converter=_read_jump)
    max_buffered_per_key: int = attrs.field(default=100_000, validator=at_least_one)
    passthrough: Mapping[str, Any] = attrs.field(factory=dict, converter=_read_passthrough)
    event_id: tuple[str, ...] | None = attrs.field(default=None, converter=_read_id)
    layout: Literal["buckets", "pages", "per_key"] = attrs.field(
        default="buckets", validator=choice("buckets", "pages", "per_key")
    )
    bucket_count: int = attrs.field(default=64, validator=at_least_one)
    upgrade: Upgrade = attrs.field(factory=dict, converter=read_upgrade)
    state_version: int = attrs.field(
        default=attrs.Factory(last_version, takes_self=True), validator=at_least_one
    )
    upgrade_steps: tuple[UpgradeStep, ...] = attrs.field(init=False, eq=False, repr=False)
    row_kind: ClassVar[str] = "result"

    def _set_class(self, name: str, places: Sequence[Place], hint: str) -> None:
        """Set the class that was given, or else the one that annotations say."""
        given = getattr(self, f"_{name}")
        if given is None:
            given = inferred_class(name, places, hint)
        elif attrs.has(given):
            check_class(name, given, places)
        set_derived(self, **{name: given})

    @property
    def clock(self) -> Clock | None:
        """The clock of Spark's timeouts."""
        return "event_time"

    @property
    def close_idle_after(self) -> timedelta | None:
        """After what time without events sessions close by the processing time; None for never."""
        return None

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """The columns that sessionkit adds to a result row, after those of the key."""
        return ()

    @property
    def rejected_columns(self) -> tuple[str, ...]:
        """The columns that rejected rows add to those of result rows."""
        return REJECTED_COLUMNS

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns, typed."""
        return typed_columns(self.keys, "keys")

    @cached_property
    def passthrough_fields(self) -> tuple[Field, ...]:
        """The columns passed through, typed; all may be null."""
        return tuple(
            attrs.evolve(field, type=OptionalType(field.type), default=_null)
            for field in typed_columns(self.passthrough, "passthrough")
        )

    @cached_property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of a result row: the key, sessionkit's own, and the fields of the result."""
        return (*self.key_fields, *self.own_fields, *codec_of(self.result).type.fields)

    @cached_property
    def latest_event_us(self) -> int:
        """The last event time whose deadlines still lie within the years of a `datetime`."""
        if isinstance(self.timeout, SessionRules):
            return LAST_INSTANT_US - span_us(self.timeout.longest)
        ends = (one.span for one in deadlines_of(self.timeout) if one.clock == "event_time")
        return LAST_INSTANT_US - span_us(max(ends, default=timedelta(0)))

    @cached_property
    def read_columns(self) -> Mapping[str, str]:
        """The names of the columns of the table of events, by the names of the user's columns."""
        event = [field.name for field in codec_of(self.event).type.fields]
        time = [] if self.event_time is None else [(self.event_time, "time")]
        return dict(
            [
                *((name, f"passthrough.{name}") for name in self.passthrough),
                *((name, f"event.{name}") for name in event),
                *time,
                *((name, f"key.{name}") for name in self.keys),
            ]
        )

    @property
    def delay_ms(self) -> int | None:
        """The watermark delay in milliseconds; None where there is no watermark."""
        return None if self.watermark_delay is None else self.watermark_delay // MILLISECOND


AnySpec: TypeAlias = Spec[Any, Any, Any]


def show_shared_arguments(cls: type[Any]) -> None:
    """Put what both kinds of spec share into the docstring of one of them."""
    if cls.__doc__ is not None and Spec.__doc__ is not None:
        shared = Spec.__doc__.partition("Attributes:\n")[2].rstrip()
        cls.__doc__ = cls.__doc__.replace("\n\n    Raises:", f"\n{shared}\n\n    Raises:", 1)


def set_derived(spec: AnySpec, **values: Any) -> None:
    """Set what follows from the arguments, in a spec that is being made."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)


# -- checks of a whole spec --------------------------------------------------------------------


def check_shared(spec: AnySpec) -> None:
    """
    Check what both kinds of spec share.

    Raises:
        SpecError: Something cannot work; the message says what to change.
        FieldTypeError: A class has fields that cannot be stored; all are named.
    """
    for cls in (spec.event, spec.state, spec.result):
        fields_of(cls)
    _check_keys(spec)
    _check_passthrough(spec)
    _check_names(spec)
    _check_event_id(spec)
    if spec.max_jump is not None and spec.event_time is None:
        found = "`max_jump` compares event times, and the spec has none"
        raise SpecError(with_hint(found, "add event_time=..., or leave it out"))
    steps = upgrade_steps(spec.upgrade, spec.state_version, spec.state)
    set_derived(spec, upgrade_steps=steps)
    if spec.bucket_count > LARGEST_BUCKET_COUNT:
        found = f"`bucket_count` must be at most {LARGEST_BUCKET_COUNT:,}"
        hint = "64 to 1,024 serve most streams; see docs/explanation/buckets.md"
        raise SpecError(with_hint(f"{found}, found {spec.bucket_count:,}", hint))


def check_delay(spec: AnySpec) -> None:
    """Check the watermark delay."""
    if spec.watermark_delay is not None and spec.watermark_delay % MILLISECOND:
        found = f"`watermark_delay` must be whole milliseconds, found {spec.watermark_delay}"
        raise SpecError(with_hint(found, "Spark's watermark counts in milliseconds: round it"))


def _check_keys(spec: AnySpec) -> None:
    if not spec.keys:
        hint = 'write keys={"user_id": str}; for one global key add a constant column'
        raise SpecError(with_hint("`keys` must name at least one column, found none", hint))
    for field in spec.key_fields:
        if not may_be_key(field.type):
            found = f"the key column `{field.name}` cannot be a {spec.keys[field.name]}"
            types = "str, int, bool, bytes, date, datetime, time or Decimal"
            hint = f"use {types}; cast a float to Decimal"
            raise SpecError(with_hint(found, hint))


def _check_passthrough(spec: AnySpec) -> None:
    for field in typed_columns(spec.passthrough, "passthrough"):
        if not (may_be_key(field.type) or field.type.plain):
            kind = spec.passthrough[field.name]
            found = f"the passthrough column `{field.name}` cannot be a {kind}"
            hint = "pass plain columns through; every one may be null, so none need be Optional"
            raise SpecError(with_hint(found, hint))


def _check_event_id(spec: AnySpec) -> None:
    unknown = [name for name in spec.event_id or () if name not in spec.read_columns]
    if unknown or spec.event_id == ():
        found = f"`event_id` names {f'`{unknown[0]}`' if unknown else 'no column'}"
        hint = f"name some of {', '.join(sorted(spec.read_columns))}, or add it to `passthrough`"
        raise SpecError(with_hint(f"{found}, which the spec doesn't read", hint))


def _check_names(spec: AnySpec) -> None:
    for name in spec.keys:
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            found = f"the key column `{name}` cannot be a field of a named tuple"
            raise SpecError(with_hint(found, "rename the column, with letters and digits only"))
    names = [*spec.passthrough, "kind", COUNTS_COLUMN, *spec.rejected_columns]
    names += [field.name for field in spec.result_fields]
    # Spark's names ignore case unless it is told otherwise.
    folded = [name.casefold() for name in names]
    doubled = [name for name in names if folded.count(name.casefold()) > 1]
    if doubled:
        found = f"the result would have two columns named `{doubled[-1]}`"
        hint = f"rename the column, or the field of {spec.result.__name__}"
        raise SpecError(with_hint(found, hint))


def check_kind(spec: object, cls: type[Any], other: str) -> None:
    """Check that what runs a spec is given one of its kind; `other` runs the other kind."""
    if not isinstance(spec, cls):
        found = f"`spec` must be a {cls.__name__}, found {type(spec).__name__}"
        raise SpecError(with_hint(found, f"use {other} for the other kind of spec"))
