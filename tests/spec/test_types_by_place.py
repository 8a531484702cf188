"""Where a field of each type may be: every cell of the table in `docs/reference/types.md`."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionkit import Functions, SessionRules, SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, SessionRow, at

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "types.md"


class Device(Enum):
    DESK = "desk"
    PHONE = "phone"


class Rights(Flag):
    READ = 1
    WRITE = 2


@attrs.frozen
class Item:
    price: int


Email = NewType("Email", str)
SECOND: Final = timedelta(seconds=1)
TYPES: Final[dict[str, tuple[Any, Any, Any]]] = {
    "`int`": (int, 1, 3),
    "`float`": (float, 1.0, 3.0),
    "`bool`": (bool, False, True),
    "`str`": (str, "a", "b"),
    "`bytes`": (bytes, b"a", b"b"),
    "`datetime`": (datetime, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
    "`date`": (date, date(2026, 1, 1), date(2026, 1, 2)),
    "`timedelta`": (timedelta, SECOND, 3 * SECOND),
    '`Annotated[timedelta, "seconds"]`': (Annotated[timedelta, "seconds"], SECOND, 3 * SECOND),
    "`time`": (time, time(9), time(10)),
    "`Decimal`": (Decimal, Decimal(1), Decimal(3)),
    "`UUID`": (UUID, UUID(int=1), UUID(int=3)),
    "`Literal`": (Literal["a", "b"], "a", "b"),
    "`Enum`": (Device, Device.DESK, Device.PHONE),
    "`Flag`": (Rights, Rights.READ, Rights.READ | Rights.WRITE),
    "`NewType`": (Email, "a", "b"),
    "`list`": (list[int], [1], []),
    "`dict`": (dict[str, int], {"a": 1}, {}),
    "`tuple`": (tuple[int, str], (1, "a"), (2, "b")),
    "`Item`": (Item, Item(1), Item(3)),
}
"""The types of the rows, each with a lesser and a greater value."""

RULES: Final[dict[str, Any]] = {"event_time": "ts", "watermark_delay": "0 seconds"}


def event_of(annotation: Any) -> Any:
    return attrs.make_class("Event", {"value": attrs.field(type=annotation)}, frozen=True)


def row_of(spec: SessionSpec[Any, Any, Any], key: Any, *values: Any) -> SessionRow[Any]:
    """Return the row of a session with these values, with a restart before the last."""
    driver, before = SessionDriver(spec), values[:-1]
    for minute, value in enumerate(before):
        driver.add(key, at(f"12:{minute:02}"), spec.event(value))
    driver.run_batch()
    driver = SessionDriver.restore(spec, driver.snapshot())
    driver.add(key, at("12:30"), spec.event(values[-1]))
    driver.add(key, at("20:00"), spec.event(values[0]))
    driver.run_until_idle()
    return driver.take_rows()[0]


def folding(kept: Any, put: Callable[[Any, Any], None]) -> Any:
    """Return a spec whose state keeps the values of its events in a collection."""
    (collection,) = attrs.fields(kept)
    event = event_of(collection.metadata["of"])

    def create(key: Any, event: Any) -> Any:
        state = kept(collection.metadata["empty"]())
        put(state.values, event.value)
        return state

    def update(state: Any, event: Any) -> Any:
        put(state.values, event.value)
        return state

    logic: Any = Functions(event=event, state=kept, create=create, update=update)
    return SessionSpec(keys={"key": str}, logic=logic, gap="1h", order="event_time", **RULES)


def kept_in(annotation: Any, of: Any, empty: Callable[[], Any]) -> Any:
    values = attrs.field(type=annotation, metadata={"of": of, "empty": empty})
    return attrs.make_class("Kept", {"values": values})


def as_field(annotation: Any, less: Any, more: Any) -> Any:
    """Of an event, of a state inside a list, and of a result."""
    kept = kept_in(list[annotation], annotation, list)
    row = row_of(folding(kept, lambda values, value: values.append(value)), "ann", less, more)
    return [less, more] == row.result.values


def as_key_of_a_dict(annotation: Any, less: Any, more: Any) -> Any:
    """Of a state and of a result."""
    kept = kept_in(dict[annotation, int], annotation, dict)
    row = row_of(folding(kept, lambda values, value: values.update({value: 1})), "ann", less, more)
    return {less: 1, more: 1} == row.result.values


def aggregated(annotation: Any, timeout: Any = None, **aggregates: Any) -> Any:
    """Return a spec with aggregates of the values."""
    own = {"gap": "1h"} if timeout is None else {"timeout": timeout, "order": "event_time"}
    rules: Any = {"keys": {"key": str}, **own, **RULES}
    return SessionSpec.aggregate(event_of(annotation), aggregates, **rules)


def as_key(annotation: Any, less: Any, more: Any) -> Any:
    """Of a session, as its row has it."""
    spec = attrs.evolve(aggregated(int, n=agg.count()), keys={"key": annotation})
    return [less, more] == [row_of(spec, key, 1).key.key for key in (less, more)]


def as_a_change(annotation: Any, less: Any, more: Any) -> Any:
    """Another value begins another session, and an equal one doesn't."""
    spec = aggregated(annotation, SessionRules(gap="1h", changes_of="value"), n=agg.count())
    row = row_of(spec, "ann", less, less, more)
    return ("changes_of", 2) == (row.closed_by, row.result.n)


