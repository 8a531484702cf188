"""The base of both kinds of spec: shared arguments, derived values and checks."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cached_property
from keyword import iskeyword
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias

import attrs
import pyarrow as pa

from sessionkit._arguments import choice, column_name, columns, group
from sessionkit._arrays import INSTANT
from sessionkit._instants import LAST_INSTANT_US, Duration, duration_of, span_us
from sessionkit._shown import as_call
from sessionkit._typing import Record
from sessionkit.errors import SpecError
from sessionkit.spec.columns import (
    COUNTS_COLUMN,
    KIND,
    OF_PASSTHROUGH,
    OF_ROWS,
    REJECTED_COLUMNS,
    Named,
    Role,
    WireColumn,
    rejected_fields,
    typed_columns,
)
from sessionkit.spec.functions import name_of
from sessionkit.spec.options import Inputs, Lateness, Storage, copied
from sessionkit.spec.signatures import check_returned, signature_of
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, OptionalType, arrow_schema
from sessionkit.state._fields import is_record, not_a_record
from sessionkit.state._scalars import DatetimeType, StrType
from sessionkit.state._types import may_be_key
from sessionkit.timeouts._policies import Clock, EventTimeGap, TimeoutPolicy, deadlines_of
from sessionkit.timeouts._session_rules import SessionRules

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

Order: TypeAlias = Literal["arrival", "event_time"]
OnError: TypeAlias = Literal["raise", "reject"]
E = TypeVar("E", bound=Record)
S = TypeVar("S", bound=Record)
if TYPE_CHECKING:
    R = TypeVar("R", bound=Record, default=S)
else:
    R = TypeVar("R", bound=Record)

MILLISECOND: Final = timedelta(milliseconds=1)


EXAMPLES: Final = {  # the hints for missing arguments
    "keys": 'keys={"user_id": str}',
    "event_time": 'event_time="ts"',
    "watermark_delay": 'watermark_delay="10 minutes"',
    "timeout": 'timeout="30 minutes"',
    "logic": "logic=Functions(update=...) (or call SessionSpec.of(Visit, ...))",
}


def whole_milliseconds(value: Duration, name: str, *, zero_allowed: bool = False) -> timedelta:
    """Read a duration that Spark counts in whole milliseconds."""
    span = duration_of(value, name, zero_allowed=zero_allowed)
    if span % MILLISECOND:
        found = f"`{name}` must be whole milliseconds, found {value!r}: Spark drops the rest"
        raise SpecError(found, "round it up, such as '1 millisecond'")
    return span


def read_watermark_delay(value: Duration) -> timedelta:
    return whole_milliseconds(value, "watermark_delay", zero_allowed=True)


def read_timeout(value: TimeoutPolicy | SessionRules | Duration | None) -> Any:
    """Read a duration as the gap of an `EventTimeGap`; leave a policy as it is."""
    is_duration = isinstance(value, str | timedelta | int | float)
    return EventTimeGap(duration_of(value, "timeout")) if is_duration else value


@attrs.frozen
class UpgradeStep:
    """The conversion of a stored state of `version`, class `old`, to the next, class `new`."""

    version: int
    function: Callable[[Any], Any]
    old: type[Any]
    new: type[Any]


@attrs.frozen(kw_only=True, repr=False)
class Spec(Generic[E, S, R]):
    """The base class of `SessionSpec` and `StatefulSpec`. Users never inherit from it."""

    # A dict has no hash; specs that are equal have equal ones without it.
    keys: Mapping[str, Any] = attrs.field(converter=copied, validator=columns, hash=False)
    event_time: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(column_name)
    )
    event: type[E] = attrs.field(init=False)
    state: type[S] = attrs.field(init=False)
    result: type[R] = attrs.field(init=False)
    timeout: TimeoutPolicy | SessionRules
    watermark_delay: timedelta | None = attrs.field(
        default=None, converter=attrs.converters.optional(read_watermark_delay)
    )
    order: Order = attrs.field(default="arrival", validator=choice)
    on_error: OnError = attrs.field(default="raise", validator=choice)
    lateness: Lateness = attrs.field(default=Lateness(), validator=group)
    inputs: Inputs = attrs.field(default=Inputs(), validator=group)
    storage: Storage = attrs.field(default=Storage(), validator=group)
    upgrade_steps: tuple[UpgradeStep, ...] = attrs.field(init=False, eq=False, repr=False)
    must_return: frozenset[str] = attrs.field(init=False, eq=False, repr=False)
    """The roles of the functions whose annotation promises an object, never None."""
    row_kind: ClassVar[str] = "result"

    def __repr__(self) -> str:
        """Show the arguments that aren't defaults, and the result columns."""
        return f"{as_call(self)} -> {', '.join(field.name for field in self.result_fields)}"

    @property
    def clock(self) -> Clock | None:
        """The clock of Spark's timeouts."""
        return "event_time"

    @cached_property
    def close_idle_after(self) -> timedelta | None:
        """The processing time without input after which sessions close; None for never."""
        return self.timeout.close_idle_after if isinstance(self.timeout, SessionRules) else None

    @property
    def output_event_time(self) -> str | None:
        """The result column that carries the watermark to later operators; None for none."""
        return None

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """The columns that sessionkit adds to a result row, after the key columns."""
        return ()

    @property
    def rejected_columns(self) -> tuple[str, ...]:
        """The columns that rejected rows have in addition to the result columns."""
        return REJECTED_COLUMNS

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns, typed."""
        return typed_columns(self.keys, "keys")

    @cached_property
    def passthrough_fields(self) -> tuple[Field, ...]:
        """The passthrough columns, typed. All are nullable: stored events may lack them."""
        return tuple(
            attrs.evolve(field, type=OptionalType(field.type), default=NoneType)
            for field in typed_columns(self.inputs.passthrough, "passthrough")
        )

    @cached_property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of a result row: the key, sessionkit's own, and the fields of the result."""
        return (*self.key_fields, *self.own_fields, *codec_of(self.result).type.fields)

    @cached_property
    def input_schema(self) -> pa.Schema:
        """The columns that are read, as Arrow types; nullable where an event may lack a value."""
        time = [] if self.event_time is None else [Field(self.event_time, DatetimeType(), "")]
        event_fields = codec_of(self.event).type.fields
        fields = [*self.key_fields, *time, *event_fields, *self.passthrough_fields]
        # The event may have a key column or the event time as a field.
        read = {field.name: field.type for field in reversed(fields)}
        return pa.schema(
            pa.field(name, kind.arrow, nullable=isinstance(kind, OptionalType))
            for name, kind in reversed(read.items())
        )

    @cached_property
    def wire_columns(self) -> tuple[WireColumn, ...]:
        """The input columns as they cross to the workers, without the event time."""
        fields_by_role: dict[Role, tuple[Field, ...]] = {
            "key": self.key_fields,
            "event": codec_of(self.event).type.fields,
            "passthrough": self.passthrough_fields,
        }
        columns = list[WireColumn]()
        for role, fields in fields_by_role.items():
            columns += [WireColumn.of(role, place, field) for place, field in enumerate(fields)]
        return tuple(columns)

    @cached_property
    def events_schema(self) -> pa.Schema:
        """
        The columns of the events that folds read: `key.*`, `time`, `event.*`, `passthrough.*`.

        Without an event time, `time` is 1970-01-01.
        """
        event = [field.with_name(f"event.{field.name}") for field in codec_of(self.event).schema]
        passthrough = [
            pa.field(f"passthrough.{field.name}", field.type.arrow)
            for field in self.passthrough_fields
        ]
        return pa.schema([*self.key_schema, pa.field("time", INSTANT), *event, *passthrough])

    @cached_property
    def key_schema(self) -> tuple[pa.Field, ...]:
        """The columns `key.*` of stored rows and of events."""
        return tuple(pa.field(f"key.{field.name}", field.type.arrow) for field in self.key_fields)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The columns of a result row, as Arrow types."""
        return arrow_schema(self.result_fields)

    @cached_property
    def fields_with_rejected(self) -> tuple[Field, ...]:
        """
        The columns of result and rejected rows, as workers return them.

        `shown` returns their names in a frame.
        """
        rejected = rejected_fields(self.rejected_columns, codec_of(self.event).type)
        passthrough = (
            attrs.evolve(field, name=f"{OF_PASSTHROUGH}{field.name}")
            for field in self.passthrough_fields
        )
        return (Field(KIND, StrType(), "kind"), *self.result_fields, *rejected, *passthrough)

    @property
    def time_of_rejected(self) -> str:
        """The column with the event time of a rejected row."""
        return f"{OF_ROWS}event_time"

    @property
    def named(self) -> tuple[Named, ...]:
        """The result columns, each with the owner of its name."""
        keys = (Named.of_frame(name, f"the key `{name}`", "in `keys`") for name in self.keys)
        return (*keys, *self.named_by_spec, *self.named_by_result)

    @property
    def named_by_spec(self) -> tuple[Named, ...]:
        """The columns of `own_fields`."""
        return tuple(Named(field.name, "one of sessionkit's") for field in self.own_fields)

    @property
    def named_by_result(self) -> tuple[Named, ...]:
        """The columns of the result class."""
        of, names = self.result.__name__, codec_of(self.result).schema.names
        return tuple(Named.of_code(name, f"the field `{of}.{name}`") for name in names)

    @cached_property
    def schema_with_rejected(self) -> pa.Schema:
        """The columns of `fields_with_rejected`, as Arrow types."""
        return arrow_schema(self.fields_with_rejected)

    @cached_property
    def latest_event_us(self) -> int:
        """The last event time whose deadlines still fit a `datetime`, in microseconds."""
        if isinstance(self.timeout, SessionRules):
            return LAST_INSTANT_US - span_us(self.timeout.longest)
        deadlines = deadlines_of(self.timeout)
        spans = (deadline.span for deadline in deadlines if deadline.clock == "event_time")
        return LAST_INSTANT_US - span_us(max(spans, default=timedelta(0)))

    @cached_property
    def read_columns(self) -> Mapping[str, str]:
        """The columns of `events_schema` by the input columns that fill them."""
        read = {name: f"passthrough.{name}" for name in self.inputs.passthrough}
        read |= {field.name: f"event.{field.name}" for field in codec_of(self.event).type.fields}
        if self.event_time is not None:
            read[self.event_time] = "time"
        return read | {name: f"key.{name}" for name in self.keys}

    @cached_property
    def delay_ms(self) -> int | None:
        """The watermark delay in milliseconds; None where there is no watermark."""
        return None if self.watermark_delay is None else self.watermark_delay // MILLISECOND


AnySpec: TypeAlias = Spec[Any, Any, Any]
"""A `SessionSpec` or a `StatefulSpec` of any classes, for annotations."""


def set_derived(made: object, **values: Any) -> None:
    """Set derived attributes of a frozen value under construction."""
    for name, value in values.items():
        object.__setattr__(made, name, value)


# -- checks of a whole spec --------------------------------------------------------------------


def check_shared(spec: AnySpec) -> None:
    """Check what both kinds of spec have, and derive the steps of an upgrade."""
    _check_keys(spec)
    _check_inputs(spec)
    # Only an error needs the owners of names, which take a walk through the whole spec.
    names = [COUNTS_COLUMN, *[field.name.casefold() for field in spec.result_fields]]
    if len({*names}) < len(names):
        _check_names("the result", (Named(COUNTS_COLUMN, "one of sessionkit's"), *spec.named))
    steps = _upgrade_steps(spec.storage, spec.state) if spec.storage.upgrade else ()
    set_derived(spec, upgrade_steps=steps)


def check_names_with_rejected(spec: AnySpec) -> None:
    """Check that the columns of rejected rows don't clash with the result columns."""
    rejected = (Named(name, "one of rejected rows") for name in ("kind", *spec.rejected_columns))
    passthrough = (
        Named.of_frame(name, f"the passthrough column `{name}`", "in `passthrough`")
        for name in spec.inputs.passthrough
    )
    _check_names("a frame with rejected rows", (*rejected, *spec.named, *passthrough))


