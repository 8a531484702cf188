"""A bucket in pages: which pages a micro-batch reads and writes, and what damage it finds."""

import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, Functions, Memory, SessionSpec, Storage
from sessionkit._engine.shell.pages import PAGE_BYTES
from sessionkit._engine.shell.payload import FORMAT_VERSION, Origin
from sessionkit._engine.shell.storage import Stored, changed_memory, logic_of, stored_memory
from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import StateCorruptedError, StateError
from sessionkit.testing import FakeGroupState, SessionDriver
from sessionkit.testing.drivers.query import PagedGroupState, Snapshot, stored_rows
from sessionkit.testing.group_state import StoredGroup

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@attrs.frozen
class Note:
    text: str


@attrs.define
class Notes:
    text: str = ""
    number: int = 0


def update(state: Notes, event: Note) -> None:
    state.text += event.text
    state.number += 1


def merge(left: Notes, right: Notes) -> None:
    left.text += right.text
    left.number += right.number


NOTES: Any = SessionSpec(
    keys={"user": str},
    event_time="at",
    logic=Functions(event=Note, state=Notes, update=update, merge=merge),
    timeout=EventTimeGap("30m"),
    watermark_delay="1h",
    storage=Storage(bucket_count=1, layout="pages"),
)


@attrs.define
class Seen:
    """Which pages the calls of a worker read, wrote and removed."""

    read: list[int] = attrs.field(factory=list)
    written: list[int] = attrs.field(factory=list)
    removed: list[int] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class WatchedState(PagedGroupState):
    """A group state that says which of its pages are used."""

    seen: Seen = attrs.field(factory=Seen)

    def page(self, start: int) -> bytes | None:
        self.seen.read.append(start)
        return super().page(start)

    def put_page(self, start: int, payload: bytes) -> None:
        self.seen.written.append(start)
        super().put_page(start, payload)

    def remove_page(self, start: int) -> None:
        self.seen.removed.append(start)
        super().remove_page(start)


def driver_with(users: Iterable[int], text: str = "x" * 40, spec: Any = NOTES) -> Any:
    """Return a driver whose one bucket has a session a user, with so much text."""
    driver = SessionDriver(spec)
    for user in users:
        driver.add(f"user {user}", NOON + MINUTE * (user % 20), Note(text))
    driver.run_batch()
    return driver


def move_to(driver: Any, after_noon: timedelta) -> None:
    """Run a micro-batch without data, at a watermark so long after noon."""
    driver.advance_watermark_to(NOON + after_noon)
    driver.run_batch()


def stored(driver: Any) -> tuple[Any, ...]:
    """Return the row of the bucket of a driver."""
    ((_, row),) = stored_rows(driver.snapshot())
    found: tuple[Any, ...] = row
    return found


def pages(driver: Any) -> dict[int, bytes]:
    """Return the pages of the bucket of a driver."""
    found: dict[int, bytes] = stored(driver)[-1]
    return found


def watched(driver: Any, spec: Any = NOTES) -> Seen:
    """Let a driver's worker run on a state that is watched; return what is seen."""
    seen, worker = Seen(), Worker(logic_of(spec), with_rejected=True)

    def run(group: Any, frames: Any, state: PagedGroupState, run: Origin, _: Any) -> Any:
        return worker(group, frames, WatchedState(state.row, state.pages, seen), run)

    driver._worker = run
    return seen


