"""Rows packed for the shuffle come out as they went in, the events and those that can't be."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from sessionkit import NoTimeout
from sessionkit._arrays import INSTANT
from sessionkit._engine.wire.inbound import BYTES_AT_ONCE, ROWS_AT_ONCE, TOO_LATE
from sessionkit._engine.wire.packing import BYTES_OF_A_PACK, Packer
from sessionkit._instants import LAST_INSTANT_US, micros_of
from sessionkit.testing import at
from tests.support.packs import GROUP, IS_FUTURE, packed, sent
from tests.support.stateful_specs import summing, taking

HERE = pa.timestamp("us", tz="America/New_York")
"""Spark sends instants in the zone of the session."""


@attrs.frozen
class Reading:
    """An event: a number, and text that may be missing."""

    value: int
    note: str | None


READINGS = taking(Reading)
FIRST_US = micros_of(datetime(1, 1, 1, tzinfo=UTC))
LAST_US = LAST_INSTANT_US - 3_600_000_000
NOON_US = micros_of(at("12:00"))

Row = dict[str, Any]


def row_of(offset: int = 0, **changes: Any) -> Row:
    """Return a row that can be an event."""
    row = {"group": 0, "user": "ann", "at": NOON_US, IS_FUTURE: False, "value": 1, "note": None}
    return {**row, "offset": offset, **changes}


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as one record batch of Spark's."""
    types = {
        "group": pa.int32(),
        "user": pa.string(),
        "at": pa.int64(),
        IS_FUTURE: pa.bool_(),
        "value": pa.int64(),
        "note": pa.string(),
        "offset": pa.int64(),
    }
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    columns["at"] = columns["at"].cast(HERE)
    (batch,) = sent(READINGS, columns).to_batches() or [None]
    return batch or pa.RecordBatch.from_pylist([], sent(READINGS, columns).schema)


def reason_of(row: Row) -> str | None:
    """Return why a row can't be an event, the plain way: the first thing that is wrong."""
    if row["at"] is None:
        return "its event time is null"
    if row["at"] < FIRST_US:
        return "its event time is before the year 1"
    if row["at"] > LAST_US:
        return "its event time, or an end counted from it, is after the year 9999"
    if row[IS_FUTURE]:
        return "its event time is too far in the future"
    if row["user"] is None:
        return "`user` is null"
    return "`event.value` is null" if row["value"] is None else None


def unpacked_row(row: Row) -> Row:
    """Return a row as it's to come out."""
    us = row["at"]
    time_us = us if us is not None and FIRST_US <= us <= LAST_US else None
    event = {"event.value": row["value"], "event.note": row["note"]}
    return {"key.user": row["user"], "time": time_us, **event, "passthrough.offset": row["offset"]}


def rows_in(table: pa.Table) -> list[Row]:
    """Return the rows of a table, instants in microseconds."""
    assert INSTANT == table.schema.field("time").type
    place = table.schema.get_field_index("time")
    return table.set_column(place, "time", table["time"].cast(pa.int64())).to_pylist()  # type: ignore[no-any-return]


INSTANTS_US = [FIRST_US - 1, FIRST_US, -1, 0, 1, NOON_US, NOON_US + 1, LAST_US, LAST_US + 1]
BIG = "x" * (BYTES_OF_A_PACK // 3)


@st.composite
def row_batches(draw: DrawFn) -> list[list[Row]]:
    """Make rows of a few groups, good, bad and big ones, cut into record batches."""
    faults = st.fixed_dictionaries(
        {},
        optional={
            "user": st.none(),
            "at": st.sampled_from([None, *INSTANTS_US]),
            IS_FUTURE: st.sampled_from([True, None]),
            "value": st.none(),
            "note": st.sampled_from(["", "text", BIG]),
        },
    )
    groups = st.integers(0, 2)
    count = draw(st.integers(0, 20))
    rows = [row_of(place, group=draw(groups), **draw(faults)) for place in range(count)]
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=4)))
    return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, count], strict=True)]


