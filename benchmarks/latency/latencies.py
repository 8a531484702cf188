"""How long each row was under way, from the broker's times. All in milliseconds."""

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.latency.entrants import Kind

__all__ = ["latencies"]


def latencies(kind: Kind, events: pd.DataFrame, rows: pd.DataFrame, first_ms: int) -> Any:
    """
    Return how long after an event its row was there, for events from `first_ms` on.

    Events have `user`, `number`, `time` (their own) and `at` (the broker's); rows have `user`,
    `last`, `at` and, of sessions that are over, `end`.
    """
    return (_of_updates if kind == "update" else _of_closes)(events, rows, first_ms)


def _of_updates(events: pd.DataFrame, rows: pd.DataFrame, first_ms: int) -> Any:
    """Find for each event the first row of its user that has a number as large."""
    counted = events[events["at"] >= first_ms]
    width = int(events["number"].max()) + 1
    updates = rows.sort_values(["user", "last", "at"], kind="stable")
    found = (updates["user"] * width + updates["last"]).to_numpy()
    places = np.searchsorted(found, (counted["user"] * width + counted["number"]).to_numpy())
    has_row = places < len(found)
    has_row[has_row] = (
        updates["user"].to_numpy()[places[has_row]] == counted["user"].to_numpy()[has_row]
    )
    return updates["at"].to_numpy()[places[has_row]] - counted["at"].to_numpy()[has_row]


def _of_closes(events: pd.DataFrame, rows: pd.DataFrame, first_ms: int) -> Any:
    """Find for each session the first event, of any user, at or after its end."""
    ordered = events.sort_values(["at", "number"])
    latest = np.maximum.accumulate(ordered["time"].to_numpy())
    places = np.searchsorted(latest, rows["end"].to_numpy())
    ended = places < len(latest)
    began = ordered["at"].to_numpy()[places[ended]]
    return (rows["at"].to_numpy()[ended] - began)[began >= first_ms]
