"""Session ids: vectors that must never change, and keys that must not be confused."""

import hashlib
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import EventTimeGap, Inputs, Lateness, Results, SessionRules, SessionSpec, Storage
from sessionkit._engine.rows.ids import session_ids
from sessionkit.state._codec import encode_column
from sessionkit.state._fields import field_type
from sessionkit.state._scalars import SCALARS
from sessionkit.state._types import may_be_key
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import memories_of
from tests.support.session_specs import Reading, bytes_of, collecting, fed
from tests.support.strategies import INTS, decimals, instants

START_US = 1_704_067_200_000_000  # 2024-01-01 00:00:00 UTC

VECTORS: list[tuple[Any, Any, str]] = [
    (str, "ann", "daab9f3a099d614ec3852d2fc9800341"),
    (str, "Zo\u00eb \U0001f600", "6dec5c2acec358ee4db0481e2f808310"),
    (str, "", "5ed0968d1af00a400065e0a60663a76d"),
    (int, 42, "ca0867b9ad8a034444bc6b19c72b62b2"),
    (int, -(2**63), "618c07da2b06ed0d2100eb8d793330d5"),
    (bool, True, "9bec498c3ceb26ce063941f1004e1a03"),
    (bool, False, "9337303454deb9e82fe99b7d63184579"),
    (bytes, b"\x00\xff", "ea2d7bc25a387f899d1d52af9ba996c3"),
    (date, date(2024, 1, 1), "1fced037224d2d7a7accdd5314df7647"),
    (date, date(1969, 12, 31), "df17b49c19a2bb1d8f94c4c586f4edb4"),
    (datetime, datetime(2024, 1, 1, 0, 0, 0, 1, UTC), "e5c9057bda2433751b42ef99ce04d8df"),
    (time, time(9, 30), "151f433376c8a7e6e5a16b66334e6042"),
    (Decimal, Decimal("1.50"), "4bbbb77e62576fc3c2640015f200821e"),
    (Decimal, Decimal("-1.2E+3"), "985b8bf2156ab85e02f735e8c5946e97"),
    (Decimal, Decimal("0.00"), "abc81f33640126977b720badb08076b4"),
    (UUID, UUID("0f8fad5b-d9cb-469f-a165-70867728950e"), "c17385ed9bec81bc8560451edce97f75"),
]
"""The type of a key, its value, and the id of its session that starts with the year 2024."""


def id_of(annotations: Sequence[Any], key: Sequence[Any], start_us: int = START_US) -> str:
    (found,) = ids_of(annotations, [[value] for value in key], [start_us])
    return found


def ids_of(
    annotations: Sequence[Any], columns: Sequence[list[Any]], starts_us: list[int]
) -> list[str]:
    """Return the ids of sessions from the columns of their keys."""
    types = [field_type(annotation, "keys") for annotation in annotations]
    stored = [
        pa.chunked_array([encode_column(kind, values, "keys")])
        for kind, values in zip(types, columns, strict=True)
    ]
    return session_ids(stored, np.array(starts_us, np.int64))


def expected_id(key: Sequence[object], start_us: int) -> str:
    """Return the id as the encoding is described in words, with nothing of sessionkit's."""
    body = b"".join(_typed(value) for value in key) + struct.pack(">q", start_us)
    return hashlib.blake2b(body, digest_size=16, person=b"session/1").hexdigest()


def _typed(value: object) -> bytes:
    tag, body = _encoded(value)
    return tag + struct.pack(">I", len(body)) + body


