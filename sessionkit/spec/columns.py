"""The columns of rows: sessionkit's own, and the declared ones."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit.state._collections import AttrsType, Field, ListType, OptionalType, inner_type
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import (
    BoolType,
    DatetimeType,
    DecimalType,
    IntType,
    StrType,
    TimedeltaType,
)
from sessionkit.state._types import FieldType

Role: TypeAlias = Literal["key", "event", "passthrough"]

COUNTS_COLUMN: Final = "_counts"
"""The column with the counts of a micro-batch, until Spark has summed them."""
REJECTED_COLUMNS: Final = ("reason", "traceback", "event_time", "event_id", "event")
"""The columns of rejected rows, after `kind` and before the passthrough columns."""
NUMBER_COLUMN: Final = "number"
"""The column that events of closed sessions have after `REJECTED_COLUMNS`."""
OF_ROWS: Final = "row."
"""The prefix of these columns and of `kind` in the output of workers."""
OF_PASSTHROUGH: Final = "passthrough."
KIND: Final = f"{OF_ROWS}kind"

SESSION_FIELDS: Final = (
    Field("session_id", StrType(), "session_id"),
    Field("session_start", DatetimeType(), "session_start"),
    Field("session_end", DatetimeType(), "session_end"),
    Field("last_event_time", DatetimeType(), "last_event_time"),
)
SESSION_COLUMNS: Final = tuple(field.name for field in SESSION_FIELDS)
"""The columns that every result row of a session has after the key columns."""
CLOSED_BY_FIELD: Final = Field("closed_by", StrType(), "closed_by")
"""The column after these under `SessionRules`."""
CLOSED_BY_OR_OPEN: Final = Field("closed_by", OptionalType(StrType()), "closed_by")
MEMORY_FIELDS: Final = (
    Field("session_number", IntType(), "session_number"),
    Field("previous_session_id", OptionalType(StrType()), "previous_session_id"),
    Field("since_previous", OptionalType(TimedeltaType()), "since_previous"),
)
"""The columns after these under `memory`, before the carried values."""
REVISION_FIELDS: Final = (
    Field("revision", IntType(), "revision"),
    Field("is_final", BoolType(), "is_final"),
    Field("supersedes", ListType(StrType()), "supersedes"),
)
"""The columns after these where a session may give several rows."""


def shown(name: str) -> str:
    """Return the name of a worker's column in a frame."""
    return name.removeprefix(OF_ROWS).removeprefix(OF_PASSTHROUGH)


@lru_cache(maxsize=256)
def key_class(names: tuple[str, ...]) -> Any:
    """Return the named tuple class of the keys that user functions get."""
    return namedtuple("Key", names)  # noqa: PYI024 (the names come from the spec)


def typed_columns(columns: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    """Return the fields that a dict of column names and types declares."""
    return tuple(
        Field(column, field_type(kind, f"{name}.{column}"), column)
        for column, kind in columns.items()
    )


@attrs.frozen
class Named:
    """A column, the owner of its name, and how to rename it; None for sessionkit's own."""

    name: str
    owner: str
    hint: str | None = None

    @classmethod
    def of_frame(cls, name: str, owner: str, place: str) -> "Named":
        renamed = f'frame.withColumnRenamed("{name}", "own_{name}")'
        return cls(name, owner, f"rename the column, {renamed}, and write that name {place}")

    @classmethod
    def of_code(cls, name: str, owner: str) -> "Named":
        return cls(name, owner, f"rename {owner}")


@attrs.frozen
class WireColumn:
    """
    An input column on the wire to the workers; `name` is its name there.

    `kind` is the type of values that aren't null. A null in a required column quarantines the row.
    In an unchecked column, every value of the Arrow type fits `kind`.
    """

    name: str
    role: Role
    field: Field
    kind: FieldType
    is_required: bool
    is_unchecked: bool

    @classmethod
    def of(cls, role: Role, place: int, field: Field) -> "WireColumn":
        kind, is_required = inner_type(field.type), not isinstance(field.type, OptionalType)
        is_unchecked = kind.facts is not None and not kind.misfit
        is_unchecked = is_unchecked and not isinstance(kind, DecimalType)
        return cls(f"_{role}_{place}", role, field, kind, is_required, is_unchecked)


def rejected_fields(names: Sequence[str], event: AttrsType) -> list[Field]:
    """Return the columns of rejected rows, without `event` if its class has no fields."""
    text, instant = OptionalType(StrType()), OptionalType(DatetimeType())
    kinds = (text, text, instant, text, OptionalType(event), OptionalType(IntType()))
    types = dict(zip((*REJECTED_COLUMNS, NUMBER_COLUMN), kinds, strict=True))
    return [
        Field(f"{OF_ROWS}{name}", types[name], name)
        for name in names
        if name != "event" or event.fields
    ]
