"""The picture of a run in text, to scale."""

from decimal import Decimal

import pytest

from sessionkit.testing import at
from sessionkit.testing.timeline import Event, Fate, Timeline, session_bar


def test_a_timeline_tells_what_became_of_events() -> None:
    """Several events in a column are a number, above nine a plus; one that waits is a point."""
    fates: list[tuple[str, Fate, int]] = [
        ("10:00", "read", 9),
        ("10:10", "read", 10),
        ("10:20", "rejected", 2),
        ("10:59", "waiting", 2),
    ]
    events = [Event("ann", at(text), fate) for text, fate, number in fates for _ in range(number)]
    signs = "9         +         x                                      ."
    assert signs in Timeline(events, [], {}).as_text()[2]


def test_a_timeline_shows_what_lies_outside_at_its_edge() -> None:
    """An event years away and a watermark moved far on do not squeeze the rest."""
    events = [
        Event("ann", at("10:00"), "read"),
        Event("ann", at("2031-01-01 00:00"), "rejected"),
        Event("bob", at("2021-01-01 00:00"), "other"),
    ]
    spans = [session_bar("ann", at("10:00"), at("10:30"), is_open=False)]
    drawn = Timeline(events, spans, {"watermark": [at("09:00"), at("23:00")]}).as_text()
    assert "2026-01-01  10:00     10:05" in drawn[0]
    assert drawn[2].endswith("   >")
    assert drawn[4].startswith("'bob'      <")
    assert ("<", "> 23:00") == (drawn[5][11], drawn[5][-7:])


def test_a_timeline_of_one_instant_has_a_scale_all_the_same() -> None:
    """A minute of it."""
    labels, *_ = Timeline([Event("ann", at("10:00"), "read")], [], {}).as_text()
    assert labels.startswith("2026-01-01  10:00")


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
