"""Instants, durations and tables as tests write them in text."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from sessionkit._arguments import explains
from sessionkit._engine.wire.inbound import wire_columns
from sessionkit.errors import DriverError, SessionkitError, with_hint
from sessionkit.spec.shared import AnySpec, check_kind
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import OptionalType, inner_type
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import EnumType
from sessionkit.state._times import DatetimeType
from sessionkit.state._types import FieldType, type_name
from sessionkit.testing.drivers.rows import Row
from sessionkit.testing.pictures.literals import DEFAULT_DAY

INSTANT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>\d{1,2})(?P<rest>:\d\d(:\d\d(\.\d{1,6})?)?)",
    re.ASCII,
)
NULL: Final = "null"
RULE: Final = re.compile(r"[-+:]{3,}")
CELL: Final = re.compile(r'\s*(?P<cell>"(?:[^"\\]|\\.)*"|[^|]*?)\s*\|')


def at(text: str) -> datetime:
    """
    Return an instant in UTC: a time on 1 January 2026, or on the day written before it.

    `at("10:03")`, `at("10:03:20.5")`, `at("2026-03-01 10:03")`.

    Raises:
        DriverError: The text has another format, or there is no such time.
    """
    found = INSTANT.fullmatch(text)
    try:
        if found is not None:
            day, clock = found["day"] or DEFAULT_DAY, f"{found['hour']:0>2}{found['rest']}"
            return datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=UTC)
    except ValueError:
        pass
    hint = 'write at("10:03"), at("10:03:20.5") or at("2026-03-01 10:03"), in UTC'
    raise DriverError(with_hint(f"{text!r} isn't an instant", hint))


def seconds(number: float) -> timedelta:
    """Return a duration in seconds."""
    return _span(number, timedelta(seconds=1))


def minutes(number: float) -> timedelta:
    """Return a duration in minutes."""
    return _span(number, timedelta(minutes=1))


def hours(number: float) -> timedelta:
    """Return a duration in hours."""
    return _span(number, timedelta(hours=1))


def _span(number: float, unit: timedelta) -> timedelta:
    try:
        return number * unit
    except (OverflowError, ValueError):
        found = f"{number!r} times {unit} doesn't fit a timedelta"
        raise DriverError(with_hint(found, "pass a smaller number")) from None


@explains
def events_table(spec: AnySpec, text: str) -> list[Row]:
    """
    Return the rows of a table written as text, each one as `add_row` of a driver takes it.

        user_id | ts    | url     | seconds
        ann     | 10:00 | /       | 5.0
        ann     | 10:03 | /prices | null

    The first line names columns of the spec; a column that is left out is null. Write instants as
    for `at`, dates as `2026-01-01`, times of day as `09:30`, booleans as `true` and `false`,
    durations as `3 minutes`, bytes as text, and members of an enumeration by their value. A null is
    `null`. Put a text that is empty, reads `null` or contains a `|` in double quotes, with JSON's
    escapes. Empty lines and a line of dashes below the names are skipped.

    Raises:
        DriverError: A column is unknown, or a cell can't be read; the message names the line.
    """
    check_kind(spec)
    types = {column.field.name: column.field.type for column in wire_columns(spec)}
    if spec.event_time is not None:
        types = {spec.event_time: DatetimeType(), **types}
    return _read(text, types)


@explains
def frame_from(text: str, types: Mapping[str, Any]) -> pd.DataFrame:
    """
    Return a table written as for `events_table` as a DataFrame.

    Its dtypes are those that Arrow chooses for pandas: instants are `datetime64[us, UTC]`, and
    integers in a column with a null become floats.

    Args:
        text: The table.
        types: The columns and their types, as in `SessionSpec.keys`.

    Raises:
        DriverError: A column is unknown, or a cell can't be read; the message names the line.
        FieldTypeError: sessionkit can't store one of the types.
    """
    kinds = {name: inner_type(field_type(kind, name)) for name, kind in types.items()}
    rows = _read(text, kinds)
    columns = {
        name: encode_column(OptionalType(kind), [row.get(name) for row in rows], name)
        for name, kind in kinds.items()
    }
    frame: pd.DataFrame = pa.table(columns).to_pandas()
    return frame


def _read(text: str, types: Mapping[str, FieldType]) -> list[Row]:
    numbered = enumerate(text.splitlines(), start=1)
    lines = [(number, _cells(line)) for number, line in numbered if line.strip()]
    if not lines:
        raise DriverError(with_hint("the table is empty", "name its columns in the first line"))
    (first, names), *rows = lines
    for name in names:
        if name not in types:
            hint = f"it is one of {', '.join(types)}"
            raise _refused(first, f"there is no column `{name}`", hint)
        if names.count(name) > 1:
            raise _refused(first, f"the column `{name}` is named twice", "leave one of them out")
    if rows and all(map(RULE.fullmatch, rows[0][1])):
        rows = rows[1:]
    for number, cells in rows:
        if len(cells) != len(names):
            found = f"expected {len(names)} cells, found {len(cells)}"
            raise _refused(number, found, "write null where there is no value")
    return [
        {
            name: _value(number, name, cell, inner_type(types[name]))
            for name, cell in zip(names, cells, strict=True)
        }
        for number, cells in rows
    ]


def _cells(line: str) -> list[str]:
    inside = line.strip()
    if inside.startswith("|"):
        inside = inside.removeprefix("|").removesuffix("|")
    return [found["cell"] for found in CELL.finditer(f"{inside}|")]


def _value(number: int, name: str, cell: str, kind: FieldType) -> Any:
    if cell == NULL:
        return None
    base = kind.base if isinstance(kind, EnumType) else kind
    if base.facts is None:
        hint = "pass the row to add_row instead"
        raise _refused(number, f"`{name}` has a type that a cell can't hold", hint)
    try:
        if not cell:
            hint = 'write null, or "" for an empty text'
            raise DriverError(with_hint("the cell is empty", hint))
        parse = at if isinstance(base, DatetimeType) else base.facts.parse
        value = parse(json.loads(cell) if cell.startswith('"') else cell)
        return kind.coerce(kind.load(value) if isinstance(kind, EnumType) else value, name)
    except SessionkitError as error:
        msg = f"line {number}, column `{name}`: {error}"
        raise DriverError(msg) from error
    except (ArithmeticError, LookupError, ValueError) as error:
        found = f"`{name}`: {cell!r} can't be read as {type_name(base)}"
        raise _refused(number, found, "write it as a test would, or null") from error


def _refused(number: int, found: str, hint: str) -> DriverError:
    return DriverError(with_hint(f"line {number}: {found}", hint))
