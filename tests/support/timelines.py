"""Events of a few keys, and how they come and are stored: what hypothesis draws of sessions."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, Protocol, TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from sessionkit import Storage
from tests.support.naive_sessions import Event

NOON: Final = datetime(2026, 3, 8, 12, tzinfo=UTC)
MICRO, MILLI = timedelta(microseconds=1), timedelta(milliseconds=1)
GAP: Final = timedelta(seconds=10)
DISTANCES: Final = [
    *(timedelta(0), MICRO, MILLI, GAP / 2, 2 * GAP, 5 * GAP),
    *(GAP - MILLI, GAP - MICRO, GAP, GAP + MICRO, GAP + MILLI),
]
"""Around the boundary: exactly one gap, and one microsecond and millisecond more or less."""
STORAGES: Final[st.SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries(
    {
        "storage": st.builds(
            Storage,
            bucket_count=st.sampled_from([1, 2, 64]),
            layout=st.sampled_from(["buckets", "pages"]),
        )
    }
)
"""An argument of a spec."""


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
def timelines(
    draw: st.DrawFn, keys: str = "abc", gaps: st.SearchStrategy[timedelta] | None = None
) -> list[Event]:
    """Draw the events of a few keys, by time; their values don't grow with it."""
    events, at = [], dict.fromkeys(keys, NOON)
    for number in range(draw(st.integers(1, 14))):
        key = draw(st.sampled_from(keys))
        at[key] += draw(st.sampled_from(DISTANCES))
        value = draw(st.integers(0, 2)) * 100 + number
        events.append(Event(key, at[key], value, GAP if gaps is None else draw(gaps)))
    return sorted(events, key=lambda event: event.at)


@st.composite
def batches(draw: st.DrawFn, events: Sequence[T], delay: timedelta) -> list[list[T]]:
    """Draw an order in which events come on time, cut into batches, some of them empty."""
    waits = {event: draw(st.sampled_from([timedelta(0), delay / 2, delay])) for event in events}
    arrived = sorted(events, key=lambda event: (event.at + waits[event], event.value))
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), max_size=5)))
    edges = [0, *cuts, len(arrived)]
    cut = [draw(st.permutations(arrived[start:stop])) for start, stop in pairwise(edges)]
    assume(_is_ahead(cut, delay))
    return cut


def _is_ahead(cut: Sequence[Sequence[Timed]], delay: timedelta) -> bool:
    """Tell whether every event is strictly ahead of the watermark of its batch."""
    latest = None
    for batch in cut:
        if latest is not None:
            watermark = latest - timedelta(microseconds=latest.microsecond % 1000) - delay
            if any(event.at <= watermark for event in batch):
                return False
        latest = max([event.at for event in batch] + ([latest] if latest else []), default=None)
    return True
