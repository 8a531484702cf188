"""Visits to a web site, and which of them are those of programs. It needs no Spark."""

from datetime import timedelta
from typing import Final

import attrs
import pyarrow.compute as pc

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg

__all__ = ["VISITS", "Hit"]

FEW: Final = 20
FAST: Final = 30.0
"""Who asks for more than a few pages, and for so many in a minute, doesn't read them."""
AWAKE: Final = timedelta(hours=6)
"""Nobody reads longer than this without half an hour of rest."""


@attrs.frozen
class Hit:
    """A request: the columns to read besides `address`, `agent` and `at`."""

    path: str
    is_page: bool  # not a picture, a script or the like
    is_named: bool  # the agent says that it's a program


_pages = agg.count(where="is_page")

VISITS: Final = SessionSpec.aggregate(
    Hit,
    {
        "hits": agg.count(),
        "pages": _pages,
        "entry": agg.first("path", where="is_page"),
        "exit": agg.last("path", where="is_page"),
        "path": agg.path("path", where="is_page"),
        "views": agg.count_by("path", rest="(other)", where="is_page"),
        "engaged_for": agg.engaged_time(cap="60 seconds"),
        "engaged": agg.holds(
            pc.field("engaged_for") > timedelta(seconds=10),
            engaged_for=agg.engaged_time(cap="60 seconds"),
        ),
        "is_bounce": agg.is_bounce(where="is_page"),
        "bot_by_name": agg.any("is_named"),
        "bot_by_rate": agg.holds(
            # No rate is that of one instant.
            (pc.field("pages") > FEW) & ((pc.field("rate") > FAST) | pc.field("rate").is_null()),
            pages=_pages,
            rate=agg.rate("1 minute", where="is_page"),
        ),
        "bot_by_age": agg.holds(pc.field("lasted") > AWAKE, lasted=agg.duration()),
    },
    keys={"address": str, "agent": str},
    event_time="at",
    # A program that never rests has one session a day.
    timeout=SessionRules("30 minutes", max_duration="1 day"),
    order="event_time",
    watermark_delay="1 minute",
)
