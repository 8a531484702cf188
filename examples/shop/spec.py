"""Visits to a shop: what they led to, and where they came from. It needs no Spark."""

from datetime import timedelta
from typing import Final

import attrs
import pyarrow.compute as pc

from sessionkit import Memory, SessionSpec
from sessionkit import aggregates as agg

__all__ = ["LOOKBACK", "STEPS", "VISITS", "Action"]

LOOKBACK: Final = timedelta(days=30)
"""How long a source gets credit for later visits."""


@attrs.frozen
class Action:
    """What a user did: the columns to read besides `user` and `at`."""

    event: str
    channel: str  # where the shop won the user
    source: str | None  # what brought the user to this page, if anything did


def _is(event: str) -> pc.Expression:
    return pc.field("event") == event


STEPS: Final = {
    "viewed": _is("product_view"),
    "carted": _is("add_to_cart"),
    "shipped": _is("shipping_details"),
    "paid": _is("purchase"),
}
"""The way to a sale."""

VISITS: Final = SessionSpec.aggregate(
    Action,
    {
        "events": agg.count(),
        "channel": agg.first("channel"),
        "source": agg.last("source"),
        "path": agg.path("event"),
        "views": agg.count_by("event", rest="(other)"),
        "far": agg.funnel(STEPS),
        "bought": agg.any(_is("purchase")),
        "engaged_time": agg.engaged_time(cap="5 minutes"),
        "engaged": (agg.duration() > timedelta(seconds=10)) & (agg.count() > 1),
    },
    keys={"user": str},
    event_time="at",
    gap="30 minutes",
    watermark_delay="10 minutes",
    # `credit` is the last source of this visit or of those that began in the 30 days before.
    memory=Memory(time_to_live="400 days", last={"credit": "source"}, lookback=LOOKBACK),
)
