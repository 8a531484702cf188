"""
What a session keeps of each of its events, as lists.

    events     each.NAME    what is kept of one
    sessions   NAME         the list of these, in no order

`ids` is of the feature `duplicates`, `held` of `session_events`.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionkit._engine.rows.table import lists_of, whole
from sessionkit._engine.sessions.plan import Plan

Mask: TypeAlias = npt.NDArray[np.bool_]


def gathered(name: str, plan: Plan, chosen: Mask) -> pa.Array:
    """Return what the chosen sessions of a plan keep of all of their events."""
    owners = np.empty(len(plan.order), np.int64)
    owners[plan.order] = plan.unions.spread(np.arange(len(plan.counts)))
    before, came = whole(plan.touched[name]), whole(plan.events.table[f"each.{name}"])
    of_before, of_event = np.split(owners, [len(before)])
    of_each = np.concatenate([of_before[pc.list_parent_indices(before)], of_event])
    order = np.argsort(of_each, kind="stable")
    values = pa.concat_arrays([before.flatten(), came]).take(pa.array(order))
    lists = lists_of(values, np.bincount(of_each, minlength=len(chosen)))
    return lists.filter(pa.array(chosen))