@given(batches=row_batches())
def test_every_row_comes_out_once_in_its_group_and_in_order(batches: list[list[Row]]) -> None:
    """
    Events and rejected rows, these with the first reason, however the batches are cut.

    A marker has the latest time of an event; rows that can't be one never move the watermark.
    """
    found = packed(READINGS, map(batch_of, batches))

    events: dict[Any, list[Any]] = defaultdict(list)
    rejected: dict[Any, list[Any]] = defaultdict(list)
    for row in (row for rows in batches for row in rows):
        reason = reason_of(row)
        chosen = events if reason is None else rejected
        chosen[row["group"],].append((reason, unpacked_row(row)))
    assert {*events, *rejected} == {*found.packs}
    times_us = [row["time"] for rows in events.values() for _, row in rows]
    assert ([max(times_us)] if times_us else []) == found.markers
    for group in found.packs:
        table, bad = found.read(READINGS, group)
        assert READINGS.events_schema == table.schema
        assert [row for _, row in events[group]] == rows_in(table)
        shown = [pair for one in bad for pair in zip(one.reasons, rows_in(one.rows), strict=True)]
        assert rejected[group] == shown
        assert all(one.kind == "quarantined" for one in bad)


def test_without_a_watermark_there_are_no_markers() -> None:
    """Nor the column for them: a batch, or a spec without a watermark, has no use for it."""
    found = packed(READINGS, [batch_of([row_of()])], moves_watermark=False)

    assert [] == found.markers
    assert 1 == found.read(READINGS, (0,))[0].num_rows


def counted(batch: pa.RecordBatch, seen: list[int]) -> Iterator[pa.RecordBatch]:
    """Return a batch over and over, and count how often it has been taken."""
    while True:
        seen.append(1)
        yield batch


@pytest.mark.parametrize(
    ("batch", "most"),
    [
        (batch_of([row_of(note="x" * 2**20)] * 8), BYTES_AT_ONCE // 2**23),
        (batch_of([row_of()] * 2**14), ROWS_AT_ONCE // 2**14),
    ],
    ids=["bytes", "rows"],
)
def test_packing_holds_bytes_and_rows_up_to_its_limits(batch: pa.RecordBatch, most: int) -> None:
    """The first packs come out before more is read, however long the partition is."""
    seen: list[int] = []

    next(Packer(READINGS, GROUP, moves_watermark=True)(counted(batch, seen)))

    assert most == len(seen)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_pack_is_of_limited_size(groups: int) -> None:
    """Rows of a group go into as many packs as they need, each about as large as may be."""
    rows = [row_of(place, group=place % groups, note="x" * 1000) for place in range(1200)]

    found = packed(READINGS, [batch_of(rows)])

    assert max(found.sizes) <= BYTES_OF_A_PACK * 1.05
    assert len(found.sizes) <= 1200 * 1100 // BYTES_OF_A_PACK + groups
    for group in range(groups):
        events, _ = found.read(READINGS, (group,))
        assert [*range(group, 1200, groups)] == events["passthrough.offset"].to_pylist()


def test_a_group_may_be_of_several_columns() -> None:
    """Rows are told apart by all of them, whatever their types."""
    parts = [(b"\0", 2**60 + 1), (b"\0", 2**60), (b"", 2**60), (b"\0", 2**60 + 1)]
    plain = batch_of([row_of(place) for place in range(len(parts))])
    raws, wholes = map(pa.array, zip(*parts, strict=True))
    batch = plain.append_column("raw", raws).append_column("whole", wholes)

    found = packed(READINGS, [batch], group=("raw", "whole"))

    offsets = {
        group: found.read(READINGS, group)[0]["passthrough.offset"].to_pylist()
        for group in found.packs
    }
    assert {parts[0]: [0, 3], parts[1]: [1], parts[2]: [2]} == offsets


class Device(Enum):
    """A device, by its name in the data."""

    PHONE = "phone"
    DESK = "desk"


@attrs.frozen
class Point:
    x: int
    seen: datetime | None


@attrs.frozen
class Everything:
    """A field of every type that Python gets in another form than the column's."""

    when: datetime | None
    day: date
    span: timedelta
    opens: time
    device: Device
    money: Decimal
    points: list[Point]
    tags: dict[str, int]


EVERYTHING = taking(Everything, timeout=NoTimeout())
POINTS = pa.list_(pa.struct({"x": pa.int32(), "seen": HERE}))
FOLD = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]
"""In New York both are 1:30."""
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)