def _encoded(value: object) -> tuple[bytes, bytes]:
    match value:
        case bool():
            return b"o", struct.pack(">q", value)
        case int():
            return b"i", struct.pack(">q", value)
        case str() | UUID():
            return b"s", str(value).encode("utf-8")
        case bytes():
            return b"b", value
        case datetime():
            epoch = datetime(1970, 1, 1, tzinfo=UTC)
            return b"t", struct.pack(">q", (value - epoch) // timedelta(microseconds=1))
        case time():
            since = timedelta(hours=value.hour, minutes=value.minute)
            return b"i", struct.pack(">q", since // timedelta(microseconds=1))
        case date():
            return b"d", struct.pack(">q", value.toordinal() - date(1970, 1, 1).toordinal())
        case _:
            whole, _, part = f"{value:f}".partition(".")
            part = part.rstrip("0")
            return b"n", (f"{whole}.{part}" if part else whole).encode()


@pytest.mark.parametrize(("annotation", "value", "expected"), VECTORS)
def test_ids_are_those_of_the_vectors(annotation: Any, value: object, expected: str) -> None:
    """The id of a session is the same in every release, as written here and as described."""
    assert expected == id_of([annotation], [value]) == expected_id([value], START_US)


def test_every_key_type_has_a_vector() -> None:
    """A new type of key must come with a vector."""
    types = {type(field_type(annotation, "keys")) for annotation, _, _ in VECTORS}
    assert {type(kind) for kind in SCALARS.values() if may_be_key(kind)} == types


def test_the_id_of_a_session_depends_on_its_start_as_the_vectors_say() -> None:
    """The start counts too, also before the epoch, and a key of two columns is one of both."""
    assert "4f761d8dca00e3cc7fc2c8446665752d" == id_of([str], ["ann"], 0)
    assert "a0fe0b6a85aad8fc2168aba3287bd5a5" == id_of([str], ["ann"], -1)
    assert "3c5fbf3c5a0d9612ece8c9fc0bf6c353" == id_of([str, int], ["ann", 7])


@given(
    key=st.tuples(
        st.text(), INTS, st.booleans(), st.binary(), st.dates(), instants(), decimals(28, 18)
    ),
    start_us=INTS,
)
def test_ids_agree_with_the_second_implementation(key: tuple[Any, ...], start_us: int) -> None:
    """For any key of all types the id is that of the description."""
    annotations = [str, int, bool, bytes, date, datetime, Decimal]
    assert expected_id(key, start_us) == id_of(annotations, key, start_us)


ONE = Decimal("1.000000000000000000")
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("annotation", "value", "equal"),
    [
        *((Decimal, ONE, Decimal(text)) for text in ("1.0", "1", "1E+0", "0.1E+1")),
        (Decimal, Decimal(0), Decimal("-0.0")),
        (datetime, NEW_YEAR, NEW_YEAR.astimezone(timezone(timedelta(hours=5)))),
    ],
)
def test_equal_keys_have_one_id(annotation: Any, value: Any, equal: Any) -> None:
    """Neither how a decimal is written counts, nor the zone of an instant."""
    assert id_of([annotation], [value]) == id_of([annotation], [equal])


@given(value=decimals(20, 10), precision=st.integers(1, 50))
def test_the_decimal_context_of_the_caller_does_not_matter(value: Decimal, precision: int) -> None:
    """An id does not depend on a setting of the process."""
    expected = expected_id([value], START_US)
    with localcontext(prec=precision):
        assert expected == id_of([Decimal], [value])


SHORT, LONG = timedelta(minutes=5), timedelta(hours=2)
OTHER = "clock"


FIXED = collecting(EventTimeGap(LONG))


def dynamic(**options: Any) -> SessionSpec[Any, Any, Any]:
    """Return a spec in which each event has its own gap."""
    return collecting(EventTimeGap(lambda event: event.gap, max_gap=LONG), **options)


def closed_once(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    """Return a query that has closed a session of 10:00, at a watermark of 11:00."""
    driver = SessionDriver(spec, processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.add(OTHER, at("11:00"), Reading(0, SHORT))
    driver.run_until_idle()
    return driver


def ids_of_ann(driver: SessionDriver[Any, Any, Any]) -> list[str]:
    """Let everything close, and return the ids of ann's rows."""
    driver.run_until_idle()
    driver.add(OTHER, at("2026-01-02 09:00"), Reading(9, SHORT))
    driver.run_until_idle()
    return [row.session_id for row in driver.take_rows() if row.key == ("ann",)]


def again(driver: SessionDriver[Any, Any, Any], *times: str) -> list[str]:
    """Let events with a long gap come, a micro-batch for each, and return the ids of all rows."""
    for begun_at in times:
        driver.add("ann", at(begun_at), Reading(2, LONG))
        driver.run_batch()
    return ids_of_ann(driver)


@pytest.mark.parametrize("layout", ["buckets", "pages"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lateness": Lateness(judged_by="session")},
        {"lateness": Lateness(allowed="1 minute")},
        {"inputs": Inputs(drop_duplicates_for="0 seconds")},
        {"results": Results(emit="on_update")},
    ],
    ids=str,
)
def test_a_session_that_begins_where_a_closed_one_did_has_another_id(
    options: Any, layout: Any
) -> None:
    """Under a gap from the event, the second one may begin behind the watermark."""
    ids = again(closed_once(dynamic(storage=Storage(layout=layout), **options)), "10:00")

    assert 2 == len({*ids})


def test_a_start_that_moves_back_behind_the_watermark_gets_another_id() -> None:
    """It may be that of a session that's gone: the row under the old id is superseded."""
    driver = closed_once(dynamic(results=Results(emit="on_update")))
    (first,) = (
        row.session_id for row in driver.take_rows() if row.is_final and row.key == ("ann",)
    )

    driver.add("ann", at("11:30"), Reading(2, LONG))
    driver.run_batch()
    driver.add("ann", at("10:00"), Reading(3, LONG))
    driver.run_batch()

    (moved, back) = (row for row in driver.take_rows() if row.key == ("ann",))
    assert (moved.session_id,) == back.supersedes
    assert first not in {moved.session_id, back.session_id}


def test_a_session_keeps_its_id_over_later_events_and_restarts() -> None:
    """Later events, a restart, another layout and other rules leave the id as it is."""
    driver = closed_once(dynamic())
    driver.add("ann", at("10:00"), Reading(2, LONG))
    driver.run_batch()
    (opened,) = (one for one in driver.open_sessions() if one.key == ("ann",))

    driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.add("ann", at("10:30"), Reading(3, LONG))
    driver.run_batch()
    driver = driver.migrate(
        dynamic(storage=Storage(layout="pages", bucket_count=1), results=Results(emit="on_update"))
    )
    driver.add("ann", at("10:20"), Reading(4, LONG))
    driver.run_batch()

    assert {opened.session_id} == {*ids_of_ann(driver)}


def test_ids_behind_the_watermark_depend_on_nothing_but_key_and_start_under_a_fixed_gap() -> None:
    """An event as old as the start of a closed session is late, so none needs a salt."""
    whole, late = SessionDriver(FIXED), SessionDriver(FIXED)
    late.add(OTHER, at("11:00"), Reading(0, LONG))
    late.run_until_idle()
    for driver in (whole, late):
        driver.add("ann", at("10:00"), Reading(1, LONG))

    assert ids_of_ann(whole) == ids_of_ann(late)


def test_a_longer_gap_after_carry_over_gives_another_id() -> None:
    """What was closed by the shorter gap is gone; an event of its start isn't late any more."""
    driver = closed_once(collecting(EventTimeGap(SHORT)))
    (first,) = (row.session_id for row in driver.take_rows() if row.key == ("ann",))

    moved = driver.migrate(FIXED)

    (second,) = again(moved, "10:00")
    assert first != second


def test_a_session_that_the_old_gap_closes_shares_its_id_with_none_after_carry_over() -> None:
    """An open session keeps its end: it may close before one of the new gap would have."""
    driver = SessionDriver(collecting(EventTimeGap(SHORT)))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.run_until_idle()
    driver = driver.migrate(FIXED)
    driver.add(OTHER, at("11:00"), Reading(0, SHORT))
    driver.run_until_idle()

    assert 2 == len({*again(driver, "10:00")})


def test_a_session_that_a_silent_source_closed_shares_its_id_with_none_after_carry_over() -> None:
    """The floor stays behind, and Spark's watermark may be before what it has closed."""
    rules = SessionRules(SHORT, close_idle_after="1 hour")
    driver = SessionDriver(collecting(rules), processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, SHORT))
    driver.run_batch()
    for _ in range(3):
        driver.advance_processing_time(timedelta(minutes=50))
        driver.run_batch()
    (first,) = (row.session_id for row in driver.take_rows())

    moved = driver.migrate(collecting(SessionRules(LONG)))

    (second,) = again(moved, "10:00")
    assert first != second


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_salts_are_stored_only_where_a_session_has_one(layout: Any) -> None:
    """One of many takes few bytes, and where there is none, none."""
    spec = dynamic(storage=Storage(bucket_count=1, layout=layout))
    salts, sizes = [], []
    for begun_at in ("11:04", "10:59"):
        driver = SessionDriver(spec)
        for number in range(1_000):
            driver.add(f"user {number}", at("11:00"), Reading(number, SHORT))
        driver.run_until_idle()
        fed(driver, (begun_at, Reading(2, LONG)))
        (memory,) = memories_of(spec, driver.snapshot())
        salts.append(sum(salt > 0 for salt in memory.kept["salt"].to_pylist()))
        sizes.append(bytes_of(driver))

    assert [0, 1] == salts
    assert 0 < sizes[1] - sizes[0] < 1_000


def test_a_session_keeps_its_salt_though_an_event_fails() -> None:
    """What is left of a session that is folded again keeps the salt of its start."""
    spec = dynamic()
    logic = attrs.evolve(spec.functions, update=fussy)
    driver = closed_once(attrs.evolve(spec, on_error="reject", logic=logic))
    driver.add("ann", at("10:00"), Reading(2, LONG))
    driver.run_batch()
    (opened,) = (one for one in driver.open_sessions() if one.key == ("ann",))

    driver.add("ann", at("10:10"), Reading(-1, LONG))
    driver.add("ann", at("10:20"), Reading(3, LONG))
    driver.run_batch()

    assert opened.session_id == ids_of_ann(driver)[-1]


def fussy(state: Any, event: Reading) -> Any:
    """Add a number, but not a negative one."""
    state.values.append(event.value)
    if event.value < 0:
        raise ValueError
    return state


def test_events_from_before_there_were_ids_stay_where_a_session_is_folded_again() -> None:
    """Under `with_events`, `drop_duplicates_for` may come later: then some events have no id."""
    spec = dynamic(results=Results(with_events=True))
    logic = attrs.evolve(spec.functions, update=fussy)
    before = attrs.evolve(spec, on_error="reject", logic=logic)
    driver = SessionDriver(before, processing_time=at("10:00"))
    driver.add("ann", at("10:00"), Reading(1, LONG))
    driver.run_batch()
    driver = driver.migrate(
        attrs.evolve(before, inputs=Inputs(drop_duplicates_for=timedelta(hours=1)))
    )

    for value in (2, -1, 2):
        driver.add("ann", at("10:10"), Reading(value, LONG))
    driver.run_batch()

    assert (1, 1) == (driver.counts.failed, driver.counts.duplicate)
    ids_of_ann(driver)
    assert [1, 2] == [one.event["value"] for one in driver.take_events() if one.key == ("ann",)]
