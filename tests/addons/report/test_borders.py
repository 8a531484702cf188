"""The odd values of each type in a report: as they are, or not counted, which the page says."""

from datetime import timedelta
from typing import Any, Final

import attrs
import pyarrow as pa
import pytest

from sessionkit import SchemaError
from sessionkit.addons.report import Columns
from sessionkit.addons.report.engine import engine_of
from sessionkit.addons.report.summary import summarized
from tests.support.borders import (
    EQUAL,
    KINDS,
    MICROSECOND,
    REFUSED,
    REPORT,
    SAID,
    SPEC,
    START,
    VALUES,
    Value,
)

ROLES: Final = {
    **dict.fromkeys(("whole", "real", "wait", "money", "cents", "rights"), "value"),
    **dict.fromkeys(("text", "visit", "side", "device", "email"), "dimensions"),
    "yes": "converted",
    "span": "engaged_time",
}
"""Where a column of each type may be; others may be nowhere but in keys and lists."""


def summary_of(kind: str, *values: Any) -> dict[str, Any]:
    numbers = [one // MICROSECOND if isinstance(one, timedelta) else one for one in values]
    type_ = SPEC.result_schema.field(kind).type
    column = pa.array(numbers, pa.int64() if kind == "span" else type_).cast(type_)
    users = [f"u{n}" for n in range(len(values))]
    times = pa.array([START] * len(values), pa.timestamp("us", "UTC"))
    rows = pa.table(
        {"user": users, "session_id": users, "session_start": times, "session_end": times}
    )
    roles: Any = {ROLES.get(kind, "dimensions"): kind}
    return summarized(engine_of(rows.append_column(kind, column), None), Columns(**roles))


def shown(summary: dict[str, Any], role: str) -> Any:
    """Return the figure of a page with one session; None where none is counted."""
    cells = summary["cubes"][0]["cells"]
    if role == "dimensions":
        (label,) = summary["filters"][0]["values"]
        return label
    if role == "engaged_time" and "engaged_time_known" not in cells:
        return None
    if cells.get(f"{role}_unknown", [0]) == [1]:
        return None
    return cells.get(role, [0])[0]


@pytest.mark.parametrize("value", [one for one in VALUES if one.kind in ROLES], ids=lambda v: v.row)
def test_a_value_is_shown_as_it_is(value: Value) -> None:
    """A number as a float; from 10^15 on, and where it isn't finite, the page says so."""
    summary = summary_of(value.kind, value.stored)
    found, outcome = shown(summary, ROLES[value.kind]), REPORT.of(value)

    assert (outcome == SAID) == (found is None)
    assert (outcome == SAID) == any(f"`{value.kind}`" in note for note in summary["notes"])
    if outcome == EQUAL:
        wanted = value.stored if isinstance(value.stored, str) else float(value.stored)
        close = found if isinstance(found, str) else pytest.approx(found, abs=5e-7)
        assert wanted == close


def test_a_duration_is_one_of_milliseconds() -> None:
    """Of sessions of which it is known."""
    summary = summary_of("span", timedelta(minutes=44, seconds=57, microseconds=123_456), None)
    cells = summary["cubes"][0]["cells"]

    assert ([2_697_123], [1]) == (cells["engaged_time"], cells["engaged_time_known"])


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in ROLES])
def test_a_column_of_an_unsupported_type_is_refused(kind: str) -> None:
    """By the name of its column."""
    assert REFUSED == REPORT.kinds[kind]
    values = [attrs.evolve(value) for value in VALUES if value.kind == kind]
    with pytest.raises(SchemaError, match=f"`{kind}` must be a text column"):
        summary_of(kind, values[0].stored)
