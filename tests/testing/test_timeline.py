"""The picture of a run: as SVG, with every text escaped, and as text; both to scale."""

from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from examples.visits import View, visits
from sessionkit.testing import Explanation, at, explain_session
from sessionkit.testing.pictures.timeline import Event, Fate, Span, Timeline

PAGE = View(url="/", seconds=1.0)
SVG = "{http://www.w3.org/2000/svg}"
# The axis spans 10:00 to 11:55; the inside of the picture is 40 to 720.
FIRST, LAST = 40.0, 720.0
MINUTES = 115


def explained(key: Any = "ann", **options: Any) -> Explanation:
    """Return two sessions of a key, the second one open, and a late event."""
    times = ("10:00", "10:12", "10:05", "11:05", "10:20", "11:25")
    return explain_session(visits, key, [(at(time), PAGE) for time in times], **options)


def image_of(found: Explanation) -> ET.Element:
    return ET.fromstring(str(found._repr_svg_()))  # noqa: S314 (our own)


def drawn(image: ET.Element, name: str) -> list[ET.Element]:
    """Return what is drawn in the colours of a name."""
    return [one for one in image.iter() if one.get("class") == f"sessionkit-{name}"]


def numbers(shapes: list[ET.Element], attribute: str) -> list[float]:
    return [float(shape.get(attribute, "nan")) for shape in shapes]


def x_of(minute: int) -> float:
    """Return where an instant lies, in minutes after ten."""
    return FIRST + (LAST - FIRST) * minute / MINUTES


def test_each_event_is_at_its_time() -> None:
    """Circles for those of sessions, a cross for the late one."""
    image = image_of(explained())
    circles, (cross,) = drawn(image, "event"), drawn(image, "rejected")
    expected = [x_of(minute) for minute in (0, 5, 12, 65, 85)]
    assert expected == pytest.approx(sorted(numbers(circles, "cx")), abs=0.01)
    left = float(cross.get("d", "").removeprefix("M").partition(",")[0])
    assert x_of(20) == pytest.approx(left + 4.5, abs=0.01)
    titles = [one.findtext(f"{SVG}title") for one in (*circles, cross)]
    assert {"event at 11:25", "rejected event at 10:20"} < set(titles)


def test_each_session_reaches_from_its_start_to_where_it_closes() -> None:
    """A closed one is filled, an open one dashed."""
    image = image_of(explained())
    (closed,), (opened,) = drawn(image, "closed"), drawn(image, "open")
    for shape, start, end in [(closed, 0, 42), (opened, 65, 115)]:
        (x,), (width,) = numbers([shape], "x"), numbers([shape], "width")
        assert (x_of(start), x_of(end)) == pytest.approx((x, x + width), abs=0.01)
    assert ("none", "5 3") == (closed.get("stroke-dasharray"), opened.get("stroke-dasharray"))
    texts = [text.text for text in drawn(image, "text")]
    assert {"closed 10:00 to 10:42, gap", "open 11:05 to 11:55, gap", "'ann'"} < set(texts)
    assert {"Sessions of 'ann'", "2026-01-01 UTC", "11:00"} < set(texts)


def test_the_watermark_is_a_line_where_it_stands() -> None:
    """And ticks where it was before; past the end of the axis if it's outside."""
    inside = image_of(explained())
    lines = [line for line in drawn(inside, "watermark") if line.get("stroke-dasharray")]
    assert [x_of(75)] == pytest.approx(numbers(lines, "x1"), abs=0.01)
    assert "watermark 11:15" in [text.text for text in drawn(inside, "text")]
    later = image_of(explained(watermark=at("2026-01-05 00:00")))
    assert LAST + 14 == max(numbers(drawn(later, "watermark"), "x1"))
    assert "watermark 2026-01-05 00:00" in [text.text for text in drawn(later, "text")]


def test_everything_is_inside_of_the_picture() -> None:
    """Also what happened outside of the axis, and a session without length."""
    arrived: list[Any] = [(at("10:00"), PAGE), ("bob", at("2027-01-01 00:00"), PAGE)]
    image = image_of(explain_session(visits, "ann", arrived))
    width = float(image.get("width", "0"))
    circles = drawn(image, "event")
    assert 2 == len(circles)
    assert all(0 < x < width for x in numbers(circles, "cx"))


@pytest.mark.parametrize(
    "key", ["<b>&\"'", "</svg><script>alert(1)</script>", "\x00\x1b\uffff", "x" * 500]
)
def test_every_text_is_escaped(key: str) -> None:
    """Whatever the key is, the picture is XML and the words are text."""
    found = explained(key)
    image = image_of(found)
    assert {f"{SVG}{tag}" for tag in ("svg", "title", "desc", "style", "rect")} < {
        one.tag for one in image.iter()
    }
    assert not list(image.iter("script")) + list(image.iter(f"{SVG}script"))
    page = found._repr_html_()
    assert "<b>" not in page
    assert "<script" not in page


