"""
What tells a session from an earlier one of its key that began at the same instant.

    sessions   behind   its mark; 0 for none

An id is a hash of the key and the start. Ahead of the watermark that's enough: a session that began
at an instant is still there when another event of that instant comes, which so joins it. Behind the
watermark, it may have closed and be forgotten. So a session that gets its start there gets a *mark*
with it, which is hashed too.

Two sessions never get the same start and the same mark: the first must have been forgotten, and for
that the watermark had to move. So a mark is a hash of the watermark; and of how long closed
sessions stay and where the query began, since these may change when state is carried over.
"""

import struct
from hashlib import blake2b
from typing import Final, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from sessionkit._engine.boundaries import is_over
from sessionkit._engine.logic import BatchClocks
from sessionkit._instants import BEGINNING_US

Numbers: TypeAlias = npt.NDArray[np.int64]

FIRST_MARK: Final = 2**62
"""Marks are numbers from here on, so that none is an instant."""
PERSON: Final = b"mark/1"


@attrs.frozen
class Horizon:
    """
    What the watermark has passed in a micro-batch. All in microseconds.

    Attributes:
        late_us: By which events are late; None where that has been judged already.
        gone_us: Sessions that were over by then may be forgotten.
        lasts_us: How long after its start a session is over at the earliest.
        marked: What the mark of sessions is made of that get their start behind that.
    """

    late_us: int | None
    gone_us: int = BEGINNING_US
    lasts_us: int = 0
    marked: tuple[int, int, int] = (0, 0, 0)

    @property
    def judged(self) -> "Horizon":
        """The same, where it's known which events are late."""
        return attrs.evolve(self, late_us=None)

    def marks(self, starts: Numbers) -> Numbers:
        """Return the marks of sessions that get these starts; 0 for those that need none."""
        behind = is_over(starts + self.lasts_us, self.gone_us)
        return behind * self._mark if behind.any() else np.zeros(len(starts), np.int64)

    @property
    def _mark(self) -> int:
        return mark_of(*self.marked)


@attrs.frozen
class Horizons:
    """
    What the watermark has passed under a spec, as it moves. All in microseconds.

    Attributes:
        lateness_us: How late an event may be.
        stays_us: How long after its close a session can still become part of another.
        shortest_us: How long after its start a session is over at the earliest.
        in_time_order: Whether events wait for the watermark.
    """

    lateness_us: int
    stays_us: int
    shortest_us: int
    in_time_order: bool = attrs.field(kw_only=True)

    def at(self, clocks: BatchClocks) -> Horizon:
        """Return the horizon of a micro-batch."""
        watermark_us, since_us = clocks.watermark_us, clocks.since_us
        late_us: int | None = watermark_us - self.lateness_us
        gone_us = watermark_us - self.stays_us
        if watermark_us == BEGINNING_US:
            late_us = gone_us = BEGINNING_US
        if self.in_time_order:
            # Events of an instant are folded in one micro-batch, and later ones are late.
            late_us, gone_us = None, BEGINNING_US
        if since_us is None:
            marked = watermark_us, self.stays_us, BEGINNING_US
            return Horizon(late_us, gone_us, self.shortest_us, marked)
        # Sessions from before may have had other rules.
        if not self.in_time_order:
            gone_us = max(gone_us, since_us)
        marked = watermark_us, self.stays_us, since_us
        return Horizon(late_us, max(gone_us, clocks.idle_us), 0, marked)


def mark_of(*made_of: int) -> int:
    """Return the mark that is made of numbers."""
    packed = struct.pack(f">{len(made_of)}q", *made_of)
    digest = blake2b(packed, digest_size=8, person=PERSON).digest()
    return FIRST_MARK + (int.from_bytes(digest, "big") >> 2)
