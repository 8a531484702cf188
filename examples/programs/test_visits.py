"""A spec and its tests, which start neither Spark nor Java: `pytest test_visits.py`."""

import attrs

from sessionkit import SessionSpec
from sessionkit.testing import SessionDriver, at


@attrs.frozen
class View:
    """The columns that are read besides user and time."""

    page: str


@attrs.define
class Visit:
    """The state of a visit, and its row."""

    pages: int = 0

    def update(self, view: View) -> None:
        """Count a page."""
        self.pages += 1

    def merge(self, later: "Visit") -> None:
        """Add the pages of a later part."""
        self.pages += later.pages


VISITS = SessionSpec.of(
    Visit, keys={"user": str}, event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
)


def test_a_late_view_joins_two_visits() -> None:
    """A view between them, within the watermark delay, makes them one."""
    driver = SessionDriver(VISITS)
    for minute in ("10:00", "10:35", "10:20"):
        driver.add("ann", at(minute), View("/"))
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_until_idle()
    assert driver.take_results() == [Visit(pages=3)]
