"""Events as the pandas frame that a function under `by_frame` is given."""

from typing import Final

import pandas as pd
import pyarrow as pa

from sessionkit.spec.stateful import AnyStatefulSpec
from sessionkit.state import codec_of

__all__ = ["event_frame"]


NULLABLE: Final = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
"""Where a column may hold nulls: pandas would make floats of such integers, and of such flags
objects."""


def event_frame(spec: AnyStatefulSpec, events: pa.Table) -> pd.DataFrame:
    """
    Return events as a frame: a column for the event time, and one for each field of the event.

    Instants are aware, in UTC. Integers and flags that are Optional have pandas' nullable types.
    """
    columns = {} if spec.event_time is None else {spec.event_time: events["time"].to_pandas()}
    for field in codec_of(spec.event).type.fields:
        column = events[f"event.{field.name}"]
        columns[field.name] = column.to_pandas(
            types_mapper=NULLABLE.get
            if field.type.exact and type(None) in field.type.exact
            else None
        )
    return pd.DataFrame(columns, index=pd.RangeIndex(events.num_rows))
