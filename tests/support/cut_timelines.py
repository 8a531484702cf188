"""Orders of arrival, and cuts into batches, of events that are all on time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Protocol, TypeVar

from hypothesis import strategies as st


class Timed(Protocol):
    """An event with its time, and a value of its own."""

    @property
    def at(self) -> datetime:
        """When it happened."""

    @property
    def value(self) -> int:
        """Its value."""


T = TypeVar("T", bound=Timed)


@st.composite
def batches(draw: st.DrawFn, events: Sequence[T], delay: timedelta) -> list[list[T]]:
    """Draw an order of arrival, cut into batches, some of them empty."""
    waits = {event: draw(st.sampled_from([timedelta(0), delay / 2, delay])) for event in events}
    arrived = sorted(events, key=lambda event: (event.at + waits[event], event.value))
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), max_size=5)))
    edges = [0, *cuts, len(arrived)]
    cut = [arrived[start:stop] for start, stop in pairwise(edges)]
    return [draw(st.permutations(batch)) for batch in cut]


def is_ahead(cut: Sequence[Sequence[Timed]], delay: timedelta) -> bool:
    """Tell whether every event is strictly ahead of the watermark of its batch."""
    latest = None
    for batch in cut:
        if latest is not None:
            watermark = latest - timedelta(microseconds=latest.microsecond % 1000) - delay
            if any(event.at <= watermark for event in batch):
                return False
        latest = max([event.at for event in batch] + ([latest] if latest else []), default=None)
    return True
