"""The columns of rows: those that sessionkit adds, and those that users declare."""

from collections import namedtuple
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import BoolType, IntType, StrType
from sessionkit.state._times import DatetimeType, TimedeltaType

COUNTS_COLUMN: Final = "_counts"
"""The column that travels with the results until Spark has summed it."""
REJECTED_COLUMNS: Final = ("reason", "traceback", "event_time", "event_id", "event")
"""The columns that rejected rows add, before the carried ones; `kind` comes before all."""
NUMBER_COLUMN: Final = "number"
"""The column that events of closed sessions add after these."""

SESSION_FIELDS: Final = (
    Field("session_id", StrType(), "session_id"),
    Field("session_start", DatetimeType(), "session_start"),
    Field("session_end", DatetimeType(), "session_end"),
)
SESSION_COLUMNS: Final = tuple(field.name for field in SESSION_FIELDS)
"""The columns that sessionkit adds to every result row, after those of the key."""
CLOSED_BY_FIELD: Final = Field("closed_by", StrType(), "closed_by")
"""The one that it adds after these where there are `SessionRules`."""
CLOSED_BY_OR_OPEN: Final = Field("closed_by", OptionalType(StrType()), "closed_by")
MEMORY_FIELDS: Final = (
    Field("session_number", IntType(), "session_number"),
    Field("previous_session_id", OptionalType(StrType()), "previous_session_id"),
    Field("since_previous", OptionalType(TimedeltaType()), "since_previous"),
)
"""Those that it adds after these where a key is remembered, before the values that it carries."""
REVISION_FIELDS: Final = (
    Field("revision", IntType(), "revision"),
    Field("is_final", BoolType(), "is_final"),
    Field("supersedes", ListType(StrType()), "supersedes"),
)
"""Those that it adds after these where a session may give several rows."""
REVISION_COLUMNS: Final = tuple(field.name for field in REVISION_FIELDS)


@lru_cache(maxsize=256)
def key_class(names: tuple[str, ...]) -> Any:
    """Return the named tuple in which the functions of the user get the key."""
    return namedtuple("Key", names)  # noqa: PYI024 (the names come from the spec)


def typed_columns(columns: Mapping[str, Any], name: str) -> tuple[Field, ...]:
    return tuple(
        Field(column, field_type(kind, f"{name}.{column}"), column)
        for column, kind in columns.items()
    )
