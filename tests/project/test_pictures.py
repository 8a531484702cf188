"""The pictures of README and docs: those that today's code draws."""

import json
import re

from benchmarks.soak.__main__ import BYTES, MEGABYTE, MEMORY, recorded
from scripts.draw_pictures import DIGEST, PICTURES, ROOT, digest_of, pictures, report_page

HINT = "stale: run python -m scripts.draw_pictures"


def test_the_pictures_in_svg_are_drawn_by_todays_code() -> None:
    """Events and sessions, the live view of a query, and the recorded hour of the soak."""
    stored = {path.name: path.read_text("utf-8") for path in PICTURES.glob("*.svg")}
    assert pictures() == stored, HINT


def test_the_sessions_in_the_picture_are_the_rows_that_the_readme_prints() -> None:
    """User, start, pages, landing page, and whether the session has bought."""
    readme = (ROOT / "README.md").read_text("utf-8")
    row = r"^\|(\w+) +\|[\d-]+ ([\d:]{5}).+?\|(\d) +\|(\S+) +\|(\w+)"
    printed = re.findall(row, readme, re.MULTILINE)
    (label,) = re.findall(r'aria-label="Sessions out: (.+?)"', pictures()["sessions-light.svg"])

    assert 3 == len(printed)
    assert sorted(" ".join(row) for row in printed) == sorted(label.split("; "))


def test_a_soak_is_recorded_by_the_minute() -> None:
    """What is drawn are mean megabytes, whatever was sampled."""
    samples = [
        {"minutes": minutes, **dict.fromkeys((*MEMORY, *BYTES), size * MEGABYTE)}
        for minutes, size in ((0.1, 1.0), (0.9, 2.0), (2.5, 4.04))
    ]
    means = {name: [1.5, 4.0] for name in (*MEMORY, *BYTES)}
    assert {"minutes": [0, 2], **means} == json.loads(recorded(samples))


def test_the_pictures_of_the_report_are_of_todays_page() -> None:
    """Chromium took them from a page with this digest, in both colour schemes."""
    assert digest_of(report_page()) == (PICTURES / DIGEST).read_text("utf-8").strip(), HINT
    assert {"report-dark.png", "report-light.png"} == {path.name for path in PICTURES.glob("*.png")}
