"""What is too large to be stored is refused, and the key to which it belongs is named."""

from datetime import UTC, datetime
from typing import Any

import attrs
import pyarrow as pa
import pytest

from sessionkit import EventTimeGap, Functions, NoTimeout, SessionSpec, StateError, Storage
from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.table import events_schema
from sessionkit._engine.shell.stored import MOST_BYTES, check_size
from sessionkit.testing import SessionDriver
from tests.support.stateful_specs import taking

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


def remembered(spec: Any, sizes: dict[str, int], waiting: dict[str, int]) -> Memory:
    """Return what has states of these sizes, and as many events that wait."""
    kept = pa.table({"key.user": [*sizes], "state.raw": [bytes(size) for size in sizes.values()]})
    users = [user for user, count in waiting.items() for _ in range(count)]
    columns = {"key.user": users, "event.size": [1] * len(users)}
    buffered = pa.Table.from_pylist(
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        pa.schema([events_schema(spec).field(name) for name in columns]),
    )
    return Memory(kept, buffered)


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
