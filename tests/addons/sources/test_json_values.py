"""Values of JSON: each is read as it was sent, or its payload is quarantined."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs, SessionSpec, SpecError
from sessionkit.addons.sources import Json, JsonLines, read_batch
from sessionkit.spark import sessionize
from sessionkit.state import DecimalType


class Plan(Enum):
    FIRST = "1.1"
    OTHER = "1"


@attrs.frozen
class Part:
    text: str
    real: float
    exact: Decimal | None = None
    at: datetime | None = None


Cents = Annotated[Decimal, DecimalType(10, 2)]
READ: dict[Any, list[str]] = {
    float: [
        "0.0",
        "-0.0",
        "1e308",
        "5e-324",
        "0e-400",
        "12345678901234567",
        "0.1234567890123456789",
    ],
    list[float]: ["[0.0, 1.5]", "[]", "[1e-300, 10.05]"],
    dict[str, float]: ['{"N": 1, "Infinity": 0.0}'],
    str: ["5", "1.1", "12345678901234567890123", '"1.10"', '"-0"', '"NaN"', '{"a": [1.5, true]}'],
    list[str]: ['["1.10", "a, 1.10"]', "[1.1, 0]"],
    dict[str, str]: ['{"1.10": "1.10"}'],
    Plan: ["1.1", "1"],
    date: ['"2026-03-02"', '"2026-3-2"', '" 2026-03-02 "', '"9999-12-31"'],
    datetime: [
        '"2026-03-02T12:00:00.123456000Z"',
        '"2026-03-02 12:00:00 America/New_York"',
        '"2026-03-02T12:00"',
        '"2026-03-02"',
        "500",
        "-5",
    ],
    timedelta: ['"0 00:44:57.123456"', "\"INTERVAL '0 00:44:57' DAY TO SECOND\""],
    Cents: ["1.230", '"1.50"', "1.5E3", "0E-18", "1e-2", "12345678.9", "1000e-2"],
    list[Cents]: ["[1.23, 0.10]", '["1.50"]'],
    bytes: ['"YQ=="', '""', '"YWI="', '"YWJj"'],
    Part: ['{"text": "a", "real": 1.50, "exact": 1.10}', '{"text": "1.10", "real": 1.50}'],
    dict[str, list[float]]: ['{"a": [1.5]}'],
}
REFUSED: dict[Any, list[str]] = {
    float: ["1e400", "-1e400", '"NaN"', '"Infinity"', '"-INF"', "NaN", "1e-400"],
    list[float]: ["[1, 1e400]", '["NaN"]', "[NaN]", "[1e-400]"],
    dict[str, float]: ['{"a": 1e400}', '{"a": "+INF"}'],
    dict[str, list[float]]: ['{"a": [1e400]}', '{"a": ["NaN"]}'],
    str: ["1.10", "-0", "1e5", "1E400", "NaN", "12345678901234567.1", '{"a": 1.10}', "[-0]"],
    list[str]: ["[1.10]", '["a", -0]', '[{"a": 1.10}]'],
    list[list[str]]: ["[[1.10]]"],
    dict[str, str]: ['{"a": 1.10}', '{"a": {"b": 1e1}}'],
    Plan: ["1.10"],
    date: [
        '"2026-03-02 x"',
        '"2026-03-02T23:00:00Z"',
        '"20260302"',
        '"2026"',
        '"2026-03"',
        '"17"',
        '"10000-01-01"',
    ],
    list[date]: ['["2026-03-02", "2026-03-02 x"]'],
    datetime: [
        '"2026-03-02T12:00:00.123456789Z"',
        '"2026"',
        '"2026-03"',
        '"12:00"',
        '"10000-01-01T00:00:00Z"',
    ],
    dict[str, datetime]: ['{"a": "2026-03-02T12:00:00.1234567Z"}', '{"a": "2026"}'],
    timedelta: ['"0 00:44:57.1234567"', "90", '"PT1M"'],
    Decimal: [
        "12345678901234567.1234567890123456789",
        '"12345678901234567.1234567890123456789"',
        "1e-19",
        '"NaN"',
        "1e400",
    ],
    Cents: ["1.234", '"1.234"', "9007199.100000001", "1234567890123456.789", "1e-3", "1.2345e1"],
    list[Cents]: ["[1.23, 1.234]", '["1.234"]', "[1e-3]"],
    dict[str, Cents]: ['{"a": 1.234}'],
    bytes: ['"YR=="', '"YQ==YQ=="', '"YQ"', "5"],
    int: ["1.0", "1e3", "9223372036854775808", "true", '"5"'],
    bool: ["1", "0", '"true"'],
    Part: [
        '{"text": 1.10, "real": 1}',
        '{"text": "a", "real": 1e400}',
        '{"text": "a", "real": 1, "exact": 1e-19}',
        '{"text": "a", "real": 1, "at": "2026-01-01T00:00:00.1234567Z"}',
        '{"text": "a", "text": "b", "real": 1}',
    ],
    list[Part]: ['[{"text": 1.10, "real": 1}]', '[{"text": "a", "real": 1e400}]'],
    dict[str, Part]: ['{"a": {"text": "a", "real": "NaN"}}'],
}


def spec_of(event: type[Any], key: Any = str) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.per_event(
        event,
        keys={"user": key},
        event_time="at",
        gap="1h",
        watermark_delay="1h",
        inputs=Inputs(passthrough=JsonLines.origin_columns),
    )


def outcome(
    spark: SparkSession, folder: Path, spec: Any, lines: list[str], payload: Json
) -> tuple[list[Any], dict[str, str]]:
    """Return the rows of sessions, and the reason of each payload that is quarantined."""
    folder.mkdir(exist_ok=True)
    (folder / "lines.json").write_text("\n".join(lines), encoding="utf-8")
    events = read_batch(spark, JsonLines(folder, payload=payload), spec)
    rows = sessionize(events, spec, with_rejected=True).collect()
    refused = {bytes(row.payload).decode(): row.reason for row in rows if row.kind != "session"}
    return [row for row in rows if row.kind == "session"], refused


def columns_of(kinds: dict[Any, list[str]]) -> tuple[type[Any], list[str]]:
    """Return a class with a column for each type, and a payload for each value."""
    names = {kind: f"v{place}" for place, kind in enumerate(kinds)}
    fields: dict[str, Any] = {
        name: attrs.field(default=None, type=kind | None) for kind, name in names.items()
    }
    event = attrs.make_class("Event", fields, frozen=True)
    values = [(names[kind], value) for kind, several in kinds.items() for value in several]
    return event, [
        f'{{"user": "u{place}", "at": 1772971210, "{name}": {value}}}'
        for place, (name, value) in enumerate(values)
    ]


def test_what_json_says_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers without end, digits of texts, times in any form of ISO 8601 with a date."""
    event, lines = columns_of(READ)
    rows, refused = outcome(spark, tmp_path, spec_of(event), lines, Json())

    assert {} == refused
    assert len(lines) == len(rows)
    values = {row.user: [row[f"v{place}"] for place in range(len(READ))] for row in rows}
    found = [next(v for v in values[f"u{n}"] if v is not None) for n in range(len(lines))]
    assert [0.0, 0.0, 1e308, 5e-324, 0.0, 12345678901234567.0, 0.12345678901234568] == found[:7]
    texts = found[11:18]
    assert ["5", "1.1", "12345678901234567890123", "1.10", "-0", "NaN"] == texts[:6]


