"""The group state of a driver with the pages of its bucket, all in the one row that it stores."""

from typing import Any

import attrs

from sessionkit.testing.fakes.group_state import FakeGroupState

__all__ = ["PagedGroupState"]


@attrs.frozen(eq=False)
class PagedGroupState:
    """
    A group state whose row ends in the pages, by their numbers.

    Attributes:
        row: The group state that holds both.
        pages: The pages as this call leaves them.
    """

    row: FakeGroupState
    pages: dict[int, bytes]

    @classmethod
    def of(cls, row: FakeGroupState) -> "PagedGroupState":
        """Return the pages that a group state holds."""
        return cls(row, dict(row.get[-1]) if row.exists else {})

    @property
    def exists(self) -> bool:
        """Whether the bucket remembers anything."""
        return self.row.exists

    @property
    def get(self) -> tuple[Any, ...]:
        """The row of the bucket, without the pages."""
        return self.row.get[:-1]

    @property
    def hasTimedOut(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether Spark calls because the timer of the bucket went off."""
        return self.row.hasTimedOut

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 (Spark's name)
        """Replace the row; the pages are those of this moment."""
        self.row.update((*newValue, self.pages))

    def remove(self) -> None:
        """Remove the row, and with it all pages."""
        self.row.remove()

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803 (Spark's names)
        """Arm the event-time timer."""
        self.row.setTimeoutTimestamp(timestampMs)

    def setTimeoutDuration(self, durationMs: int) -> None:  # noqa: N802, N803 (Spark's names)
        """Arm the processing-time timer."""
        self.row.setTimeoutDuration(durationMs)

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802 (Spark's name)
        """Return the watermark."""
        return self.row.getCurrentWatermarkMs()

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 (Spark's name)
        """Return the processing time."""
        return self.row.getCurrentProcessingTimeMs()

    @property
    def has_pages(self) -> bool:
        """Whether a page is stored."""
        return bool(self.pages)

    def page(self, start: int) -> bytes | None:
        """Return a page."""
        return self.pages.get(start)

    def put_page(self, start: int, payload: bytes) -> None:
        """Store a page."""
        self.pages[start] = payload

    def remove_page(self, start: int) -> None:
        """Remove a page."""
        del self.pages[start]
