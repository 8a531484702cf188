"""What a notebook shows of the open sessions of a query."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.visits import View, visits
from sessionkit._pictures.notebook import MOST_LANES
from sessionkit._pictures.sessions import OpenSessions
from sessionkit.testing import SessionDriver, at

PAGE = View(url="/", seconds=1.0)


def open_at(*starts: tuple[str, str]) -> OpenSessions[Any]:
    """Return sessions of keys, from a time on."""
    driver = SessionDriver(visits)
    for key, time in starts:
        driver.add(key, at(time), PAGE)
    driver.run_batch()
    return OpenSessions(driver.open_sessions())


def test_open_sessions_are_a_list() -> None:
    """Equal to one, with the same items in the same order."""
    found = open_at(("bob", "10:05"), ("ann", "10:00"))

    plain = list(found)

    assert plain == found
    assert found[0] is plain[0]
    assert repr(plain) == repr(found)


def test_open_sessions_are_drawn_by_key() -> None:
    """A lane for each key, in the order of the starts, with the same in words."""
    page = open_at(("bob", "10:05"), ("ann", "10:00"))._repr_html_()

    image, words = page.removeprefix("<div>").removesuffix("</pre></div>").split("<pre>")

    drawn = [one.text or "" for one in ET.fromstring(image).iter() if one.tag.endswith("text")]  # noqa: S314
    assert ["Open sessions", "'ann'", "'bob'"] == [text for text in drawn if text[0] in "O'"]
    assert [
        "&#x27;ann&#x27;: open 10:00 to 10:30",
        "&#x27;bob&#x27;: open 10:05 to 10:35",
    ] == words.splitlines()
    assert "<p>Open sessions: there are none.</p>" == OpenSessions[Any]()._repr_html_()


@pytest.mark.parametrize("key", ["<b>&\"'", "</pre><script>alert(1)</script>", "\x00\x1b"])
def test_every_key_is_escaped(key: str) -> None:
    """Nothing is loaded and nothing runs."""
    page = open_at((key, "10:00"))._repr_html_()

    assert [] == [
        part for part in ("<b>", "<script", "href", "src=", "url(", "\x00") if part in page
    ]


def test_the_picture_of_many_keys_has_an_end() -> None:
    """And says how many keys it leaves out."""
    found = open_at(*((f"user {number:02}", "10:00") for number in range(MOST_LANES + 3)))

    assert "\nand 3 more keys</pre>" in found._repr_html_()
