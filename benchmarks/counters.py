"""A running count of each user's events: the smallest state, so the cost of a key shows."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from sessionkit import KeyState, KeyTimes, NoTimeout, StatefulSpec
from sessionkit.spark import apply_with_state

__all__ = ["COUNT_COLUMNS", "counted_by_hand", "counted_by_sessionkit"]

COUNT_COLUMNS: Final = ("user_id", "events", "seconds")


@attrs.define
class View:
    """An event."""

    seconds: float


@attrs.frozen
class Count:
    """State and result: how many events, and their sum."""

    events: int
    seconds: float


def process(key: Any, views: list[View], state: KeyState[Count], times: KeyTimes) -> Count:
    """Count the events, and return the count."""
    before = state.get(Count(0, 0.0))
    seconds = before.seconds + sum(view.seconds for view in views)
    count = Count(before.events + len(views), seconds)
    state.set(count)
    return count


COUNTERS: Final = StatefulSpec(
    keys={"user_id": str},
    event=View,
    state=Count,
    result=Count,
    process=process,
    timeout=NoTimeout(),
)


def counted_by_sessionkit(events: DataFrame) -> DataFrame:
    """Count with a plain function, all settings at their defaults."""
    return apply_with_state(events, COUNTERS)


def counted_by_hand(events: DataFrame) -> DataFrame:
    """Count as an expert would with `applyInPandasWithState`, one group a user."""
    return (
        events.select("user_id", "seconds")
        .groupBy("user_id")
        .applyInPandasWithState(
            count_user,
            "user_id string, events bigint, seconds double",
            "events bigint, seconds double",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def count_user(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count the events of one user, and return the count."""
    events, seconds = state.get if state.exists else (0, 0.0)
    for frame in frames:
        events += len(frame)
        seconds += sum(frame["seconds"].to_numpy().tolist())
    state.update((events, seconds))
    yield pd.DataFrame([(key[0], events, seconds)], columns=list(COUNT_COLUMNS))