def everything(zone: pa.DataType = HERE, **changes: pa.Array) -> pa.RecordBatch:
    """Return two rows, in types as Spark has them."""
    points = [[{"x": 1, "seen": FOLD[1]}, {"x": 2, "seen": None}], []]
    columns = {
        "group": pa.array([0, 0], pa.int32()),
        "user": pa.array(["ann", "bob"]),
        "at": pa.array(FOLD, zone),
        "when": pa.array([FOLD[1], None], zone),
        "day": pa.array([date(1969, 12, 31), date(2026, 1, 1)]),
        "span": pa.array([-timedelta(days=400, microseconds=1), timedelta(0)], pa.duration("us")),
        "opens": pa.array([34_200_000_000, 0], pa.int64()),
        "device": pa.array(["phone", "desk"]),
        "money": pa.array([Decimal("10.25"), Decimal("-0.01")], pa.decimal128(12, 2)),
        "points": pa.array(points, POINTS),
        "tags": pa.array([[("b", 2**53 + 1), ("a", 0)], []], pa.map_(pa.string(), pa.int64())),
        "offset": pa.array([7, None], pa.int64()),
        **changes,
    }
    (batch,) = sent(EVERYTHING, columns).to_batches()
    return batch


def test_values_of_every_type_come_out_as_they_are_stored() -> None:
    """Instants are in UTC, decimals at the declared scale, collections of the declared types."""
    events, rejected = packed(EVERYTHING, [everything()]).read(EVERYTHING, (0,))

    assert [] == rejected
    assert EVERYTHING.events_schema == events.schema
    assert [
        {
            "key.user": "ann",
            "time": FOLD[0],
            "event.when": FOLD[1],
            "event.day": date(1969, 12, 31),
            "event.span": -timedelta(days=400, microseconds=1),
            "event.opens": 34_200_000_000,
            "event.device": "phone",
            "event.money": Decimal("10.25"),
            "event.points": [{"x": 1, "seen": FOLD[1]}, {"x": 2, "seen": None}],
            "event.tags": [("b", 2**53 + 1), ("a", 0)],
            "passthrough.offset": 7,
        },
        {
            "key.user": "bob",
            "time": FOLD[1],
            "event.when": None,
            "event.day": date(2026, 1, 1),
            "event.span": timedelta(0),
            "event.opens": 0,
            "event.device": "desk",
            "event.money": Decimal("-0.01"),
            "event.points": [],
            "event.tags": [],
            "passthrough.offset": None,
        },
    ] == events.to_pylist()


@attrs.frozen
class Nested:
    rows: list[dict[str, list[list[int]]]]


NESTED = taking(Nested, timeout=NoTimeout())


def bare(kind: pa.DataType) -> pa.Array:
    """Return no values as the JVM of Spark 3.5 and 4.0 sends them: no bytes of offsets."""
    # What follows a buffer of no bytes is anything, and here no offset of anything.
    beyond = pa.py_buffer(b"\x7f" * 64).slice(0, 0)
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, 0, [None, beyond], children=[bare(entries)])
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, 0, [None, beyond], children=[bare(kind.value_type)])
    if pa.types.is_struct(kind):
        parts = [bare(field.type) for field in kind]
        return pa.Array.from_buffers(kind, 0, [None], children=parts)
    return pa.Array.from_buffers(kind, 0, [None, beyond, beyond][: kind.num_buffers])


def test_lists_without_offsets_are_empty() -> None:
    """Where all lists of a batch are empty, nothing is read of the lists that they could hold."""
    inner = pa.map_(pa.string(), pa.list_(pa.list_(pa.int64())))
    offsets = pa.py_buffer(bytes(4 * 3))
    rows = pa.Array.from_buffers(pa.list_(inner), 2, [None, offsets], children=[bare(inner)])
    columns = {
        "group": pa.array([0, 0], pa.int32()),
        "user": pa.array(["ann", "bob"]),
        "at": pa.array(FOLD, HERE),
        "rows": rows,
        "offset": pa.array([1, 2]),
    }

    for batches in (1, 3):
        found = packed(NESTED, sent(NESTED, columns).to_batches() * batches)

        events, _ = found.read(NESTED, (0,))
        assert [[]] * 2 * batches == events["event.rows"].to_pylist()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
