"""The events of one micro-batch with their windows: from their time to the end of their gap."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.table import Rejected, micros
from sessionkit._functions import name_of
from sessionkit._instants import span_us
from sessionkit.errors import UserFunctionError, with_hint
from sessionkit.session import AnySessionSpec
from sessionkit.timeouts import window_end

__all__ = ["WindowedEvents", "read_events"]

Instants: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class WindowedEvents:
    """
    Events with their windows. They're rows here: what belongs together depends on times alone.

    Attributes:
        table: Their rows, as they came.
        starts: Their times, in microseconds.
        ends: The ends of their own windows, in microseconds.
    """

    table: pa.Table
    starts: Instants
    ends: Instants

    def only(self, chosen: Mask) -> "WindowedEvents":
        """Return the events that a mask chooses."""
        if chosen.all():
            return self
        table = self.table.filter(pa.array(chosen))
        return WindowedEvents(table, self.starts[chosen], self.ends[chosen])

    def at(self, places: npt.NDArray[np.int64]) -> "WindowedEvents":
        """Return the events at some places."""
        return WindowedEvents(
            self.table.take(pa.array(places)), self.starts[places], self.ends[places]
        )

    def without(self, places: Collection[int]) -> "WindowedEvents":
        """Return the events but for those at some places."""
        good = np.ones(len(self.starts), np.bool_)
        good[list(places)] = False
        return self.only(good)


def read_events(spec: AnySessionSpec, table: pa.Table) -> tuple[WindowedEvents, list[Rejected]]:
    """
    Return the events of a table with their windows.

    Only a gap that is read from the event needs objects here. Then an event that its own class
    refuses, or whose gap is not positive or longer than declared, is quarantined, and one for which
    the gap's function raises has failed.
    """
    starts = micros(table["time"])
    if not callable(spec.timeout.gap):
        ends = window_end(starts, span_us(spec.timeout.longest))
        return WindowedEvents(table, starts, ends), []
    objects, refused = build_events(spec, table)
    failed: dict[int, str] = {}
    gaps = _gaps(spec, spec.timeout.gap, objects, refused, failed)
    events = WindowedEvents(table, starts, window_end(starts, gaps))
    rejected = [
        *Rejected.with_reasons("quarantined", refused, table),
        *Rejected.with_reasons("failed", failed, table),
    ]
    return events.without([*refused, *failed]), rejected


def _gaps(
    spec: AnySessionSpec,
    gap: Callable[[Any], timedelta],
    objects: list[Any],
    refused: dict[int, str],
    failed: dict[int, str],
) -> Instants:
    longest = span_us(spec.timeout.longest)
    gaps = np.ones(len(objects), np.int64)
    for place, event in enumerate(objects):
        if place in refused:
            continue
        try:
            found = _gap(gap, event)
        except UserFunctionError as error:
            if spec.on_error == "raise":
                raise
            failed[place] = str(error)
            continue
        if 0 < found <= longest:
            gaps[place] = found
        elif found <= 0:
            refused[place] = "the gap is not positive"
        else:
            refused[place] = f"the gap is longer than at_most={spec.timeout.longest}"
    return gaps


def _gap(gap: Callable[[Any], timedelta], event: Any) -> int:
    try:
        found = gap(event)
    except Exception as error:
        what = f"`gap` ({name_of(gap)}) raised {type(error).__name__}: {error}"
        hint = "return timedelta(0) for an event that is to be quarantined"
        raise UserFunctionError(with_hint(what, hint)) from error
    if not isinstance(found, timedelta):
        what = f"`gap` ({name_of(gap)}) must return a timedelta, found {type(found).__name__}"
        raise UserFunctionError(with_hint(what, "return timedelta(minutes=...)"))
    return span_us(found)
