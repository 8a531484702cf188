"""What a worker says of a state that a call changed without `set`; a driver refuses it."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from sessionkit import KeyState, KeyTimes
from sessionkit._engine.keys.calls import EVERY, FIRST, WatchedState, sampled
from sessionkit.spec.views import MISSING, KeySnapshot
from sessionkit.state._codec import codec_of
from sessionkit.testing import at
from tests.support.stateful_specs import Amount, Sum, driver_of, summing, unwatched


def said(caplog: pytest.LogCaptureFixture, process: Callable[..., Any]) -> list[str]:
    """Run two micro-batches of so many keys that a call of each is looked at; return the log."""
    driver = unwatched(driver_of(summing(process)))
    with caplog.at_level(logging.WARNING, "sessionkit"):
        for _ in range(2):
            for number in range(EVERY):
                driver.add(f"key {number}", at("09:00"), Amount(1))
            driver.run_batch()
    return caplog.messages


def test_a_state_that_is_changed_without_set_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the name of the function, and no key: a log may be read by more people than the data."""

    def lose(key: Any, events: Any, state: KeyState[Sum], times: KeyTimes) -> None:
        state.get(Sum(0)).total += 1

    (message,) = said(caplog, lose)
    assert "`process` (" in message
    assert "lose) changed the state that `get` gave it without `set`" in message
    assert "key " not in message


def test_a_state_that_is_read_or_set_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else the call does with it."""

    def keep(key: Any, events: Any, state: KeyState[Sum], times: KeyTimes) -> None:
        snapshot = state.get(Sum(0))
        if not snapshot.total:
            snapshot.total += 1
            state.set(snapshot)

    assert [] == said(caplog, keep)


def test_few_calls_are_looked_at() -> None:
    """The first ones of a process, then one in a thousand: the others cost a number."""
    snapshot, kind = KeySnapshot("ann", MISSING, {}), codec_of(Sum).type
    looked = [type(sampled(snapshot, kind)) is WatchedState for _ in range(3 * EVERY)]
    assert 3 <= sum(looked) <= 3 + FIRST
    assert any(looked[-EVERY:])
