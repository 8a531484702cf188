"""A seed without Spark: what a driver begins with, as the worker gets it."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs
import pandas as pd
import pyarrow as pa

from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.objects import decode_keys
from sessionkit._engine.rows.table import whole_batch
from sessionkit._engine.seed import SeedFormat
from sessionkit._engine.wire.columns import (
    EVENTS_COLUMN,
    HELD_COLUMN,
    KEPT_COLUMN,
    REJECTED_COLUMN,
)
from sessionkit._engine.wire.packs import packs_of
from sessionkit.spec.shared import AnySpec

__all__ = ["Seed", "seed_of"]

GroupOf: TypeAlias = Callable[[AnySpec, dict[str, Any]], Hashable]


@attrs.frozen
class Seed:
    """
    What a query begins with.

    Attributes:
        format: How it is written, and the watermark at which it was taken.
        frames: Its rows by group, until the first micro-batch has run.
    """

    format: SeedFormat
    frames: Mapping[Any, pd.DataFrame] = attrs.field(repr=False)

    @property
    def spent(self) -> "Seed":
        """The seed without its rows."""
        return attrs.evolve(self, frames={})


def seed_of(spec: AnySpec, memories: Iterable[Memory], form: SeedFormat, group_of: GroupOf) -> Seed:
    """
    Return a seed of what groups remember.

    Args:
        spec: Under whose rules they remember it.
        memories: What each of them remembers.
        form: How it is written, and when it was taken.
        group_of: Says which group has a key.
    """
    rows: dict[Hashable, list[dict[str, Any]]] = {}
    for memory in memories:
        for name, table in ((KEPT_COLUMN, memory.kept), (HELD_COLUMN, memory.buffered)):
            for group, part in _parts(spec, table, group_of).items():
                packs = packs_of(whole_batch(part))
                rows.setdefault(group, []).extend({name: pack} for pack in packs)
    columns = [EVENTS_COLUMN, REJECTED_COLUMN, KEPT_COLUMN, HELD_COLUMN]
    return Seed(
        form,
        {
            group: pd.DataFrame(found, columns=columns, dtype=object)
            for group, found in rows.items()
        },
    )


def _parts(spec: AnySpec, table: pa.Table, group_of: GroupOf) -> dict[Hashable, pa.Table]:
    """Return the rows of each group."""
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(decode_keys(spec, table)):
        places.setdefault(group_of(spec, key._asdict()), []).append(place)
    return {group: table.take(pa.array(found)) for group, found in places.items()}