@pytest.mark.parametrize("instant", [FIRST, LAST])
def test_the_first_and_last_instant_come_out_in_any_zone(instant: datetime, zone: str) -> None:
    """The zone of the session may show them in a year that no `datetime` has."""
    kind = pa.timestamp("us", tz=zone)
    us = micros_of(instant)
    points = pa.array(
        [[{"x": 1, "seen": us}]] * 2, pa.list_(pa.struct({"x": pa.int32(), "seen": pa.int64()}))
    ).cast(pa.list_(pa.struct({"x": pa.int32(), "seen": kind})))
    instants = pa.array([us] * 2).cast(kind)

    batch = everything(kind, at=instants, when=instants, points=points)
    events, rejected = packed(EVERYTHING, [batch]).read(EVERYTHING, (0,))

    assert [] == [reason for one in rejected for reason in one.reasons]
    assert [instant] * 2 == events["time"].to_pylist()
    assert [instant] * 2 == events["event.when"].to_pylist()
    assert [[{"x": 1, "seen": instant}]] * 2 == events["event.points"].to_pylist()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"when": pa.array([0, 2**62]).cast(HERE)}, "`event.when` is outside the years 1 to 9999"),
        (
            {"when": pa.array([0, FIRST_US - 1]).cast(HERE)},
            "`event.when` is outside the years 1 to 9999",
        ),
        (
            {"day": pa.array([0, 10**7], pa.int32()).cast(pa.date32())},
            "`event.day` is outside the years 1 to 9999",
        ),
        (
            {"opens": pa.array([0, 24 * 3600 * 10**6])},
            "`event.opens` is outside the microseconds of a day",
        ),
        ({"day": pa.array([date(2026, 1, 1), None])}, "`event.day` is null"),
        ({"device": pa.array(["desk", "toaster"])}, "`event.device` isn't a member of Device"),
        (
            {"money": pa.array([Decimal(1), Decimal(10) ** 30], pa.decimal128(38, 0))},
            "`event.money` must be a Decimal of 38 digits",
        ),
        (
            {"points": pa.array([[], [{"x": 1, "seen": None}, {"x": None, "seen": None}]], POINTS)},
            "`event.points[1].x` must be an int, found NoneType",
        ),
        ({"points": pa.array([[], [None]], POINTS)}, "`event.points[0]` must be"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_shown_as_null(
    change: dict[str, pa.Array], reason: str
) -> None:
    """The rest of the row is shown as it is, with the reason, and the row beside it is an event."""
    events, (rejected,) = packed(EVERYTHING, [everything(**change)]).read(EVERYTHING, (0,))

    assert ["ann"] == events["key.user"].to_pylist()
    (name,) = change
    (found,) = rejected.rows.to_pylist()
    assert ("bob", FOLD[1], None) == (found["key.user"], found["time"], found[f"event.{name}"])
    assert (rejected.reasons[0] or "").startswith(reason)


class Plan(Enum):
    """Plans, in any case; a new one is another."""

    FREE = "free"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "Plan | None":
        if not isinstance(value, str) or len(value) > 8:
            raise LookupError(value)
        return cls.FREE if value.lower() == "free" else cls.OTHER


class Rights(Flag):
    READ = 1
    WRITE = 2


@attrs.frozen
class Inside:
    plans: list[Plan]


def test_a_value_inside_a_list_that_is_of_no_member_is_quarantined() -> None:
    """Under the path of its field; one that `_missing_` knows is that member."""
    spec = taking(Inside, timeout=NoTimeout())
    plans = pa.array([["gold", "FREE"], ["free", "not one of ours"]])
    keys = {"group": pa.array([0, 0], pa.int32()), "user": pa.array(["ann", "bob"])}
    at_and_offset = {"at": pa.array(FOLD, HERE), "offset": pa.array([7, 8])}
    batches = sent(spec, {**keys, **at_and_offset, "plans": plans}).to_batches()

    events, (rejected,) = packed(spec, batches).read(spec, (0,))

    assert [["other", "free"]] == events["event.plans"].to_pylist()
    assert ["`event.plans`: LookupError: not one of ours"] == list(rejected.reasons)


@attrs.frozen
class Told:
    """A field of each type whose columns have values that aren't of it."""

    plan: Plan
    rights: Rights
    side: Literal["left", "right"]
    visit: UUID
    wait: Annotated[timedelta, "seconds"]


TOLD = taking(Told, timeout=NoTimeout())


def told(**changes: Any) -> pa.RecordBatch:
    """Return two rows, the second with other values."""
    other = {"plan": "FREE", "rights": 3, "side": "left", "visit": f"{UUID(int=10)}".upper()}
    first = {"plan": "free", "rights": 1, "side": "right", "visit": f"{UUID(int=9)}", "wait": 0.5}
    other = {"wait": 0.12345678, **other, **changes}
    columns = {name: pa.array([value, other[name]]) for name, value in first.items()}
    keys = {"group": pa.array([0, 0], pa.int32()), "user": pa.array(["ann", "bob"])}
    keys["offset"] = pa.array([7, 8])
    (batch,) = sent(TOLD, {**keys, "at": pa.array(FOLD, HERE), **columns}).to_batches()
    return batch


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        ("plan", "FREE", "free"),
        ("plan", "gold", "other"),
        ("rights", 3, 3),
        ("rights", 0, 0),
        ("visit", f"{UUID(int=10)}".upper(), f"{UUID(int=10)}"),
        ("wait", 0.12345678, 0.123457),
        ("wait", -(2.0**33), -(2.0**33)),
    ],
)
def test_a_value_is_stored_as_python_would_write_it(field: str, value: Any, stored: Any) -> None:
    """So members that `_missing_` makes are equal, and so are UUIDs in any case."""
    events, rejected = packed(TOLD, [told(**{field: value})]).read(TOLD, (0,))

    assert [] == rejected
    assert stored == events[f"event.{field}"].to_pylist()[1]


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("plan", "not one of ours", "isn't a member of Plan"),
        ("rights", 4, "isn't a member of Rights"),
        ("side", "Left", "isn't one of 'left', 'right'"),
        ("visit", "0" * 32, "isn't a UUID with hyphens"),
        ("visit", f"{UUID(int=10)}\n", "isn't a UUID with hyphens"),
        ("visit", f"{{{UUID(int=10)}}}", "isn't a UUID with hyphens"),
        ("wait", float("nan"), "isn't a number of seconds within 272 years"),
        ("wait", 2.0**33 + 1, "isn't a number of seconds within 272 years"),
    ],
)
def test_a_value_that_python_makes_nothing_of_is_quarantined(
    field: str, value: Any, why: str
) -> None:
    """Whatever `_missing_` raises."""
    events, (rejected,) = packed(TOLD, [told(**{field: value})]).read(TOLD, (0,))

    assert ["ann"] == events["key.user"].to_pylist()
    assert [f"`event.{field}` {why}"] == list(rejected.reasons)


