"""The columns that sessionkit adds to the rows of a query."""

from typing import Final

from sessionkit.state._collections import Field, ListType, OptionalType
from sessionkit.state._scalars import BoolType, IntType, StrType
from sessionkit.state._times import DatetimeType

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
REVISION_FIELDS: Final = (
    Field("revision", IntType(), "revision"),
    Field("is_final", BoolType(), "is_final"),
    Field("supersedes", ListType(StrType()), "supersedes"),
)
"""Those that it adds after these where a session may give several rows."""
REVISION_COLUMNS: Final = tuple(field.name for field in REVISION_FIELDS)


def session_fields(*, ruled: bool, is_open: bool, revises: bool) -> tuple[Field, ...]:
    """Return the columns that a session spec adds to a result row, after those of the key."""
    fields = [*SESSION_FIELDS]
    if ruled:
        fields.append(CLOSED_BY_OR_OPEN if is_open else CLOSED_BY_FIELD)
    return (*fields, *REVISION_FIELDS) if revises else tuple(fields)