def test_what_would_become_another_value_is_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    """At any depth, with the digits that the payload has."""
    event, lines = columns_of(REFUSED)
    rows, refused = outcome(spark, tmp_path, spec_of(event), lines, Json())

    assert [] == [row.asDict(recursive=True) for row in rows]
    assert {*lines} == {*refused}
    by_value = {line.rpartition(": ")[2].removesuffix("}"): why for line, why in refused.items()}
    assert by_value["1.10"].endswith("isn't a string: 1.10")


@pytest.mark.parametrize(
    ("kind", "read", "refused"),
    [
        (
            str,
            {'"1.10"': "1.10", "1.1": "1.1", "17": "17"},
            ["1.10", "12345678901234567.1", "12345678901234567.2", "-0", "1e5"],
        ),
        (bytes, {'"YQ=="': b"a"}, ['"YR=="']),
        (date, {'"2026-03-02"': date(2026, 3, 2)}, ['"2026-03-02 x"', '"2026-03"', '"17"']),
        (Cents, {"1.10": Decimal("1.1")}, ["1.101", '"1.101"', "1e-3"]),
    ],
)
def test_two_keys_never_become_one(
    spark: SparkSession, tmp_path: Path, kind: Any, read: dict[str, Any], refused: list[str]
) -> None:
    """A key is what was in the payload."""

    @attrs.frozen
    class Event:
        page: str | None = None

    lines = [f'{{"at": 1772971210, "user": {key}}}' for key in (*read, *refused)]
    rows, reasons = outcome(spark, tmp_path, spec_of(Event, kind), lines, Json())

    assert sorted(read.values()) == sorted(
        bytes(row.user) if kind is bytes else row.user for row in rows
    )
    assert {*lines[len(read) :]} == {*reasons}


@pytest.mark.parametrize(
    "case",
    [
        ({"allowNonNumericNumbers": "true"}, float, ["NaN", '"NaN"', "-INF"], ["1e400", "1e-400"]),
        ({"allowNonNumericNumbers": "false"}, float, ["1.5"], ["1e400", '"NaN"', "NaN"]),
        ({"locale": "de-DE"}, Cents, ['"1,50"', "1.5"], ['"1,505"', "1.505"]),
        ({"DateFormat": "dd.MM.yyyy"}, date, ['"02.03.2026"'], ['"02.03.2026 x"']),
        ({"allowUnquotedFieldNames": "true"}, str, ['"a 1.10"', "1.1"], ["1.10"]),
    ],
)
def test_an_option_of_json_admits_what_it_names_alone(
    spark: SparkSession, tmp_path: Path, case: tuple[dict[str, str], Any, list[str], list[str]]
) -> None:
    """And nothing else."""
    options, kind, read, refused = case
    event = attrs.make_class("Event", {"value": attrs.field(type=kind)})
    name = "value" if "allowUnquotedFieldNames" in options else '"value"'
    lines = [
        f'{{"user": "u{place}", "at": 1772971210, {name}: {value}, "it": "\'1.10"}}'
        for place, value in enumerate((*read, *refused))
    ]
    rows, reasons = outcome(spark, tmp_path, spec_of(event), lines, Json(options))

    assert len(read) == len(rows)
    assert {*lines[len(read) :]} == {*reasons}


def test_a_dict_with_other_names_than_texts_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """On the driver, since names in JSON are texts."""

    @attrs.frozen
    class Event:
        days: dict[date, int]

    with pytest.raises(SpecError, match="`days` is a map whose keys aren't text"):
        read_batch(spark, JsonLines(tmp_path), spec_of(Event))
