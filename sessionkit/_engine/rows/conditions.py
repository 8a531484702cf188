"""Which events meet conditions on their fields: a column of flags for each condition."""

from collections.abc import Collection

import pyarrow as pa

from sessionkit._engine.rows.table import whole
from sessionkit.aggregates import Condition
from sessionkit.spec.aggregates import condition_of, evaluated
from sessionkit.spec.shared import AnySpec
from sessionkit.state._codec import codec_of


def conditions_met(
    spec: AnySpec, events: pa.Table, conditions: Collection[Condition]
) -> list[pa.Array]:
    """Return, for each condition, a column that says for which events it holds."""
    if not conditions:
        return []
    names = codec_of(spec.event).schema.names
    fields = events.select([f"event.{name}" for name in names]).rename_columns(names)
    return list(map(whole, evaluated(fields, [*map(condition_of, conditions)])))
