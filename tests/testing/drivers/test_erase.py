"""A key is erased on the driver."""

from typing import Any

import attrs
import pytest

from sessionkit import Inputs, Storage
from sessionkit.errors import DriverError
from sessionkit.testing import SessionDriver, at
from tests.support.visits import SESSIONS, View

WAITING = {"order": "event_time", "inputs": Inputs(drop_duplicates_for="1 hour")}


def with_ann(**options: Any) -> SessionDriver[Any, Any, Any]:
    """Return a driver that remembers a session of ann, of two views, and one of bob."""
    driver = SessionDriver(attrs.evolve(SESSIONS, **options))
    for user, time in (("ann", "10:00"), ("ann", "10:01"), ("bob", "10:02")):
        driver.add(user, at(time), View("/"))
    driver.run_batch()
    return driver


def test_an_erasure_says_how_much_was_dropped() -> None:
    """Nothing of its content, and also of a key of which nothing was remembered."""
    driver = with_ann(**WAITING)

    driver.erase("ann")
    driver.erase("eve")
    counts = driver.run_batch().counts

    found = {one.key.user: one.reason for one in driver.take_rejections("erased")}
    assert {
        "ann": "dropped of this key: 0 rows of state, 2 events that waited",
        "eve": "dropped of this key: 0 rows of state, 0 events that waited",
    } == found
    # They came as waiting, and are counted where they ended.
    assert (-2, 2, 2) == (counts.buffered, counts.erased_events, counts.erasures)
    assert counts.is_balanced
    assert 1 == driver.counts.buffered


def test_an_erasure_runs_again_with_its_micro_batch() -> None:
    """What a sink refused leaves the key where it was."""
    driver = with_ann()
    driver.erase("ann")
    driver.run_batch(sink_fails=True)

    assert 2 == len(driver.open_sessions())
    driver.run_batch()

    assert ["bob"] == [one.key.user for one in driver.open_sessions()]


def test_an_erasure_reaches_what_a_seed_brings() -> None:
    """In the first micro-batch of a query too, and after it was migrated while it waited."""
    driver = with_ann()
    driver.erase("ann")

    driver = driver.migrate(attrs.evolve(SESSIONS, storage=Storage(layout="pages", bucket_count=3)))
    driver.run_batch()

    assert ["bob"] == [one.key.user for one in driver.open_sessions()]


@pytest.mark.parametrize("key", [None, 7, ("ann", "bob")])
def test_what_cannot_be_a_key_cannot_be_erased(key: Any) -> None:
    """A null, another type, or too many values."""
    with pytest.raises(DriverError):
        with_ann().erase(key)
