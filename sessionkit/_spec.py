"""What every spec says of its input: keys, event time, the event's class, what travels along."""

from collections import namedtuple
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from keyword import iskeyword
from typing import Any, Final, Protocol

import attrs

from sessionkit._instants import Duration, duration
from sessionkit.errors import SpecError, with_hint
from sessionkit.state import (
    BoolType,
    BytesType,
    DatetimeType,
    DateType,
    DecimalType,
    Field,
    IntType,
    OptionalType,
    StrType,
    codec_of,
    field_type,
)
from sessionkit.timeouts import Clock, TimeoutPolicy, deadlines_of

__all__ = [
    "KEY_TYPES",
    "MILLISECOND",
    "REJECTED_COLUMNS",
    "SpecInput",
    "at_least_one",
    "check_bucket_count",
    "check_columns",
    "check_kind",
    "check_whole_milliseconds",
    "choice",
    "column_name",
    "key_class",
    "longest_span",
    "optional_columns",
    "read_keys",
    "read_passthrough",
    "read_skew",
    "retention_in_ms",
    "typed_columns",
]

MILLISECOND: Final = timedelta(milliseconds=1)
KEY_TYPES: Final = (StrType, IntType, BoolType, BytesType, DateType, DatetimeType, DecimalType)
"""The types of key columns: those whose equal values have equal bytes."""
LARGEST_BUCKET_COUNT: Final = 65_536
LATE_EVENTS_SEEN: Final = timedelta(days=7)
"""How long events are still seen once they are late, unless a spec says otherwise."""
REJECTED_COLUMNS: Final = ("reason", "event_time")
"""The columns that rejected rows add, before the carried ones; `kind` comes before all."""


class SpecInput(Protocol):
    """The part of a spec that reading, checking and projecting the input go by."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The key columns and their types."""

    @property
    def event_time(self) -> str | None:
        """The timestamp column of the event time; None where the spec knows none."""

    @property
    def event(self) -> type[Any]:
        """The attrs class of an event."""

    @property
    def nulls(self) -> str:
        """What a null means where there must be none."""

    @property
    def max_future_skew(self) -> timedelta | None:
        """How far ahead of the processing time an event time may be."""

    @property
    def passthrough(self) -> Mapping[str, Any]:
        """The columns passed through, and their types."""

    @property
    def bucket_count(self) -> int:
        """Into how many groups the keys are hashed."""

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The key columns, typed."""

    @property
    def passthrough_fields(self) -> tuple[Field, ...]:
        """The carried columns, typed; all may be null."""

    @property
    def result_fields(self) -> tuple[Field, ...]:
        """The columns of a result row, typed, under the names that users see."""

    @property
    def state(self) -> type[Any]:
        """The attrs class of the state."""

    @property
    def layout(self) -> str:
        """Whether a group is a bucket of keys, or one key."""

    @property
    def order(self) -> str:
        """In which order events are taken."""

    @property
    def clock(self) -> Clock | None:
        """By which clock Spark wakes a group."""

    @property
    def delay_ms(self) -> int | None:
        """The watermark delay in milliseconds; None where there is no watermark."""

    @property
    def retention_ms(self) -> int:
        """How far Spark's watermark trails the one in force, in milliseconds."""

    @property
    def state_version(self) -> int:
        """The version of the stored state."""

    @property
    def row_kind(self) -> str:
        """What a result row is called beside rejected ones."""

    @property
    def latest_event_us(self) -> int:
        """The last event time whose deadlines still lie within the years of a `datetime`."""


@lru_cache(maxsize=256)
def key_class(names: tuple[str, ...]) -> Any:
    """Return the named tuple in which the functions of the user get the key."""
    return namedtuple("Key", names)  # noqa: PYI024 (the names come from the spec)


# -- attributes of specs -----------------------------------------------------------------------