def _check_names(what: str, columns: Iterable[Named]) -> None:
    """Check that all names differ; the hint renames the later of two equal ones."""
    known = dict[str, Named]()
    for column in columns:
        # Spark ignores case in names by default.
        other = known.setdefault(column.name.casefold(), column)
        if other is not column:
            found = f"{what} would have two columns named `{column.name}`: {other.owner} and "
            raise SpecError(found + column.owner, column.hint or other.hint)


def _check_keys(spec: AnySpec) -> None:
    if not spec.keys:
        hint = 'write keys={"user_id": str}; for one global key add a constant column'
        raise SpecError("`keys` must name at least one column, found none", hint)
    for field in spec.key_fields:
        name = field.name
        if not may_be_key(field.type):
            found = f"the key column `{name}` cannot be a {spec.keys[name]}"
            types = "str, int, bool, bytes, date, datetime, time, Decimal, UUID or Literal"
            raise SpecError(found, f"use {types}; cast a float to Decimal")
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            found = f"the key column `{name}` cannot be a field of a named tuple"
            renamed = f'rename the column, such as withColumnRenamed("{name}", "user")'
            raise SpecError(found, f"{renamed}: letters, digits and underscores, a letter first")


TIMES_IN_JSON: Final = '{"timestampFormat": "yyyy-MM-dd\'T\'HH:mm:ss.SSSSSSXXX"}'
"""By default, `to_json` cuts times to milliseconds."""
PASSED: Final = {pa.string(): "str", pa.int64(): "int", pa.float64(): "float"}


