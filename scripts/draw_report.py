"""
Draw the report of the sample shop, for README and docs: `python -m scripts.draw_report`.

Chromium takes the picture. The events are made up, and run on the driver of the tests.
"""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from examples.shop.events import made_up
from examples.shop.spec import STEPS, VISITS
from sessionkit.addons.report import Columns, report
from sessionkit.testing import SessionDriver
from tests.support.browser import browser_in

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "report.png"
PLACE: Final = (0, 0, 1280, 1400)
USERS: Final = 4_000


def main() -> None:
    """Write the picture."""
    driver = SessionDriver(VISITS)
    for row in made_up(USERS).to_pylist():
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(datetime(2100, 1, 1, tzinfo=UTC))
    driver.run_until_idle()
    with TemporaryDirectory(prefix="report-") as folder, browser_in(Path(folder)) as reader:
        page = Path(folder, "report.html")
        columns = Columns(dimensions=("credit", "channel"), funnel="far", steps=STEPS)
        report(driver.take_frame(), out=page, title="A shop", columns=columns)
        reader.show(width=1280)
        reader.open(f"file://{page}")
        reader.wait_for("document.body.dataset.drawn")
        PICTURE.write_bytes(reader.picture(PLACE))


if __name__ == "__main__":
    main()
