"""Specs under which a session may give several rows: spellings, columns, and what is refused."""

from datetime import timedelta
from typing import Any

import pytest

from sessionkit import EventTimeGap, Every, SessionRules, SessionSpec, SpecError
from tests.support.options import grouped
from tests.support.session_specs import Reading, collecting, in_order

GAP = EventTimeGap("10 seconds")
OWN = ["session_id", "session_start", "session_end"]
REVISION = ["revision", "is_final", "supersedes"]


def names_of(spec: SessionSpec[Any, Any, Any]) -> list[str]:
    return [field.name for field in spec.own_fields]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("every 100 events", Every(events=100)),
        ("every 1 event", Every(events=1)),
        ("every 5 minutes", Every("5 minutes")),
        ("every 1h30m", Every(timedelta(minutes=90))),
        ("every 5 minutes of event time", Every("5 minutes")),
        ("every 5 minutes of processing time", Every("5m", clock="processing_time")),
    ],
)
def test_how_often_has_a_text(text: str, value: Every) -> None:
    """A text is the same as the value, and the value says a text that is the same."""
    assert collecting(GAP, emit=text).early == value == collecting(GAP, emit=str(value)).early


@pytest.mark.parametrize(
    "emit", ["always", "every", "every now and then", "every -1 events", "every 0 events", 5, None]
)
def test_another_way_is_refused(emit: object) -> None:
    """The message ends with what to write."""
    with pytest.raises(SpecError, match="Hint: "):
        collecting(GAP, emit=emit)


@pytest.mark.parametrize(
    "arguments", [{}, {"duration": "1m", "events": 2}, {"events": 2, "clock": "processing_time"}]
)
def test_a_value_measures_one_thing(arguments: dict[str, Any]) -> None:
    """It has a duration, on a clock, or a number of events."""
    with pytest.raises(SpecError, match="Hint: "):
        Every(**arguments)


@pytest.mark.parametrize(
    ("timeout", "options", "columns"),
    [
        (GAP, {}, OWN),
        (GAP, {"emit": "on_close"}, OWN),
        (GAP, {"emit": "on_update"}, [*OWN, *REVISION]),
        (GAP, {"allowed": "1 hour"}, [*OWN, *REVISION]),
        (GAP, {"reopen_within": "1 hour"}, [*OWN, *REVISION]),
        (SessionRules("10s"), {"emit": "on_update"}, [*OWN, "closed_by", *REVISION]),
    ],
)
def test_columns_come_with_the_options(
    timeout: EventTimeGap | SessionRules, options: dict[str, Any], columns: list[str]
) -> None:
    """A spec that uses none of them has the columns that it always had."""
    assert columns == names_of(collecting(timeout, **options))


@pytest.mark.parametrize(
    ("options", "clock"),
    [
        ({"emit": "every 1 minute"}, "event_time"),
        ({"emit": "every 1 minute of processing time"}, "processing_time"),
        ({"emit": "on_update"}, "event_time"),
    ],
)
def test_the_clock_of_the_query(options: dict[str, Any], clock: str) -> None:
    """Only rows in processing time need that clock."""
    assert clock == collecting(GAP, **options).clock


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"allowed": "1h", "reopen_within": "1h"}, "both given"),
        ({"allowed": "0 seconds"}, "`allowed`"),
        ({"reopen_within": "-1 second"}, "`reopen_within`"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], found: str) -> None:
    """The message names the argument, and what to change."""
    with pytest.raises(SpecError, match="Hint: ") as refused:
        collecting(GAP, **options)
    assert found in str(refused.value)


@pytest.mark.parametrize("name", ["allowed", "reopen_within"])
def test_late_events_cannot_come_in_order(name: str) -> None:
    """In time order, an event that comes after its turn can't be put in."""
    with pytest.raises(SpecError, match=f"`{name}` has no effect"):
        in_order(GAP, **{name: "1 hour"})


@pytest.mark.parametrize("options", [{"emit": "on_update"}, {"allowed": "1 hour"}])
def test_each_event_once_is_not_several_times(options: dict[str, Any]) -> None:
    """A row for each event comes when its session is over."""
    with pytest.raises(SpecError, match="gives each event once"):
        collecting(GAP, with_events=True, **options)
    with pytest.raises(SpecError, match="gives each event once"):
        SessionSpec.per_event(
            Reading,
            **grouped(
                keys={"key": str}, event_time="at", gap="10s", watermark_delay="0s", **options
            ),
        )
