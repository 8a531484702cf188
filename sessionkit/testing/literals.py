"""Values as tests write them: instants, durations, tables in text; and values back as literals."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from sessionkit._classes import attributes_of, is_record
from sessionkit._engine.wire.inbound import wire_columns
from sessionkit._instants import span_us
from sessionkit.errors import ScriptError, SessionkitError, with_hint
from sessionkit.spec.shared import AnySpec
from sessionkit.state._codec import encode_column
from sessionkit.state._collections import OptionalType, inner_type
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import EnumType
from sessionkit.state._times import DatetimeType
from sessionkit.state._types import FieldType, type_name
from sessionkit.testing.drivers.rows import Row

DEFAULT_DAY: Final = date(2026, 1, 1)
INSTANT: Final = re.compile(
    r"(?:(?P<day>\d{4}-\d\d-\d\d)[ T])?(?P<hour>\d{1,2}):(?P<minute>\d\d)"
    r"(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?",
    re.ASCII,
)
SECOND_US: Final = 1_000_000
NULL: Final = "null"
RULE: Final = re.compile(r"[-+:]{3,}")
CELL: Final = re.compile(r'\s*(?P<cell>"(?:[^"\\]|\\.)*"|[^|]*?)\s*\|')


def at(text: str) -> datetime:
    """
    Return an instant in UTC: a time of 1 January 2026, or of the day that is written before it.

    `at("10:03")`, `at("10:03:20.5")`, `at("2026-03-01 10:03")`.

    Raises:
        ScriptError: It's written in another way, or there is no such time.
    """
    found = INSTANT.fullmatch(text)
    try:
        if found is not None:
            day = DEFAULT_DAY if found["day"] is None else date.fromisoformat(found["day"])
            hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
            micros = int((found["fraction"] or "").ljust(6, "0"))
            return datetime(day.year, day.month, day.day, hour, minute, second, micros, UTC)
    except ValueError:
        pass
    hint = 'write at("10:03"), at("10:03:20.5") or at("2026-03-01 10:03"), in UTC'
    raise ScriptError(with_hint(f"{text!r} isn't an instant", hint))


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
        found = f"{number!r} times {unit} isn't a duration that a timedelta can hold"
        raise ScriptError(with_hint(found, "pass a smaller number")) from None


def literal(value: Any) -> str:
    """Return a value as a test would write it, with the builders of this module."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return f'at("{clock_text(value)}")'
    if isinstance(value, timedelta):
        return _span_literal(value)
    if type(value) is tuple:
        inside = ", ".join(map(literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if type(value) is dict:
        inside = ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    return _object_literal(value) if is_record(type(value)) else repr(value)


def _object_literal(value: Any) -> str:
    """Return an attrs object with literals for its fields, unless its class has its own `repr`."""
    name = type(value).__qualname__.rpartition(">.")[2]

    def text(show: Callable[[Any], str]) -> str:
        shown = [field.name for field in attributes_of(type(value)) if field.repr]
        return f"{name}({', '.join(f'{field}={show(getattr(value, field))}' for field in shown)})"

    return text(literal) if text(repr) == repr(value) else repr(value)


def clock_text(instant: datetime) -> str:
    """Return an instant as briefly as `at` reads it."""
    moment = instant.astimezone(UTC)
    day = "" if moment.date() == DEFAULT_DAY else f"{moment.date()} "
    clock = f"{moment:%H:%M}"
    if moment.second or moment.microsecond:
        clock = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        clock = f"{moment:%H:%M:%S.%f}".rstrip("0")
    return day + clock


def _span_literal(span: timedelta) -> str:
    for name, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        number, rest = divmod(span_us(span), size * SECOND_US)
        if not rest and (number or name == "seconds"):
            return f"{name}({number})"
    return f"seconds({span.total_seconds()!r})"


def events_table(spec: AnySpec, text: str) -> list[Row]:
    """
    Return the rows of a table in text, one by one for `add_row` of a driver.

        user_id | ts    | url     | seconds
        ann     | 10:00 | /       | 5.0
        ann     | 10:03 | /prices | null

    The first line names columns of the spec; one that is left out is null. Instants are written as
    for `at`, dates as `2026-01-01`, times of day as `09:30`, booleans `true` and `false`, durations
    `3 minutes`, bytes as text, members of an enumeration by their value. A null is `null`. Write a
    text that is empty, says `null` or contains a `|` in double quotes, with the escapes of JSON.
    Empty lines and a rule of dashes below the names are skipped.

    Raises:
        ScriptError: There is no such column, or a cell can't be read; the message names the line.
    """
    types = {column.field.name: column.field.type for column in wire_columns(spec)}
    if spec.event_time is not None:
        types = {spec.event_time: DatetimeType(), **types}
    return _read(text, types)


def frame_from(text: str, types: Mapping[str, Any]) -> pd.DataFrame:
    """
    Return a table in text, written as for `events_table`, as a frame.

    Its dtypes are those that Arrow gives to pandas: instants are `datetime64[us, UTC]`, whole
    numbers next to a null become floats.

    Args:
        text: The table.
        types: The columns and their types, as in `SessionSpec.keys`.

    Raises:
        ScriptError: There is no such column, or a cell can't be read; the message names the line.
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
        raise ScriptError(with_hint("the table is empty", "name its columns in the first line"))
    (first, names), *rows = lines
    _check_names(first, names, types)
    if rows and all(map(RULE.fullmatch, rows[0][1])):
        rows = rows[1:]
    return [_row(number, names, cells, types) for number, cells in rows]


def _cells(line: str) -> list[str]:
    inside = line.strip()
    if inside.startswith("|"):
        inside = inside.removeprefix("|").removesuffix("|")
    return [found["cell"] for found in CELL.finditer(f"{inside}|")]


def _check_names(number: int, names: list[str], types: Mapping[str, FieldType]) -> None:
    for name in names:
        if name not in types:
            raise _refused(
                number, f"there is no column `{name}`", f"it is one of {', '.join(types)}"
            )
        if names.count(name) > 1:
            raise _refused(number, f"the column `{name}` comes twice", "leave one of them out")


def _row(number: int, names: list[str], cells: list[str], types: Mapping[str, FieldType]) -> Row:
    if len(cells) != len(names):
        found = f"found {len(cells)} cells for {len(names)} columns"
        raise _refused(number, found, "write null where there is no value")
    return {
        name: _value(number, name, cell, inner_type(types[name]))
        for name, cell in zip(names, cells, strict=True)
    }


def _value(number: int, name: str, cell: str, kind: FieldType) -> Any:
    if cell == NULL:
        return None
    base = kind.base if isinstance(kind, EnumType) else kind
    if base.facts is None:
        hint = "pass the row to add_row instead"
        raise _refused(number, f"`{name}` has a type that a cell can't hold", hint)
    try:
        if not cell:
            found = "the cell is empty"
            raise ScriptError(with_hint(found, 'write null, or "" for an empty text'))
        parse = at if isinstance(base, DatetimeType) else base.facts.parse
        value = parse(json.loads(cell) if cell.startswith('"') else cell)
        return kind.coerce(kind.load(value) if isinstance(kind, EnumType) else value, name)
    except SessionkitError as error:
        msg = f"line {number}, column `{name}`: {error}"
        raise ScriptError(msg) from error
    except (ArithmeticError, LookupError, ValueError) as error:
        found = f"`{name}`: {cell!r} can't be read as {type_name(base)}"
        raise _refused(number, found, "write it as a test would, or null") from error


def _refused(number: int, found: str, hint: str) -> ScriptError:
    return ScriptError(with_hint(f"line {number}: {found}", hint))