def picked(annotation: Any, less: Any, more: Any) -> Any:
    spec = aggregated(
        annotation,
        least=agg.min("value"),
        greatest=agg.max("value"),
        first=agg.first("value"),
        last=agg.last("value"),
        top=agg.top("value", 1),
        all=agg.collect("value"),
        different=agg.count_distinct("value"),
    )
    row = row_of(spec, "ann", more, less, more)
    assert [more, less, more] == row.result.all
    return (less, more, more, more, [more], 2) == tuple(
        getattr(row.result, name)
        for name in ("least", "greatest", "first", "last", "top", "different")
    )


def counted(annotation: Any, less: Any, more: Any) -> Any:
    row = row_of(aggregated(annotation, by=agg.count_by("value")), "ann", more, less, more)
    return {less: 1, more: 2} == row.result.by


def summed(annotation: Any, less: Any, more: Any) -> Any:
    row = row_of(aggregated(annotation, total=agg.sum("value")), "ann", less, more)
    return less + more == row.result.total


def averaged(annotation: Any, less: Any, more: Any) -> Any:
    """Values of 1 and 3, or as many seconds, have the mean 2."""
    return row_of(aggregated(annotation, m=agg.mean("value")), "ann", less, more).result.m == 2.0


def ranked(annotation: Any, less: Any, more: Any) -> Any:
    """The greater one, within one percent."""
    row = row_of(aggregated(annotation, p=agg.percentile("value", 1.0)), "ann", less, more)
    number = row.result.p / SECOND if isinstance(row.result.p, timedelta) else row.result.p
    return number == pytest.approx(3, rel=0.01)


PLACES: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "[field](spec.md)": as_field,
    "key": as_key,
    "key of a `dict`": as_key_of_a_dict,
    "`changes_of`": as_a_change,
    "`min`, `max`, `first`, `last`, `top`, `collect`, `count_distinct`": picked,
    "`count_by`": counted,
    "`sum`": summed,
    "`mean`": averaged,
    "`percentile`": ranked,
}


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield the type, the place and the text of each cell of the table."""
    lines = (
        PAGE.read_text("utf-8").partition("## Where each may be")[2].partition("## From border")[0]
    )
    header, _, *rows = [line.strip("| ").split(" | ") for line in lines.splitlines() if "|" in line]
    for kinds, *places in rows:
        for kind in re.findall("`[^`]+`", kinds):
            yield from ((kind, *cell) for cell in zip(header[1:], places, strict=True))


@pytest.mark.parametrize("place", PLACES)
def test_a_type_may_be_where_the_page_says(place: str) -> None:
    """Its values come out as they went in, over restarts; elsewhere the spec refuses it."""
    said = {kind: cell == "yes" for kind, where, cell in cells() if where == place}
    found = dict[str, bool]()
    for kind, (annotation, less, more) in TYPES.items():
        try:
            found[kind] = bool(PLACES[place](annotation, less, more))
        except SpecError:
            found[kind] = False

    assert said == found


def test_the_page_has_every_place() -> None:
    """A column of the table without a test, or the reverse, shows here."""
    assert [*PLACES] == list(dict.fromkeys(place for _, place, _ in cells()))


@attrs.frozen
class InSeconds:
    lasted: Annotated[timedelta, "seconds"]
    longest: Annotated[timedelta, "seconds"] | None
    total: timedelta


@attrs.frozen
class Lossy:
    """A field that may be missing, and says that it never is."""

    lasted: timedelta
    longest: Annotated[timedelta, "seconds"]
    total: timedelta


def test_a_result_class_has_the_durations_of_aggregates_in_seconds() -> None:
    """Where it says so, over a stored session too; as a column of floats, null where it's None."""
    aggregates = {
        "lasted": agg.duration(),
        "longest": agg.max("value", where=pc.field("value") > timedelta(0)),
        "total": agg.sum("value"),
    }
    rules: Any = {"keys": {"key": str}, "gap": "1h", **RULES}
    event = event_of(timedelta)
    spec: Any = SessionSpec.aggregate(event, aggregates, result=InSeconds, **rules)

    short, minute = timedelta(milliseconds=1_500), timedelta(minutes=1)
    assert (
        InSeconds(30 * minute, short, short - minute) == row_of(spec, "ann", short, -minute).result
    )
    assert InSeconds(30 * minute, None, -2 * minute) == row_of(spec, "a", -minute, -minute).result
    floats = [field.type == pa.float64() for field in spec.result_schema][-3:]
    assert [True, True, False] == floats
    with pytest.raises(SpecError, match=r"`Lossy.longest` has another type than"):
        SessionSpec.aggregate(event, aggregates, result=Lossy, **rules)