def _passed_instead(field: Field) -> str:
    """Return the hint for a column of a type that can't be passed through."""
    if isinstance(field.type, OptionalType):
        return "write its type without None: every passthrough column may be null"
    if field.type.arrow in PASSED:
        return f"write {PASSED[field.type.arrow]}, which is what its column has"
    text = f'F.to_json("{field.name}", {TIMES_IN_JSON})'
    if pa.types.is_duration(field.type.arrow):
        text = f'F.col("{field.name}").cast("string")'
    return f'pass it as text: {text}.alias("{field.name}"), and write str'


def _check_inputs(spec: AnySpec) -> None:
    inputs = spec.inputs
    for field in typed_columns(inputs.passthrough, "passthrough"):
        if not (may_be_key(field.type) or field.type.plain):
            kind = inputs.passthrough[field.name]
            found = f"the passthrough column `{field.name}` cannot be a {kind}"
            raise SpecError(found, _passed_instead(field))
    unknown = [f"`{name}`" for name in inputs.event_id or () if name not in spec.read_columns]
    if unknown or inputs.event_id == ():
        found = f"{unknown[0]}, which the spec doesn't read" if unknown else "no column"
        hint = f"name some of {', '.join(sorted(spec.read_columns))}, or add it to `passthrough`"
        raise SpecError(f"`event_id` names {found}", hint)
    if inputs.max_jump is not None and spec.event_time is None:
        found = "`max_jump` compares event times, and the spec has none"
        raise SpecError(found, "add event_time=..., or leave it out")


