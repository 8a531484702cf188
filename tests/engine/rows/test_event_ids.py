"""By what rejected events are known: vectors that must never change, and what differs."""

import hashlib
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import pytest

from sessionkit import Inputs, SpecError, StatefulSpec, Storage
from sessionkit.testing import StatefulDriver, at
from tests.support.stateful_specs import taking


class Color(Enum):
    RED = "r"


@attrs.frozen
class Point:
    x: int
    label: str | None


@attrs.frozen
class Everything:
    """An event with a field of every kind of type."""

    text: str
    number: int
    ratio: float
    flag: bool
    raw: bytes
    day: date
    instant: datetime
    span: timedelta
    money: Decimal
    color: Color
    missing: str | None
    tags: list[str]
    scores: dict[str, int]
    pair: tuple[int, str]
    point: Point


@attrs.frozen
class Reading:
    value: int
    note: str | None


EVENT = Everything(
    text="Zoë",
    number=-7,
    ratio=1.5,
    flag=True,
    raw=b"\x00\xff",
    day=date(2024, 2, 29),
    instant=datetime(2024, 1, 1, tzinfo=UTC),
    span=timedelta(seconds=-1),
    money=Decimal("1.50"),
    color=Color.RED,
    missing=None,
    tags=["a", ""],
    scores={"a": 1},
    pair=(1, "b"),
    point=Point(3, None),
)


def refuse(key: Any, events: Any, state: Any, times: Any) -> None:
    raise ValueError


def spec_of(event: type[Any], **changes: Any) -> StatefulSpec[Any, Any, Any]:
    """Make a spec all of whose events are rejected."""
    return taking(event, **{"process": refuse, "on_error": "reject", **changes})


def rejected(event: Any, *, key: str = "ann", offset: int = 0, **changes: Any) -> Any:
    driver = StatefulDriver(spec_of(type(event), **changes))
    driver.add(key, at("12:00"), event, offset=offset)
    driver.run_batch()
    (rejection,) = driver.take_rejections()
    return rejection


def test_the_id_of_an_event_with_every_type_is_that_of_the_vector() -> None:
    """It is the same in every release, as written here."""
    assert "a5c2cf98810cddade1c4e38c99798218" == rejected(EVENT).event_id


def test_the_id_follows_from_its_description() -> None:
    """Key, time and fields, each with its type and length, hashed."""
    noon_us = int(at("12:00").timestamp()) * 1_000_000
    parts = [
        (b"s", b"ann"),
        (b"t", struct.pack(">q", noon_us)),
        (b"i", struct.pack(">q", 5)),
        (b"-", b""),
    ]
    body = b"".join(tag + struct.pack(">I", len(value)) + value for tag, value in parts)
    expected = hashlib.blake2b(body, digest_size=16, person=b"event/1").hexdigest()
    assert expected == rejected(Reading(5, None)).event_id


def test_a_rejected_row_carries_the_fields_of_its_event() -> None:
    """So it can be put back."""
    assert attrs.asdict(EVENT, recurse=False) == rejected(EVENT).event


def test_a_row_that_could_be_no_event_carries_what_it_has() -> None:
    """What is null is null, and it has an id all the same."""
    driver = StatefulDriver(spec_of(Reading))
    driver.add_row({"user": None, "at": at("12:00"), "note": "x"})
    driver.run_batch()
    (rejection,) = driver.take_rejections("quarantined")
    assert {"value": None, "note": "x"} == rejection.event
    assert rejection.event_id is not None


READING = Reading(5, None)
OFFSET = Inputs(event_id="offset", passthrough={"offset": int})


@pytest.mark.parametrize(
    ("rules", "changes", "same"),
    [
        ({}, {"offset": 1}, True),
        ({}, {"storage": Storage(layout="pages")}, True),
        ({}, {"storage": Storage(bucket_count=3)}, True),
        ({}, {"key": "bob"}, False),
        ({}, {"event": Reading(6, None)}, False),
        ({}, {"event": Reading(5, "")}, False),
        # Named columns are all that counts, those that are passed through too.
        ({"inputs": OFFSET}, {"offset": 1}, False),
        ({"inputs": OFFSET}, {"key": "bob"}, True),
        ({"inputs": OFFSET}, {"event": Reading(6, "x")}, True),
    ],
    ids=str,
)
def test_an_id_depends_on_key_time_and_content_alone(
    rules: dict[str, Any], changes: dict[str, Any], same: bool
) -> None:
    """Neither on what is passed through nor on how the state is stored."""
    one, other = (rejected(**{"event": READING, **rules, **more}) for more in ({}, changes))
    assert same is (one.event_id == other.event_id)


@attrs.frozen
class Load:
    weight: float
    parts: list[float]


def test_equal_numbers_have_one_id() -> None:
    """Both zeros are one, and NaN is one value, whatever its bits."""
    same = ([-0.0, 0.0], [math.nan, -math.nan])
    ids = [[rejected(Load(one, [one])).event_id for one in equal] for equal in same]
    assert [1, 1, 2] == [len({*ids[0]}), len({*ids[1]}), len({*ids[0], *ids[1]})]


def test_a_column_that_is_not_read_cannot_identify() -> None:
    """The columns that can are named."""
    with pytest.raises(SpecError, match="`event_id` names `id`") as refused:
        spec_of(Reading, inputs=Inputs(event_id=("offset", "id"), passthrough={"offset": int}))
    assert "name some of at, note, offset, user, value" in str(refused.value)


def test_an_output_that_failed_is_no_event() -> None:
    """It has no id, and no fields."""

    def fail(key: Any, timer: Any, state: Any, times: Any) -> None:
        raise ValueError

    def keep(key: Any, events: list[Reading], state: Any, times: Any) -> None:
        times.set_event_timer("late", at("12:30"))

    driver = StatefulDriver(spec_of(Reading, process=keep, on_timer=fail))
    driver.add("ann", at("12:00"), READING, offset=0)
    driver.run_batch()
    driver.advance_watermark_to(at("12:31"))
    driver.run_batch()
    (rejection,) = driver.take_rejections("failed_output")
    assert (None, {}) == (rejection.event_id, rejection.event)
