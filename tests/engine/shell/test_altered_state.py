"""Nothing altered, swapped or stale is read as state: each is an error, in every layout."""

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow as pa
import pytest

from sessionkit import EventTimeGap, Functions, NoTimeout, SessionSpec, Storage
from sessionkit._engine.micro_batch import GroupState
from sessionkit._engine.shell.payload import MOST_BYTES, Origin, TaskRows, check_size
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit._engine.shell.worker import Worker
from sessionkit._instants import micros_of
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import QUERY as DRIVER
from sessionkit.testing.drivers.query import PagedGroupState, stored_rows
from sessionkit.testing.drivers.results import read_output
from sessionkit.testing.drivers.rows import input_frame
from sessionkit.testing.group_state import FakeGroupState
from tests.support.changed_classes import SPECS, USERS, First, View, add, count, driver_of
from tests.support.stateful_specs import taking

CASES = [pytest.param(make, layout, id=f"{make.__name__}-{layout}") for make, layout in SPECS]
Row = tuple[Any, ...]


def stored(make: Any, layout: str) -> tuple[Any, list[dict[Any, Row]]]:
    """Return a spec, and the rows of its groups after each of three micro-batches."""
    spec = make(count, First, layout)
    driver = type(driver_of(spec))(spec, processing_time=at("15:00"))
    found = []
    for minute in range(3):
        driver.advance_processing_time(timedelta(minutes=1))
        # The last event moves the watermark, so that some are folded and some wait.
        add(driver, View(1, f"{minute}"), at(f"12:{20 * minute:02}"))
        found.append(dict(stored_rows(driver.snapshot())))
    return spec, found


def fails(spec: Any, group: Any, row: Row, text: str = "damaged") -> None:
    """Check that the row of a group isn't read."""
    with pytest.raises(StateCorruptedError, match=text):
        stored_memory(logic_of(spec), group, row)


def payload_at(row: Row, layout: str) -> int:
    """Return the place of the payload in a row."""
    return len(row) - (2 if layout == "pages" else 1)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_every_column_next_to_the_payload_is_checked(make: Any, layout: str) -> None:
    """One more, one less, nothing: whatever is altered is found."""
    spec, batches = stored(make, layout)
    tried = 0
    for group, row in list(batches[-1].items())[:20]:
        for place in range(payload_at(row, layout)):
            number = row[place]
            for other in {None, 0, (number or 0) + 1, (number or 0) - 1} - {number}:
                with pytest.raises(StateError):
                    stored_memory(logic_of(spec), group, (*row[:place], other, *row[place + 1 :]))
                tried += 1
    assert tried >= 40


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_what_belongs_to_another_group_is_not_read(make: Any, layout: str) -> None:
    """Swapped with its columns or without."""
    spec, batches = stored(make, layout)
    (one, row), (two, other) = list(batches[-1].items())[:2]
    place = payload_at(row, layout)
    found = "its payload belongs to another bucket"

    fails(spec, one, other, found)
    fails(spec, two, row, found)
    fails(spec, one, (*row[:place], *other[place:]), found)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_an_older_payload_in_a_newer_row_is_not_read(make: Any, layout: str) -> None:
    """Each micro-batch leaves its time in the row, so no two payloads fit one row."""
    spec, batches = stored(make, layout)
    for group, row in list(batches[-1].items())[:5]:
        place, older = payload_at(row, layout), batches[1][group]
        mixed = (*row[:place], *older[place:])
        fails(spec, group, mixed, "its payload wasn't written with the other columns of its row")


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_what_is_due_at_a_watermark_is_done_in_its_batch(make: Any, layout: str) -> None:
    """So a row in which something was due in an earlier batch is one that is too old."""
    spec = make(count, First, layout)
    driver = driver_of(spec)
    for minute in range(0, 60, 7):
        add(driver, View(1), at(f"12:{minute:02}"), USERS[minute : minute + 20])
        watermark_us = driver._left.clocks.before_ms * 1000
        for _, row in stored_rows(driver.snapshot()):
            due_us = row[payload_at(row, layout) - 2]
            assert due_us is None or due_us > watermark_us


QUERY, OTHER = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
NOON_MS = micros_of(at("12:00")) // 1000


def bound(make: Any, layout: str, origin: Origin) -> tuple[Any, Any, Row]:
    """Return a spec, a group, and its row as a micro-batch with this origin has stored it."""
    spec = make(count, First, layout)
    driver = driver_of(spec)
    worker, watermark_us = driver._worker, micros_of(at("12:00"))
    driver._worker = lambda group, frames, state, *_: worker(group, frames, state, origin)
    add(driver, View(1), at("12:10"), USERS[:1])
    if origin.watermark_ms:
        driver.advance_watermark_to(at("12:00"))
        add(driver, View(1), at("12:11"), USERS[:1])
        assert watermark_us == driver._left.clocks.before_ms * 1000
    ((group, row),) = stored_rows(driver.snapshot())
    return spec, group, row