NUMBERS = st.integers(1 - 10**38, 10**38 - 1) | st.integers(0, 37).map(lambda power: 10**power)


@example(number=10**30, scale=0)
@given(number=NUMBERS, scale=st.integers(0, 38))
def test_a_decimal_keeps_its_value_or_is_quarantined(number: int, scale: int) -> None:
    """It never wraps around, as it does in a cast of Arrow's that scales up."""
    value = Decimal(number).scaleb(-scale, Context(prec=38))
    money = pa.array([Decimal(0), value], pa.decimal128(38, scale))

    found = packed(EVERYTHING, [everything(money=money)])

    events, rejected = found.read(EVERYTHING, (0,))
    fits = abs(value) < 10**20 and Fraction(value) * 10**18 % 1 == 0
    assert [0, value][: 1 + fits] == events["event.money"].to_pylist()
    assert int(not fits) == sum(one.rows.num_rows for one in rejected)


def test_rows_without_an_event_time_have_1970() -> None:
    """All of them, so time order leaves them as they are."""
    spec = summing(event_time=None, watermark_delay=None)
    columns = {"group": pa.array([0]), "key": pa.array(["ann"]), "number": pa.array([3])}

    found = packed(spec, sent(spec, columns).to_batches(), moves_watermark=False)

    events, rejected = found.read(spec, (0,))
    assert [] == rejected
    assert [{"key.key": "ann", "time": datetime(1970, 1, 1, tzinfo=UTC), "event.number": 3}] == (
        events.to_pylist()
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row_of(at=None), row_of(user=None), row_of(user=None)],
            "3 quarantined, 2 because: `user` is null\n\nHint: look at the rejected rows",
        ),
        (
            [row_of(at=LAST_US + 1)],
            f"1 quarantined, 1 because: {TOO_LATE}\n\nHint: read milliseconds with timestamp",
        ),
    ],
)
def test_a_run_without_any_event_logs_why(
    rows: Sequence[Row], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The most frequent reason, once a task; nothing where a row is good, or in later batches."""
    packer = Packer(READINGS, GROUP, moves_watermark=True)
    assert list(packer([batch_of(rows)], is_first=True))
    (warning,) = caplog.messages
    assert said in warning

    caplog.clear()
    assert list(packer([batch_of(rows), batch_of([row_of()])], is_first=True))
    assert list(packer([batch_of(rows)]))
    assert [] == caplog.messages
