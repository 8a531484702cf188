"""What became of the events of a micro-batch, and of the sessions that are over."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.rows.table import Rejected

Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


@attrs.frozen
class Joined:
    """The open sessions after events have joined them, how many did, and those that did not."""

    sessions: pa.Table
    events: int
    rejected: list[Rejected]


@attrs.frozen
class Closed:
    """
    What became of sessions that are over.

    Attributes:
        rows: The result rows: key columns, session columns, the fields of the result.
        failed_output: Those whose `finish` failed.
        sessions: How many closed, without those.
        places: For each result row, the place of its session.
        failed: The places of the sessions whose `finish` failed.
        events: Their events, where these are handed out.
    """

    rows: pa.Table
    failed_output: list[Rejected]
    sessions: int
    places: Places = range(0)
    failed: Collection[int] = ()
    events: Sequence[Rejected] = ()
