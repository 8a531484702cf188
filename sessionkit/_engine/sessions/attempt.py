"""The fold of all sessions of a plan that have events, and which of them fail."""

from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import (
    build_events,
    decode_keys,
    decode_states,
    encode_states,
)
from sessionkit._engine.sessions.fold import SessionFold, timed
from sessionkit._engine.sessions.plan import Plan
from sessionkit.errors import StateValueError
from sessionkit.state import codec_of

__all__ = ["Attempt", "attempt", "state_columns"]

Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class Attempt:
    """
    What the functions made of the sessions of a plan that have events.

    Attributes:
        good: Which sessions of the plan have a new state.
        states: The columns of these states.
        failed: Which sessions can't be folded.
    """

    good: Mask
    states: list[pa.Array]
    failed: Mask


def attempt(plan: Plan, objects: list[Any]) -> Attempt:
    """
    Fold every session that has events, one after the other.

    Args:
        plan: What belongs together.
        objects: The events, in the order of the plan.

    Raises:
        FoldError: A function failed, and the spec says `on_error="raise"`.
        StateValueError: A state does not fit its fields, and the spec says so too; key and path
            are named.
    """
    spec, active = plan.spec, plan.active
    states, failed = _folded(plan, objects)
    if failed and spec.on_error == "raise":
        _take_over(plan, states, failed)
        failed = []
    places = np.flatnonzero(active)
    if plan.failures:
        failed = sorted({*failed, *np.flatnonzero(plan.failed[active]).tolist()})
    good, states = _without(active, places[failed], states, failed)
    try:
        return Attempt(good, state_columns(plan, good, states), active & ~good)
    except StateValueError:
        if spec.on_error == "raise":
            raise
    codec = codec_of(spec.state)
    misfits = [place for place, state in enumerate(states) if codec.misfit(state)]
    good, states = _without(good, np.flatnonzero(good)[misfits], states, misfits)
    return Attempt(good, state_columns(plan, good, states), active & ~good)


def _folded(plan: Plan, objects: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the state of each session that has events, and the places of those that fail."""
    spec, active = plan.spec, plan.active
    fold = SessionFold.of(spec)
    keys: list[Any] = []
    held, counts_held = plan.held_of(active)
    if fold.create is not None:
        new = active.copy()
        new[active] = counts_held == 0
        keys = decode_keys(spec, plan.keys_of(new))
    opened = decode_states(spec.state, held)
    events = timed(spec, objects, plan.events.starts[plan.event_places])
    counts = zip(counts_held.tolist(), plan.counts[active].tolist(), strict=True)
    return fold.fold_all(iter(keys), opened, events, counts)


def _take_over(plan: Plan, states: list[Any], failed: list[int]) -> None:
    """Fold the sessions that failed again, one by one, to say why; or take over what comes out."""
    spec, chosen = plan.spec, np.zeros(len(plan.counts), np.bool_)
    chosen[np.flatnonzero(plan.active)[failed]] = True
    fold = SessionFold.of(spec).fold
    keys = decode_keys(spec, plan.keys_of(chosen))
    held, counts_held = plan.held_of(chosen)
    opened = decode_states(spec.state, held)
    came = plan.events.at(plan.places_of(chosen))
    events = timed(spec, build_events(spec, came.table)[0], came.starts)
    old = new = 0
    counts = zip(counts_held.tolist(), plan.counts[chosen].tolist(), strict=True)
    for place, key, (opened_count, event_count) in zip(failed, keys, counts, strict=True):
        states[place] = fold(key, opened[old : old + opened_count], events[new : new + event_count])
        old, new = old + opened_count, new + event_count


def _without(
    good: Mask, failed: npt.NDArray[np.int64], states: list[Any], places: list[int]
) -> tuple[Mask, list[Any]]:
    """Return which sessions are good, and their states, without those that failed."""
    if not places:
        return good, states
    left = good.copy()
    left[failed] = False
    gone = set(places)
    return left, [state for place, state in enumerate(states) if place not in gone]


def state_columns(plan: Plan, good: Mask, states: list[Any]) -> list[pa.Array]:
    """
    Return states as columns.

    Raises:
        StateValueError: A state does not fit its fields; key and path are named.
    """
    return encode_states(
        plan.spec.state,
        states,
        lambda place: decode_keys(plan.spec, plan.keys_of(good).slice(place, 1))[0],
    )
