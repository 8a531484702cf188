"""Visits to a website, which end after half an hour without page views."""

from typing import Any

import attrs

from sessionkit import EventTimeGap, Session, SessionSpec

__all__ = ["View", "Visit", "VisitRow", "visits"]


@attrs.define
class View:
    """A page view: the columns to read, and their types."""

    url: str
    seconds: float


@attrs.define
class Visit:
    """The state of one open visit."""

    pages: int
    reading: float


@attrs.frozen
class VisitRow:
    """One result row."""

    pages: int
    reading: float


def create(key: Any, event: View) -> Visit:
    """Start with the first page view."""
    return Visit(pages=1, reading=event.seconds)


def update(state: Visit, event: View) -> Visit:
    """Add a page view."""
    state.pages += 1
    state.reading += event.seconds
    return state


def merge(left: Visit, right: Visit) -> Visit:
    """Merge two visits that a late page view connects."""
    return Visit(left.pages + right.pages, left.reading + right.reading)


def finish(session: Session, state: Visit) -> VisitRow:
    """Return the row of a visit that has ended."""
    return VisitRow(state.pages, state.reading)


visits = SessionSpec(
    keys={"user_id": str},
    event_time="ts",
    event=View,
    state=Visit,
    result=VisitRow,
    create=create,
    update=update,
    merge=merge,
    finish=finish,
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="10 minutes",
)