def _upgrade_steps(storage: Storage, state: type[Any]) -> tuple[UpgradeStep, ...]:
    """Return the upgrade steps from the oldest readable version to the current one."""
    upgrade, version = storage.upgrade, storage.version
    missing = sorted({*range(min(upgrade), version)} - upgrade.keys())
    if missing or max(upgrade) >= version:
        found = f"`upgrade` has the versions {', '.join(map(str, upgrade))}"
        hint = f"it needs each version from the oldest up to {version - 1}"
        raise SpecError(f"{found}, and `version` is {version}", hint)
    steps = [_step(start, function) for start, function in upgrade.items()]
    follows = [(after.old, f"`upgrade[{after.version}]` takes") for after in steps[1:]]
    for step, (cls, what) in zip(steps, [*follows, (state, "the state is")], strict=True):
        if step.new is not cls:
            found = f"`upgrade[{step.version}]` returns {step.new.__name__}, and {what}"
            raise SpecError(f"{found} {cls.__name__}", f"let it return a {cls.__name__}")
    return tuple(steps)


def _step(version: int, function: Callable[[Any], Any]) -> UpgradeStep:
    where = f"`upgrade[{version}]` ({name_of(function)})"
    hint = "write `def from_v1(old: VisitV1) -> Visit: ...`"
    signature = signature_of(function, f"upgrade[{version}]")
    if len(signature.parameters) != 1:
        raise SpecError(f"{where} must take the old state alone", hint)
    old, new = signature.parameters[0].annotation, signature.returned.annotation
    for cls, what in ((old, "takes"), (new, "returns")):
        if not is_record(cls):
            if isinstance(cls, type):
                _, hint = not_a_record(cls, instead=hint)
            text = f"{where} must say by an annotation which class it {what}"
            raise SpecError(f"{text}, found {cls!r}", hint)
        codec_of(cls)
    check_returned(signature)
    return UpgradeStep(version, function, old, new)
