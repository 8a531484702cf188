"""The fold of all sessions of a plan that have events, and why it failed for some of them."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from sessionkit._engine.rows.objects import decode_keys, decode_states
from sessionkit._engine.sessions.fold import FoldError, SessionFold
from sessionkit._engine.sessions.plan import Plan
from sessionkit._engine.sessions.table import state_columns
from sessionkit._instants import instant_of
from sessionkit.errors import StateValueError
from sessionkit.session import AnySessionSpec
from sessionkit.state import codec_of

__all__ = ["Attempt", "attempt", "timed"]


@attrs.frozen
class Attempt:
    """
    What the functions made of the sessions of a plan that have events.

    Attributes:
        states: Their states; None where a function failed.
        failures: Why, by the place of the session.
    """

    states: list[Any]
    failures: dict[int, str]

    def sessions(self, plan: Plan) -> pa.Table:
        """
        Return the table of open sessions, without those that failed.

        Raises:
            StateValueError: A state does not fit its fields; key and path are named.
        """
        good = plan.active.copy()
        good[np.flatnonzero(good)[list(self.failures)]] = False
        states = [s for place, s in enumerate(self.states) if place not in self.failures]
        keys = plan.keys_of(good)
        return plan.sessions(good, keys, state_columns(plan.spec, keys, states))


def timed(spec: AnySessionSpec, objects: list[Any], starts_us: Sequence[int]) -> list[Any]:
    """Return events as they are folded: with their times where a function takes these."""
    if not (spec.create_takes_time or spec.update_takes_time):
        return objects
    return list(zip(objects, map(instant_of, starts_us), strict=True))


def attempt(plan: Plan, objects: list[Any]) -> Attempt:
    """
    Fold every session that has events, one after the other.

    Args:
        plan: What belongs together.
        objects: The events, in the order of the plan.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
    """
    spec, active = plan.spec, plan.active
    keys = decode_keys(spec, plan.keys_of(active))
    opened = decode_states(spec.state, plan.opened_of(active))
    events = timed(spec, objects, plan.events.starts[plan.event_places].tolist())
    event_counts, sizes = plan.counts[active].tolist(), plan.unions.sizes[active].tolist()
    fold = SessionFold.of(spec).fold
    states, failures = [], dict[int, str]()
    event, session = 0, 0
    for place, (key, count, size) in enumerate(zip(keys, event_counts, sizes, strict=True)):
        stop, end = event + count, session + size - count
        try:
            states.append(fold(key, opened[session:end], events[event:stop]))
        except FoldError as error:
            if spec.on_error == "raise":
                raise
            states.append(None)
            failures[place] = str(error)
        event, session = stop, end
    return Attempt(states, failures | _misfits(spec, states, failures))


def _misfits(spec: AnySessionSpec, states: list[Any], failures: dict[int, str]) -> dict[int, str]:
    """Return the states that can't be stored, where that fails events rather than the query."""
    if spec.on_error == "raise":
        return {}
    codec = codec_of(spec.state)
    try:
        codec.encode([state for state in states if state is not None])
    except StateValueError:
        return {
            place: str(misfit)
            for place, state in enumerate(states)
            if place not in failures and (misfit := codec.misfit(state))
        }
    return {}
