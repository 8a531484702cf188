"""
Events of one instant with an order: `sequence`, a field of the event.

They are taken and cut by it, so several sessions of a key may begin at one instant. All of these
are known at once: such events are cut only under `order="event_time"`, in one micro-batch. So the
first of them has the id of its key and start, as ever; each other one has a salt, made of how many
begin there before it.
"""

import attrs
import numpy as np

from sessionkit._arrays import Numbers, numbers_in
from sessionkit._engine.sessions.ids import salt_of
from sessionkit._engine.sessions.intervals import Members, Unions


def moments_of(members: Members, sequence: str) -> Numbers:
    """
    Return a number for each interval, in order: equal ones aren't parted.

    An open session has no sequence. It comes before the events of its start.
    """
    order, number = members.order, len(members.places)
    turns = np.zeros(len(order), np.int64)
    turns[number:] = numbers_in(members.events.table, f"event.{sequence}")
    is_event, new = order >= number, np.zeros(len(order), np.bool_)
    for column in (members.keys[order], members.starts[order], turns[order], is_event):
        new[1:] |= column[1:] != column[:-1]
    # Of one key, events at 10:00 with sequence 1, 1, 2 and one at 10:01: [0, 0, 1, 2].
    moments: Numbers = np.cumsum(new)
    return moments


def numbered(members: Members, unions: Unions) -> Unions:
    """Return sessions with how many of their key begin at their instant before each."""
    keys, places = members.keys[members.order[unions.first]], np.arange(len(unions))
    # Of sessions of one key that begin at 10:00, 10:00, 10:00 and 10:05: `same` is [no, yes, yes,
    # no], and they're numbered [0, 1, 2, 0].
    same = np.zeros(len(unions), np.bool_)
    same[1:] = (keys[1:] == keys[:-1]) & (unions.start[1:] == unions.start[:-1])
    if not same.any():
        return unions
    return attrs.evolve(unions, nth=places - np.maximum.accumulate(np.where(same, 0, places)))


def salts_in_turn(nth: Numbers, salts: Numbers) -> Numbers:
    """Return the salts of sessions: others for those that aren't the first of their instant."""
    both = zip(nth.tolist(), salts.tolist(), strict=True)
    return np.array([salt_of(*one) if one[0] else one[1] for one in both], np.int64)