def test_the_picture_says_in_words_what_it_shows() -> None:
    """For those who can't see it; a notebook shows the words below it too."""
    found = explained()
    image = image_of(found)
    assert "img" == image.get("role")
    assert "Sessions of 'ann'" == image.findtext(f"{SVG}title")
    words = str(image.findtext(f"{SVG}desc"))
    assert str(found).startswith(words)
    assert "moves it there" in words
    assert f"{found._repr_svg_()}<pre>" in found._repr_html_()


def test_every_colour_has_one_for_a_dark_page() -> None:
    """The background is drawn too, so that no text lies on a page of its own colour."""
    image = image_of(explained())
    style = str(image.findtext(f"{SVG}style"))
    names = {one.get("class") for one in image.iter()} - {None}
    assert style.startswith("@media (prefers-color-scheme: dark)")
    assert all(f".{name} {{" in style for name in names)
    assert 1 == len(drawn(image, "card"))


# -- as text -----------------------------------------------------------------------------------


def test_a_timeline_of_nothing_is_nothing() -> None:
    """A test that fails before its first event shows no axis."""
    assert [] == Timeline([], [], {}).as_text()


def test_a_timeline_is_to_scale() -> None:
    """One column a minute here: from 10:00 in column 12 to 10:59 in column 71."""
    events = [Event("ann", at(text), "read") for text in ("10:00", "10:07", "10:29")]
    spans = [Span("ann", at("10:00"), at("10:59"), is_open=True)]
    drawn = Timeline(events, spans, {"watermark": [at("10:41")]}).as_text()
    _, _, lane, bar, watermark, _ = drawn
    assert [12, 19, 41] == [place for place, sign in enumerate(lane) if sign == "o"]
    assert (12, 71) == (bar.index("["), bar.index(")"))
    assert 53 == watermark.index("^")


def test_a_timeline_tells_what_became_of_events() -> None:
    """Several events in a column are a number, above nine a plus; one that waits is a point."""
    fates: list[tuple[str, Fate, int]] = [
        ("10:00", "read", 9),
        ("10:10", "read", 10),
        ("10:20", "rejected", 2),
        ("10:59", "waiting", 2),
    ]
    events = [Event("ann", at(text), fate) for text, fate, number in fates for _ in range(number)]
    assert (
        "9         +         x                                      ."
        in Timeline(events, [], {}).as_text()[2]
    )


def test_a_timeline_shows_what_lies_outside_at_its_edge() -> None:
    """An event years away and a watermark moved far on do not squeeze the rest."""
    events = [
        Event("ann", at("10:00"), "read"),
        Event("ann", at("2031-01-01 00:00"), "rejected"),
        Event("bob", at("2021-01-01 00:00"), "rejected"),
    ]
    spans = [Span("ann", at("10:00"), at("10:30"), is_open=False)]
    drawn = Timeline(events, spans, {"watermark": [at("09:00"), at("23:00")]}).as_text()
    assert "2026-01-01  10:00     10:05" in drawn[0]
    assert drawn[2].endswith("   >")
    assert drawn[4].startswith("'bob'      <")
    assert ("<", "> 23:00") == (drawn[5][11], drawn[5][-7:])


def test_a_timeline_of_one_instant_has_a_scale_all_the_same() -> None:
    """A minute of it."""
    assert (
        Timeline([Event("ann", at("10:00"), "read")], [], {})
        .as_text()[0]
        .startswith("2026-01-01  10:00")
    )


@pytest.mark.parametrize(
    ("last", "labels"),
    [
        ("10:00:00.00005", ["10:00", "10:00:00.00002", "10:00:00.00004"]),
        ("10:00:10", ["10:00", "10:00:02", "10:00:04", "10:00:06", "10:00:08", "10:00:10"]),
        ("18:00", ["10:00", "12:00", "14:00", "16:00", "18:00"]),
        ("2026-01-12 10:00", ["2026-01-08"]),
        ("9999-12-31 23:59", ["3968-09-03", "5967-05-07", "7966-01-07", "9964-09-09"]),
    ],
)
def test_the_scale_of_a_timeline_has_round_labels(last: str, labels: list[str]) -> None:
    """From microseconds to millennia."""
    events = [Event("ann", at("10:00"), "read"), Event("ann", at(last), "read")]
    day, *found = Timeline(events, [], {}).as_text()[0].split()
    assert ("2026-01-01", labels) == (day, found)


def test_a_key_has_one_lane_however_it_is_spelled() -> None:
    """Equal decimals, as they were added and as they came back."""
    events = [Event(Decimal(text), at("10:00"), "read") for text in ("1.5", "1.50")]
    assert 1 == sum("Decimal" in line for line in Timeline(events, [], {}).as_text())
