"""The entrants: each turns the same files of events into the same rows."""

from collections.abc import Mapping
from typing import Final

from benchmarks.entrants.aggregates import AGGREGATES
from benchmarks.entrants.by_hand import BY_HAND
from benchmarks.entrants.chained import CHAINED
from benchmarks.entrants.engines import ENGINES
from benchmarks.entrants.entrant import Entrant
from benchmarks.entrants.floor import FLOOR
from benchmarks.entrants.functions import FUNCTIONS
from benchmarks.entrants.java import FLAT_MAP_GROUPS
from benchmarks.entrants.pages import AGGREGATES_PAGES, PAGES
from benchmarks.entrants.spark_sql import (
    SESSION_WINDOW,
    SESSION_WINDOW_DEFAULT_STORE,
)
from benchmarks.entrants.transform import TRANSFORM

__all__ = ["ENTRANTS", "Entrant"]

ENTRANTS: Final[Mapping[str, Entrant]] = {
    entrant.name: entrant
    for entrant in (
        FUNCTIONS,
        AGGREGATES,
        PAGES,
        AGGREGATES_PAGES,
        CHAINED,
        SESSION_WINDOW,
        SESSION_WINDOW_DEFAULT_STORE,
        FLAT_MAP_GROUPS,
        BY_HAND,
        TRANSFORM,
        FLOOR,
        *ENGINES,
    )
}