def test_a_bucket_is_split_into_pages() -> None:
    """No page is twice the size of two that would become one, and none is empty."""
    found = pages(driver_with(range(1000)))

    assert 20 < len(found)
    assert all(PAGE_BYTES // 2 < len(payload) < 2 * PAGE_BYTES for payload in found.values())


def test_a_batch_reads_and_writes_the_pages_of_its_keys_alone() -> None:
    """Three events of two users concern two pages, however many there are."""
    driver = driver_with(range(1000))
    seen = watched(driver)

    driver.add("user 1", NOON, Note("y"))
    driver.add("user 1", NOON + MINUTE, Note("y"))
    driver.add("user 2", NOON, Note("y"))
    driver.run_batch()

    assert 2 == len(seen.read) == len(seen.written)
    assert [] == seen.removed
    assert 1000 == len(driver.open_sessions())


def test_a_page_that_is_only_read_is_not_written() -> None:
    """A late event changes nothing, so its page stays as it is."""
    driver = driver_with(range(1000))
    move_to(driver, 10 * MINUTE)
    seen = watched(driver)

    driver.add("user 1", NOON - 600 * MINUTE, Note("y"))
    driver.run_batch()

    assert 1 == driver.counts.late
    assert 1 == len(seen.read)
    assert [] == seen.written


def test_pages_of_users_that_are_only_remembered_are_not_read() -> None:
    """Neither for a user who comes back, nor for a session that ends."""
    spec = attrs.evolve(NOTES, memory=Memory(time_to_live="400 days"))
    driver = driver_with(range(1000), spec=spec)
    move_to(driver, 60 * MINUTE)
    assert 1000 == len(driver.take_rows())
    before, seen = pages(driver), watched(driver, spec)

    driver.add("user 1", NOON + 90 * MINUTE, Note("y"))
    driver.run_batch()
    assert 20 < len(before)
    assert 1 == len(seen.read) == len(seen.written)
    move_to(driver, 121 * MINUTE)
    assert 2 == len(seen.read) == len(seen.written)
    assert [2] == [row.memory["session_number"] for row in driver.take_rows()]


def test_a_batch_without_data_reads_the_pages_with_something_due() -> None:
    """One session ends before all others; its page alone is read."""
    driver = driver_with(range(1000))
    driver.add("early", NOON - 10 * MINUTE, Note("y"))
    driver.run_batch()
    seen = watched(driver)

    move_to(driver, 25 * MINUTE)

    assert ["early"] == [row.key.user for row in driver.take_rows()]
    assert 1 == len(seen.read) == len(seen.written)


def test_pages_that_shrink_become_fewer() -> None:
    """Where few sessions are left, few pages are, once they have been read."""
    driver = driver_with(range(1000))
    before = len(pages(driver))
    move_to(driver, 48 * MINUTE)
    for _ in range(8):
        for user in range(19, 1000, 20):
            driver.add(f"user {user}", NOON + 19 * MINUTE, Note(""))
        driver.run_batch()

    assert 50 == len(driver.open_sessions())
    assert 20 < before
    assert len(pages(driver)) < 6


def test_a_bucket_whose_sessions_are_over_leaves_nothing() -> None:
    """No page, no row, no timer."""
    driver = driver_with(range(1000))
    seen = watched(driver)
    move_to(driver, 60 * MINUTE)

    assert 1000 == len(driver.take_rows())
    assert {} == driver.snapshot().groups
    assert sorted(seen.read) == sorted(seen.removed)


def test_one_key_may_be_larger_than_a_page() -> None:
    """A page is split between keys, never inside one."""
    driver = driver_with(range(100), "x" * 10_000)

    assert 100 == len(driver.open_sessions())
    assert 90 < len(pages(driver))


@attrs.define
class Turned:
    """The fields of `Notes`, the other way round."""

    number: int = 0
    text: str = ""


def test_fields_in_another_order_read_the_pages_of_before() -> None:
    """Pages that a batch doesn't concern keep the order under which they were written."""

    def update_turned(state: Turned, event: Note) -> None:
        update(state, event)  # type: ignore[arg-type]

    def merge_turned(left: Turned, right: Turned) -> None:
        merge(left, right)  # type: ignore[arg-type]

    turned = attrs.evolve(
        NOTES,
        logic=attrs.evolve(
            NOTES.functions, state=Turned, result=Turned, update=update_turned, merge=merge_turned
        ),
    )
    driver = SessionDriver.restore(turned, driver_with(range(1000)).snapshot())
    for _ in range(2):
        driver.add("user 1", NOON + MINUTE, Note("y"))
        driver.run_batch()
        driver = SessionDriver.restore(turned, driver.snapshot())

    found = {session.key.user: session.state for session in driver.open_sessions()}
    assert 1000 == len(found)
    assert Turned(3, "x" * 40 + "yy") == found["user 1"]
    assert Turned(1, "x" * 40) == found["user 2"]


def test_the_row_of_a_bucket_says_what_it_holds() -> None:
    """The counts and what is due can be read without the payload."""
    driver = driver_with(range(1000))
    version, buckets, _, number, kept, buffered, event_us, processing_us, _, found = stored(driver)

    end_us = int((NOON + 30 * MINUTE).timestamp()) * 1_000_000
    assert (FORMAT_VERSION, 1, len(found), 1000, 0) == (version, buckets, number, kept, buffered)
    assert (end_us, None) == (event_us, processing_us)


def damaged(change: Callable[[dict[int, bytes]], None]) -> Any:
    """Return a driver that starts from pages that something has changed."""
    left: Snapshot = driver_with(range(1000)).snapshot()
    ((group, kept),) = left.groups.items()
    assert kept.value is not None
    row, found = kept.value[:-1], dict(kept.value[-1])
    change(found)
    groups = {group: StoredGroup((*row, found), kept.timeout_timestamp_ms)}
    return SessionDriver.restore(NOTES, attrs.evolve(left, groups=groups))


def flip(place: int) -> Callable[[dict[int, bytes]], None]:
    def change(found: dict[int, bytes]) -> None:
        for start, payload in found.items():
            at = place % len(payload)
            found[start] = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]

    return change


