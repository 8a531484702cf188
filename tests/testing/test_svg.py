"""The picture of a driver and of an explanation in a notebook: SVG for light and dark pages."""

import re
from collections import Counter
from typing import Any

import attrs
import pytest

from examples.devices.spec import Reading, sensors
from examples.visits import View, visits
from sessionkit.testing import SessionDriver, StatefulDriver, at, explain_session, minutes
from sessionkit.testing.svg import COLORS, ROW, WIDTH

PAGE = View(url="/", seconds=1.0)
WHITE, DARK = "#ffffff", "#1e1e1e"
LEGEND = Counter(circle=2, polygon=1)


@attrs.frozen
class Element:
    """An element of a picture."""

    tag: str
    attributes: dict[str, str]
    text: str


def drawn(shown: Any) -> list[Element]:
    """Return the elements of the picture that a notebook shows."""
    _, tag, after = shown._repr_html_().partition("<svg")
    return [
        Element(name, dict(re.findall(r'([\w-]+)="([^"]*)"', attributes)), text)
        for name, attributes, text in re.findall(r"<(\w+)([^>]*)>([^<]*)", tag + after)
    ]


def titles_in(picture: list[Element]) -> list[str]:
    """Return what the signs say when the mouse is over them."""
    return sorted([element.text for element in picture if element.tag == "title"][1:])


def signs_in(picture: list[Element]) -> Counter[str]:
    """Count the signs of the lanes, without the signs of the legend."""
    names = Counter(element.tag for element in picture)
    return Counter({name: names[name] for name in ("circle", "polygon", "rect")}) - LEGEND


def luminance(color: str) -> float:
    """Return the relative luminance of a color, as WCAG defines it."""
    shares = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * s for weight, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("page", [WHITE, DARK])
@pytest.mark.parametrize("color", COLORS.values())
def test_a_color_shows_on_a_light_and_on_a_dark_page(color: str, page: str) -> None:
    """With the contrast that WCAG asks of graphics; everything else has the color of the page."""
    dim, bright = sorted((luminance(color), luminance(page)))
    assert 3 <= (bright + 0.05) / (dim + 0.05)


def test_a_picture_has_no_colors_but_those() -> None:
    """And it loads nothing."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    shown = driver._repr_html_()
    assert {*re.findall("#[0-9a-f]{6}", shown)} <= {*COLORS.values()}
    assert ["http://www.w3.org/2000/svg"] == re.findall('http[^"]*', shown)


def test_each_event_session_and_clock_has_a_sign() -> None:
    """Two read events, one that waits, one that is late; a closed and an open session."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    driver.add("bob", at("11:00"), PAGE)
    driver.run_batch()
    driver.add("ann", at("10:01"), PAGE)
    driver.run_batch()
    driver.add("bob", at("11:10"), PAGE)
    picture = drawn(driver)
    assert ["read, 10:00", "read, 11:00", "rejected, 10:01", "waiting, 11:10"] == titles_in(picture)
    assert Counter(circle=3, rect=2, polygon=2) == signs_in(picture)


def test_events_of_one_instant_are_one_sign_with_their_number() -> None:
    """Otherwise they would hide each other."""
    driver = SessionDriver(visits)
    for _ in range(3):
        driver.add("ann", at("10:00"), PAGE)
    assert ["waiting, 10:00 (3 events)"] == titles_in(drawn(driver))


def test_a_timer_is_a_diamond() -> None:
    """The legend says so, in place of closed and open sessions."""
    driver = StatefulDriver(sensors(silence=minutes(5)), processing_time=at("10:00"))
    driver.add("cellar", at("09:59"), Reading(4.0))
    driver.run_batch()
    texts = [element.text for element in drawn(driver)]
    assert "silence set for 10:05" in texts
    assert "diamond: timer set" in texts
    assert "filled: closed, dashed: open" not in texts


def test_an_explanation_is_words_above_its_picture() -> None:
    """Without events there is no picture."""
    found = explain_session(visits, "ann", [(at("10:00"), PAGE), (at("11:00"), PAGE)])
    assert Counter(circle=2, rect=2, polygon=2) == signs_in(drawn(found))
    assert "<svg" not in explain_session(visits, "ann", [])._repr_html_()


@pytest.mark.parametrize("name", ["ann", "a name that is far too long for the lane of a picture"])
def test_a_clock_that_is_years_away_is_drawn_at_the_edge(name: str) -> None:
    """A clock that is years away is at the edge; a caption is where there is room."""
    driver = SessionDriver(visits)
    for time in ("10:00", "10:40", "11:20", "12:05"):
        driver.add(name, at(time), PAGE)
        driver.run_batch()
    driver.advance_watermark_to(at("2100-01-01"))
    picture = drawn(driver)
    _, _, width, height = map(float, picture[0].attributes["viewBox"].split())
    assert WIDTH == width
    for element in picture:
        if element.tag == "text":
            letters = 6 * len(element.text)
            x, ends = float(element.attributes["x"]), element.attributes["text-anchor"] == "end"
            assert 0 <= (x - letters if ends else x) <= (x if ends else x + letters) <= WIDTH
            assert ROW / 4 <= float(element.attributes["y"]) <= height