def is_read(spec: Any, group: Any, row: Row, now: Origin) -> bool:
    """Return whether the row of a group gives a micro-batch something that is remembered."""
    memory = stored_memory(logic_of(spec), group, row, now)
    return bool(memory.kept.num_rows + memory.buffered.num_rows)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_row_of_another_query_is_not_read(make: Any, layout: str) -> None:
    """Even where its rules, its bucket and its bytes are right; it isn't called damage."""
    spec, group, row = bound(make, layout, Origin.of(QUERY, 4))

    assert is_read(spec, group, row, Origin.of(QUERY, 5))
    with pytest.raises(StateError, match="belongs to another query") as refused:
        is_read(spec, group, row, Origin.of(OTHER, 5))
    assert "1b9d6bcd-bbfd-4b2d-... stored it, this is 7c9e6679-7425-40de-..." in str(refused.value)
    assert "damaged" not in str(refused.value)
    assert "Hint: restore the whole checkpoint from one copy" in str(refused.value)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_row_of_a_later_micro_batch_or_watermark_is_not_read(make: Any, layout: str) -> None:
    """A micro-batch that runs again reads what it has stored; a watermark never falls."""
    spec, group, row = bound(make, layout, Origin.of(QUERY, 4, NOON_MS))
    assert is_read(spec, group, row, Origin.of(QUERY, 4, NOON_MS))
    with pytest.raises(StateCorruptedError, match="micro-batch 4 wrote it, and this is .* 3"):
        is_read(spec, group, row, Origin.of(QUERY, 3, NOON_MS))
    with pytest.raises(StateCorruptedError, match="a watermark never falls"):
        is_read(spec, group, row, Origin.of(QUERY, 5, NOON_MS - 1))


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_row_without_a_known_query_belongs_to_any(make: Any, layout: str) -> None:
    """So does one of any query, where the one that reads it isn't known."""
    for origin, now in ((Origin(), Origin.of(QUERY, 0)), (Origin.of(QUERY, 4), Origin())):
        assert is_read(*bound(make, layout, origin), now)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_the_state_that_a_query_takes_over_is_its_own(make: Any, layout: str) -> None:
    """Nothing of the old id is left once a row is stored, and none of a seed's rows has one."""
    spec = make(count, First, layout)
    driver = driver_of(spec)
    add(driver, View(1), at("12:10"), USERS[:1])
    heir = driver.migrate(spec)
    worker = heir._worker
    heir._worker = lambda group, frames, state, *_: worker(
        group, frames, state, Origin.of(QUERY, 0)
    )
    add(heir, View(1), at("12:11"), USERS[:1])

    ((group, row),) = stored_rows(heir.snapshot())
    assert is_read(spec, group, row, Origin.of(QUERY, 1))
    with pytest.raises(StateError, match="belongs to another query"):
        is_read(spec, group, row, attrs.evolve(DRIVER, batch=1))


def begun(make: Any, layout: str, **more: Any) -> tuple[Any, list[Any], dict[Any, Any]]:
    """Return a driver with an old session in each group, its groups, and what they were before."""
    driver = driver_of(make(count, First, layout, **more))
    add(driver, View(1), at("12:00"))
    before = dict(driver._left.groups)
    add(driver, View(1), at("12:20"))
    # What waited until 12:00 takes its turn.
    driver.run_batch()
    return driver, sorted(before, key=repr), before


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_row_that_a_call_has_missed_is_seen_by_its_neighbours(make: Any, layout: str) -> None:
    """Whether it's read before them or after: its timer is below the watermark of their call."""
    for place in (0, -1):
        driver, groups, before = begun(make, layout)
        driver._left.groups[groups[place]] = before[groups[place]]
        with pytest.raises(StateCorruptedError, match="is older than it may be") as found:
            add(driver, View(1), at("12:21"))
        text = str(found.value)
        assert f"row of {[groups[place]]} is older" in text
        assert "micro-batch 0 wrote it, and something in it was due by micro-batch 2" in text
        assert text.endswith("Hint: restore the checkpoint from a copy, or start a new one")


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_rows_of_several_micro_batches_are_no_damage(make: Any, layout: str) -> None:
    """A group without events, and with nothing due, keeps the row that it has."""
    driver, _, _ = begun(make, layout, storage=Storage(bucket_count=30))
    for minute in range(21, 90, 9):
        add(driver, View(1), at("12:00") + timedelta(minutes=minute), USERS[minute : minute + 5])

    origins = {
        bytes(row[payload_at(row, layout)])[18:34] for _, row in stored_rows(driver.snapshot())
    }
    assert len(origins) > 1


@pytest.mark.parametrize("make", [make for make, layout in SPECS if layout == "pages"])
def test_pages_without_the_row_of_their_bucket_are_refused(make: Any) -> None:
    """They would wait there for ever, and the bucket begin anew."""
    driver = driver_of(make(count, First, "pages"))
    add(driver, View(1), at("12:00"))
    for group, row in stored_rows(driver.snapshot()):
        spare = PagedGroupState.of(FakeGroupState(timeout="EventTimeTimeout", watermark_ms=0))
        spare.pages.update(row[-1])
        with pytest.raises(StateCorruptedError, match=rf"bucket {group[0]} has pages, and its row"):
            list(driver._worker(group, [], spare, attrs.evolve(DRIVER, batch=1), TaskRows()))


NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)


@attrs.frozen
class Part:
    size: int


@attrs.define
class Parts:
    raw: bytes = b""


def update(state: Parts, event: Part) -> None:
    state.raw = bytes(event.size)


def merge(left: Parts, right: Parts) -> None:
    left.raw += right.raw


PARTS: Any = SessionSpec(
    keys={"user": str},
    event_time="at",
    logic=Functions(event=Part, state=Parts, update=update, merge=merge),
    timeout=EventTimeGap("30m"),
    watermark_delay="1h",
    storage=Storage(bucket_count=1),
)
STATEFUL: Any = taking(Part, timeout=NoTimeout())


def remembered(spec: Any, sizes: dict[str, int], waiting: dict[str, int]) -> GroupState:
    """Return what has states of these sizes, and as many events that wait."""
    kept = pa.table({"key.user": [*sizes], "state.raw": [bytes(size) for size in sizes.values()]})
    users = [user for user, count in waiting.items() for _ in range(count)]
    columns = {"key.user": users, "event.size": [1] * len(users)}
    buffered = pa.Table.from_pylist(
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        pa.schema([spec.events_schema.field(name) for name in columns]),
    )
    return GroupState(kept, buffered)


@pytest.mark.parametrize(
    ("spec", "sizes", "waiting", "key", "hint"),
    [
        (PARTS, {"ann": 100, "bob": 900}, {}, "bob", "max_events or max_duration of SessionRules"),
        (PARTS, {"ann": 100, "bob": 100}, {"ann": 90}, "ann", "end its sessions sooner"),
        (PARTS, {f"u{n}": 90 + n for n in range(9)}, {}, "u8", "raise `bucket_count`"),
        (STATEFUL, {"ann": 100, "bob": 900}, {}, "bob", "Hint: keep less in its state"),
    ],
)
def test_the_key_with_the_largest_part_is_named(
    spec: Any, sizes: dict[str, int], waiting: dict[str, int], key: str, hint: str
) -> None:
    """With its size, and what to change: the rules of its sessions, its state, or the buckets."""
    memory = remembered(spec, sizes, waiting)

    check_size(spec, "a row of state", 1000, memory, 1000)
    with pytest.raises(StateError, match="would have 1,001 bytes, and at most 1,000") as refused:
        check_size(spec, "a row of state", 1001, memory, 1000)
    assert f"bytes, is of Key(user='{key}')" in str(refused.value)
    assert hint in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_session_that_spark_could_not_store_is_refused(layout: Any) -> None:
    """Before Spark gets it, in any layout."""
    driver = SessionDriver(attrs.evolve(PARTS, storage=Storage(layout=layout)))
    driver.add("ann", NOON, Part(5))
    driver.add("bob", NOON, Part(MOST_BYTES))

    with pytest.raises(StateError, match=r"is of Key\(user='bob'\)"):
        driver.run_batch()


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@pytest.mark.parametrize("order", ["arrival", "event_time"])
def test_a_key_that_is_too_large_fails_alone(layout: Any, order: Any) -> None:
    """Its events have failed, with the reason; what is stored of it stays, and all others go on."""
    spec = attrs.evolve(
        PARTS, storage=Storage(layout=layout, bucket_count=1), on_error="reject", order=order
    )
    worker, clock = Worker(logic_of(spec), with_rejected=True, most_bytes=9000), 0
    row = FakeGroupState(timeout="EventTimeTimeout", watermark_ms=1)
    batches: list[list[tuple[str, int]]] = [
        [("ann", 5), ("bob", 100)],
        [("ann", 6), ("bob", 20_000), ("bob", 7), ("carl", 30_000), ("dora", 8)],
        [("ann", 9)],
    ]
    found = []
    for rows in batches:
        clock += 90
        at = NOON + timedelta(minutes=clock)
        frame = input_frame(spec, [{"user": user, "at": at, "size": size} for user, size in rows])
        state: Any = PagedGroupState.of(row) if layout == "pages" else row
        found.append(read_output(spec, worker((1,), [frame], state)))
        row = row.next_call(watermark_ms=int(at.timestamp() * 1000) + 5 * 60_000)
    failed = [one for output in found for one in output.rejections]
    assert {"failed"} == {one.kind for one in failed}
    assert ["bob", "bob", "carl"] == sorted(one.key.user for one in failed)
    assert all("is of Key(user=" in one.reason for one in failed)
    assert ["ann", "bob"] == sorted(row.key.user for output in found for row in output.rows)
    assert [2, 5, 1] == [output.counts.events for output in found]
    assert [2, 5, 1] == [sum(output.counts.ends.values()) for output in found]
    assert 3 == sum(output.counts.failed for output in found)
