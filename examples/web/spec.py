"""Visits to a web site, and which of them programs made. It needs no Spark."""

from datetime import timedelta
from typing import Final

import attrs

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg

__all__ = ["VISITS", "Hit"]

FEW: Final = 20
FAST: Final = 30.0
"""Who asks for more than FEW pages, and for FAST a minute, doesn't read them."""
AWAKE: Final = timedelta(hours=6)
"""Nobody reads longer than this without half an hour of rest."""


@attrs.frozen
class Hit:
    """A request: the columns to read besides `address`, `agent` and `at`."""

    path: str
    is_page: bool  # not a picture, a script or the like
    is_named: bool  # the agent says that it's a program


_pages = agg.count(where="is_page")
_engaged_for = agg.engaged_time(cap="60 seconds")
_lasted = agg.duration()
_rate = _pages / (_lasted / timedelta(minutes=1))

VISITS: Final = SessionSpec.aggregate(
    Hit,
    {
        "hits": agg.count(),
        "pages": _pages,
        "entry": agg.first("path", where="is_page"),
        "exit": agg.last("path", where="is_page"),
        "path": agg.path("path", where="is_page"),
        "views": agg.count_by("path", rest="(other)", where="is_page"),
        "engaged_for": _engaged_for,
        "engaged": _engaged_for > timedelta(seconds=10),
        "is_bounce": _pages <= 1,
        "bot_by_name": agg.any("is_named"),
        # One instant has no rate.
        "bot_by_rate": (_pages > FEW) & (_rate > FAST).fill_null(value=True),
        "bot_by_age": _lasted > AWAKE,
    },
    keys={"address": str, "agent": str},
    event_time="at",
    # A program that never rests has one session a day.
    timeout=SessionRules("30 minutes", max_duration="1 day"),
    order="event_time",
    watermark_delay="1 minute",
)
