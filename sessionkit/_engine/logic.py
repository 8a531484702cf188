"""What the worker and the storage ask of a fold: the seam between the shell and its two folds."""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.clocks import BatchClocks
from sessionkit._engine.outcome import Memory, Outcome
from sessionkit._engine.rows.table import micros
from sessionkit._instants import END_OF_TIME_US
from sessionkit.spec.shared import AnySpec
from sessionkit.state import Field
from sessionkit.timeouts import Clock

__all__ = ["NEVER_US", "Logic", "first_due"]

Instants: TypeAlias = npt.NDArray[np.int64]

NEVER_US: Final = END_OF_TIME_US
"""When something is due that never is."""


class Logic(Protocol):
    """
    The rules of one spec, and the fold that keeps them.

    A step needs the rows of those keys only that have events, or for which something is due: what
    it does to one key never depends on another.
    """

    @property
    def spec(self) -> AnySpec:
        """The rules and functions."""

    @property
    def identity(self) -> bytes:
        """The rules and the types under which a group is stored, as JSON."""

    @property
    def state_fields(self) -> Sequence[Field]:
        """The fields of the state as they are stored."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that are kept: open sessions, or keys."""

    def step(self, memory: Memory, arrived: pa.Table, clocks: BatchClocks) -> Outcome:
        """
        Run one micro-batch of a group.

        Raises:
            UserFunctionError: A function of the user failed, and the spec says `on_error="raise"`.
            StateValueError: A function left a value in the state that does not fit its field.
        """

    @property
    def keeps_only_open(self) -> bool:
        """Whether each row that is kept is an open session or a key, but for traces."""

    def open_in(self, kept: pa.Table) -> pa.Table:
        """Return the rows that are open sessions, or keys."""

    def due(self, kept: pa.Table) -> dict[Clock, Instants]:
        """Return the instants, in microseconds, that a clock must reach for the rows to change."""


def first_due(logic: Logic, memory: Memory) -> dict[Clock, int]:
    """Return the first instant, in microseconds, that each clock must reach for a change."""
    due = logic.due(memory.kept)
    if memory.buffered.num_rows:
        turns = micros(memory.buffered["time"])
        due["event_time"] = np.concatenate([due["event_time"], turns])
    first = {clock: int(at_us.min(initial=NEVER_US)) for clock, at_us in due.items()}
    return {clock: at_us for clock, at_us in first.items() if at_us < NEVER_US}
