"""
The columns that cross between Spark and Python, and the forms of their values.

In    `_time`, `_future`, `_unreadable`, `_key_*`, `_event_*`, `_passthrough_*`: names that no key
      column can have. They reach Python as Arrow columns, with nulls and nested types as they are.
Over  the shuffle, `_events` and `_rejected`: Arrow record batches as bytes (`packing` has both
      ends), and `_watermark`, by which Spark moves its watermark. A seed adds `_kept` and `_held`.
Out   of a stream, `_counts`, after which a bucket says how it stands, and `_rows`: result and
      rejected rows as bytes too, which a last step in Python turns back into columns. So no
      conversion of pandas can change a value. Out of a batch, the columns as users see them, and
      `_counts`.
"""

from typing import Final, Literal, TypeAlias

import attrs

from sessionkit._engine.rows.remembered import remembered
from sessionkit.spec.shared import AnySpec
from sessionkit.state._codec import codec_of
from sessionkit.state._collections import Field, OptionalType, inner_type
from sessionkit.state._scalars import DecimalType, EnumType
from sessionkit.state._types import FieldType

Role: TypeAlias = Literal["key", "event", "passthrough"]

TIME_COLUMN: Final = "_time"
FUTURE_COLUMN: Final = "_future"
UNREADABLE_COLUMN: Final = "_unreadable"
"""Why the source couldn't make an event of a row; null where it could."""
WATERMARK_COLUMN: Final = "_watermark"
EVENTS_COLUMN: Final = "_events"
REJECTED_COLUMN: Final = "_rejected"
KEPT_COLUMN: Final = "_kept"
HELD_COLUMN: Final = "_held"
ROWS_COLUMN: Final = "_rows"


@attrs.frozen
class WireColumn:
    """
    One column of the input as it crosses.

    Attributes:
        name: Its name on the wire.
        role: Whether it is part of the key, of the event, or carried.
        field: The user's column and its type.
        kind: The type of its values that aren't null.
        is_required: Whether a null quarantines the row.
        is_unchecked: Whether each value of its Arrow type is one of this type.
    """

    name: str
    role: Role
    field: Field
    kind: FieldType
    is_required: bool
    is_unchecked: bool

    @classmethod
    def of(cls, role: Role, place: int, field: Field) -> "WireColumn":
        """Return the column at a place among those with its role."""
        kind, is_required = inner_type(field.type), not isinstance(field.type, OptionalType)
        checked = isinstance(kind, DecimalType | EnumType)
        is_unchecked = not checked and kind.facts is not None and kind.facts.bounds is None
        return cls(f"_{role}_{place}", role, field, kind, is_required, is_unchecked)


@remembered
def wire_columns(spec: AnySpec) -> tuple[WireColumn, ...]:
    """Return the columns that cross, besides the time."""
    roles: list[tuple[Role, tuple[Field, ...]]] = [
        ("key", spec.key_fields),
        ("event", codec_of(spec.event).type.fields),
        ("passthrough", spec.passthrough_fields),
    ]
    return tuple(
        WireColumn.of(role, place, field)
        for role, fields in roles
        for place, field in enumerate(fields)
    )