def shorten(found: dict[int, bytes]) -> None:
    found.update({start: payload[:-1] for start, payload in found.items()})


def lose(found: dict[int, bytes]) -> None:
    found.clear()


def swap(found: dict[int, bytes]) -> None:
    """Put pages of one length in each other's place."""
    by_length: dict[int, int] = {}
    for start, payload in list(found.items()):
        other = by_length.setdefault(len(payload), start)
        found[start], found[other] = found[other], found[start]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (flip(0), "of the stored state isn't one: it starts with"),
        (flip(5), "isn't the one in the directory of its bucket"),
        (flip(40), "of the stored state is damaged: its checksum is wrong"),
        (flip(-1), "of the stored state is damaged: its checksum is wrong"),
        (swap, "isn't the one in the directory of its bucket"),
        (shorten, "bytes, and should have"),
        (lose, "is missing"),
    ],
)
def test_a_damaged_page_stops_the_query(
    change: Callable[[dict[int, bytes]], None], text: str
) -> None:
    """The query stops, and so does a reader of the checkpoint: neither guesses."""
    driver = damaged(change)
    for user in range(1000):
        driver.add(f"user {user}", NOON, Note("y"))

    with pytest.raises(StateCorruptedError, match=text):
        driver.run_batch()
    with pytest.raises(StateCorruptedError, match=text):
        driver.open_sessions()


def test_a_page_that_is_not_in_the_directory_is_damage() -> None:
    """Who reads a checkpoint finds a page too many."""

    def add(found: dict[int, bytes]) -> None:
        found[12345] = b"SKP1"

    with pytest.raises(StateCorruptedError, match="page 12345 isn't in the directory"):
        damaged(add).open_sessions()


@pytest.mark.parametrize("place", [0, 5, 8, 40, -1])
def test_a_damaged_directory_stops_the_query(place: int) -> None:
    """Its payload has a checksum of its own."""
    row = list(stored(driver_with(range(10))))
    at = place % len(row[-2])
    row[-2] = row[-2][:at] + bytes([row[-2][at] ^ 1]) + row[-2][at + 1 :]
    state = FakeGroupState(value=tuple(row), timeout="EventTimeTimeout", watermark_ms=0)

    with pytest.raises((StateCorruptedError, StateError)):
        list(Worker(logic_of(NOTES))((0,), [], PagedGroupState.of(state)))
    with pytest.raises((StateCorruptedError, StateError)):
        stored_memory(logic_of(NOTES), (0,), tuple(row))


def test_keys_with_one_hash_are_told_apart() -> None:
    """A hash chooses the page; keys are compared as they are."""
    one, other = "plumless", "buckeroo"
    assert zlib.crc32(one.encode()) == zlib.crc32(other.encode())
    driver = SessionDriver(NOTES)
    driver.add(one, NOON, Note("a"))
    driver.add(other, NOON, Note("b"))
    driver.run_batch()

    found = {session.key.user: session.state.text for session in driver.open_sessions()}
    assert {one: "a", other: "b"} == found


def test_a_page_that_spark_does_not_name_as_changed_is_missed() -> None:
    """The directory says that it is another one, so nothing is left out in silence."""
    driver, rows = SessionDriver(NOTES), [Stored()]
    for minute in range(2):
        driver.add("ann", NOON + minute * MINUTE, Note("a"))
        driver.run_batch()
        rows.append(Stored(stored(driver)[:-1]))

    with pytest.raises(StateCorruptedError, match="page 0 is missing"):
        changed_memory(logic_of(NOTES), (0,), rows[1], rows[2], set())