def choice(*options: str) -> Any:
    """Return the validator of an attribute that takes one of these; the first is the default."""

    def check(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
        if value not in options:
            found = f"`{attribute.name}` must be one of {', '.join(map(repr, options))}"
            raise SpecError(
                with_hint(f"{found}, found {value!r}", f"the default is {options[0]!r}")
            )

    return attrs.validators.and_(check)


def at_least_one(_: Any, attribute: "attrs.Attribute[int]", value: object) -> None:
    """Check a whole number from 1."""
    if type(value) is not int or value < 1:
        found = f"`{attribute.name}` must be a whole number from 1, found {value!r}"
        raise SpecError(with_hint(found, f"leave it out for the default, {attribute.default}"))


def column_name(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
    """Check the name of a column."""
    if not isinstance(value, str) or not value:
        found = f"`{attribute.name}` must be the name of a column, found {value!r}"
        raise SpecError(with_hint(found, f'write {attribute.name}="ts"'))


def read_skew(value: Duration | None) -> timedelta | None:
    """Read how far ahead of the processing time an event time may be."""
    return None if value is None else duration(value, "max_future_skew")


def read_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the declared key columns."""
    return _copied(value, "keys")


def read_passthrough(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the declared carried columns."""
    return _copied(value, "passthrough")


def _copied(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(column, str) for column in value):
        found = f"`{name}` must be a dict of column names and types, found {value!r}"
        raise SpecError(with_hint(found, f'write {name}={{"user_id": str}}'))
    return dict(value)


def typed_columns(columns: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    """Return declared columns, typed."""
    return tuple(
        Field(column, field_type(kind, f"{name}.{column}"), column)
        for column, kind in columns.items()
    )


def optional_columns(columns: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the carried columns, typed; all may be null."""
    return tuple(
        attrs.evolve(field, type=OptionalType(field.type))
        for field in typed_columns(columns, "passthrough")
    )


def longest_span(policy: TimeoutPolicy) -> timedelta:
    """Return the longest time in event time after which a policy ends something."""
    spans = [found.span for found in deadlines_of(policy) if found.clock == "event_time"]
    return max(spans, default=timedelta(0))


def retention_in_ms(given: timedelta | None, least: timedelta) -> int:
    """
    Return how far Spark's watermark is declared from the one in force, in milliseconds.

    Args:
        given: What the spec says.
        least: How old an event can be, counted from the watermark, and not be late.
    """
    retention = least + LATE_EVENTS_SEEN if given is None else given
    return -(-retention // MILLISECOND)


# -- checks of a whole spec --------------------------------------------------------------------


def check_columns(
    keys: Mapping[str, Any],
    passthrough: Mapping[str, Any],
    result: type[Any],
    own_columns: Iterable[str] = (),
) -> None:
    """
    Check keys, carried columns and the names of the output against each other.

    Args:
        keys: The key columns and their types.
        passthrough: The columns passed through, and their types.
        result: The attrs class of a result row.
        own_columns: The columns that sessionkit adds to every result row.

    Raises:
        SpecError: A column is missing, has a type it must not have, or two have one name.
        FieldTypeError: A field of the result cannot be stored.
    """
    if not keys:
        hint = 'write keys={"user_id": str}; for one global key add a constant column'
        raise SpecError(with_hint("`keys` must name at least one column, found none", hint))
    for field in typed_columns(keys, "keys"):
        if not isinstance(field.type, KEY_TYPES):
            found = f"the key column `{field.name}` cannot be a {keys[field.name]}"
            hint = "use str, int, bool, bytes, date, datetime or Decimal; cast a float to Decimal"
            raise SpecError(with_hint(found, hint))
    for field in typed_columns(passthrough, "passthrough"):
        if not (isinstance(field.type, KEY_TYPES) or field.type.plain):
            found = f"the passthrough column `{field.name}` cannot be a {passthrough[field.name]}"
            hint = "pass plain columns through; every one may be null, so none need be Optional"
            raise SpecError(with_hint(found, hint))
    _check_names(keys, passthrough, result, own_columns)


def _check_names(
    keys: Mapping[str, Any],
    passthrough: Mapping[str, Any],
    result: type[Any],
    own_columns: Iterable[str],
) -> None:
    for name in keys:
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            found = f"the key column `{name}` cannot be a field of a named tuple"
            raise SpecError(with_hint(found, "rename the column, with letters and digits only"))
    names = [*passthrough, "kind", *REJECTED_COLUMNS, *keys, *own_columns]
    names += [field.name for field in codec_of(result).type.fields]
    # Spark's names ignore case unless it is told otherwise.
    folded = [name.casefold() for name in names]
    doubled = [name for name in names if folded.count(name.casefold()) > 1]
    if doubled:
        found = f"the result would have two columns named `{doubled[-1]}`"
        hint = f"rename the column, or the field of {result.__name__}"
        raise SpecError(with_hint(found, hint))


def check_kind(spec: object, cls: type[Any], other: str) -> None:
    """Check that what runs a spec is given one of its kind; `other` runs the other kind."""
    if not isinstance(spec, cls):
        found = f"`spec` must be a {cls.__name__}, found {type(spec).__name__}"
        raise SpecError(with_hint(found, f"use {other} for the other kind of spec"))


def check_whole_milliseconds(span: timedelta, name: str) -> None:
    """Check a duration that Spark counts in milliseconds."""
    if span % MILLISECOND:
        found = f"`{name}` must be whole milliseconds, found {span}"
        raise SpecError(with_hint(found, "Spark's watermark counts in milliseconds: round it"))


def check_bucket_count(bucket_count: int) -> None:
    """Check that there are not absurdly many buckets."""
    if bucket_count > LARGEST_BUCKET_COUNT:
        found = f"`bucket_count` must be at most {LARGEST_BUCKET_COUNT:,}"
        hint = "64 to 1,024 serve most streams; see docs/explanation/buckets.md"
        raise SpecError(with_hint(f"{found}, found {bucket_count:,}", hint))
