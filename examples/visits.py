"""Visits to a website: half an hour of silence ends one. The functions are methods of the state."""

from typing import Self

import attrs

from sessionkit import Session, SessionSpec

__all__ = ["View", "Visit", "VisitRow", "visits"]


@attrs.define
class View:
    """A page view: the columns that are read, and their types."""

    url: str
    seconds: float


@attrs.frozen
class VisitRow:
    """One result row."""

    pages: int
    reading: float


@attrs.define
class Visit:
    """The state of one open visit."""

    pages: int = 0
    reading: float = 0.0

    def update(self, event: View) -> None:
        """Add a page view."""
        self.pages += 1
        self.reading += event.seconds

    def merge(self, other: Self) -> None:
        """Add a visit that a page view connects to this one."""
        self.pages += other.pages
        self.reading += other.reading

    def finish(self, session: Session) -> VisitRow:
        """Return the row of a visit that is over."""
        return VisitRow(self.pages, self.reading)


visits = SessionSpec.of(
    Visit, keys={"user_id": str}, event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
)
