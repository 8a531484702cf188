"""What few specs say, in groups: late events, the rows given, the events taken, and storage."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import (
    EventTimeGap,
    Every,
    Inputs,
    Lateness,
    Results,
    SessionRules,
    SessionSpec,
    Storage,
)
from tests.support.refusals import refusal, says
from tests.support.session_specs import Reading, collecting, in_order

GAP = EventTimeGap("10 seconds")
OWN = ["session_id", "session_start", "session_end", "last_event_time"]
REVISION = ["revision", "is_final", "supersedes"]
ON_UPDATE = Results(emit="on_update")
EVENTS_AND_UPDATES = Results(emit="on_update", with_events=True)


@pytest.mark.parametrize(
    ("group", "name", "value", "found"),
    [
        (Lateness, "allowed", "0 seconds", "0"),
        (Lateness, "reopen_within", "-1 second", "-1"),
        (Lateness, "judged_by", "never", "'event', 'session', found 'never'"),
        (Lateness, "late_events", "own", "'reject', 'process', found 'own'"),
        *((Results, "emit", emit, "") for emit in ("always", "every", "every now and then")),
        *((Results, "emit", emit, "") for emit in ("every -1 events", 5, None)),
        (Results, "with_events", "yes", "'yes'"),
        (Results, "carries_watermark", "yes", "'yes'"),
        (Inputs, "nulls", None, "'reject', 'refuse', found None"),
        (Inputs, "max_future_skew", "soon", "'soon'"),
        (Inputs, "max_future_skew", "-1 minute", "-1"),
        (Inputs, "max_future_skew", 600, "600 (int)"),
        (Inputs, "max_jump", "1 month", "1 month"),
        (Inputs, "max_buffered_per_key", 0, "from 1, found 0"),
        (Inputs, "max_buffered_per_key", -1, "from 1, found -1"),
        (Inputs, "drop_duplicates_for", "-1 second", "-1"),
        (Inputs, "passthrough", "offset", "found 'offset'"),
        (Storage, "layout", "rows", "'buckets', 'pages', found 'rows'"),
        (Storage, "bucket_count", 0, "from 1, found 0"),
        (Storage, "bucket_count", True, "from 1, found True"),
        (Storage, "bucket_count", 64.0, "from 1, found 64.0"),
        (Storage, "bucket_count", 65_537, "65,536, found 65,537"),
        (Storage, "version", 0, "from 1, found 0"),
        (Storage, "version", "2", "from 1, found '2'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(group: Any, name: str, value: Any, found: str) -> None:
    """Under the name of its argument, with what was found."""
    assert says(refusal(group, **{name: value}), f"`{name}", found)


def test_the_largest_and_smallest_values_are_accepted() -> None:
    """A limit that a refusal names is itself allowed; a duration is read once, and may be zero."""
    assert 65_536 == Storage(bucket_count=65_536).buckets
    assert 1 == Inputs(max_buffered_per_key=1).max_buffered_per_key
    assert timedelta(0) == Inputs(drop_duplicates_for="0 seconds").drop_duplicates_for
    assert timedelta(hours=1) == Inputs(max_future_skew="1h").max_future_skew


def test_a_column_that_passes_through_may_be_null() -> None:
    """It's shown as it came; floats are allowed, and what can't be stored isn't."""
    columns = {"offset": int, "payload": bytes, "score": float, "note": str | None}
    spec = collecting(GAP, inputs=Inputs(passthrough=columns))
    assert all(field.type.coerce(None, "passthrough") is None for field in spec.passthrough_fields)
    assert [*columns] == [field.name for field in spec.passthrough_fields]
    assert says(
        refusal(collecting, GAP, inputs=Inputs(passthrough={"user": object})), "`passthrough.user`"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("every 100 events", Every(events=100)),
        ("every 1 event", Every(events=1)),
        ("every 1h30m", Every(timedelta(minutes=90))),
        ("every 5 minutes of event time", Every("5 minutes")),
        ("every 5 minutes of processing time", Every("5m", clock="processing_time")),
    ],
)
def test_how_often_has_a_text(text: str, value: Every) -> None:
    """A text is the same as the value, and the value says a text that is the same."""
    read, back = (collecting(GAP, results=Results(emit=emit)).early for emit in (text, str(value)))
    assert read == value == back


@pytest.mark.parametrize(
    "arguments", [{}, {"duration": "1m", "events": 2}, {"events": 2, "clock": "processing_time"}]
)
def test_a_value_measures_one_thing(arguments: dict[str, Any]) -> None:
    """It has a duration, on a clock, or a number of events."""
    assert refusal(Every, **arguments)


@pytest.mark.parametrize(
    ("timeout", "options", "columns"),
    [
        (GAP, {}, OWN),
        (GAP, {"results": Results(emit="on_close")}, OWN),
        (GAP, {"lateness": Lateness(allowed="1 hour")}, [*OWN, *REVISION]),
        (GAP, {"lateness": Lateness(reopen_within="1 hour")}, [*OWN, *REVISION]),
        (SessionRules("10s"), {"results": ON_UPDATE}, [*OWN, "closed_by", *REVISION]),
    ],
)
def test_columns_come_with_the_options(
    timeout: EventTimeGap | SessionRules, options: dict[str, Any], columns: list[str]
) -> None:
    """A spec that uses none of them has the columns that it always had."""
    assert columns == [field.name for field in collecting(timeout, **options).own_fields]


@pytest.mark.parametrize(
    ("results", "clock"),
    [
        (Results(emit="every 1 minute"), "event_time"),
        (Results(emit="every 1 minute of processing time"), "processing_time"),
        (ON_UPDATE, "event_time"),
    ],
)
def test_the_clock_of_the_query(results: Results, clock: str) -> None:
    """Only rows in processing time need that clock."""
    assert clock == collecting(GAP, results=results).clock


PER_EVENT = SessionSpec.per_event(
    Reading, keys={"key": str}, event_time="at", gap="10s", watermark_delay="0s"
)
EACH_EVENT = collecting(GAP, results=Results(with_events=True))
IN_ORDER = in_order(GAP)


@pytest.mark.parametrize(
    ("spec", "options", "fact"),
    [
        (IN_ORDER, {"lateness": Lateness(allowed="1 hour")}, "`allowed` has no effect"),
        (IN_ORDER, {"lateness": Lateness(reopen_within="1h")}, "`reopen_within` has no effect"),
        (EACH_EVENT, {"lateness": Lateness(allowed="1 hour")}, "gives each event once"),
        (EACH_EVENT, {"results": EVENTS_AND_UPDATES}, "gives each event once"),
        (PER_EVENT, {"lateness": Lateness(allowed="1 hour")}, "gives each event once"),
        (PER_EVENT, {"results": ON_UPDATE}, "gives each event once"),
        (PER_EVENT, {"results": Results(with_events=True)}, "gives each event already"),
        (PER_EVENT, {"order": "event_time"}, "has no effect on a spec of events"),
    ],
)
def test_what_does_not_go_together_is_refused(spec: Any, options: Any, fact: str) -> None:
    """In time order no late event can be put in; a row for each event comes at the close."""
    assert says(refusal(attrs.evolve, spec, **options), fact)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"results": Results(carries_watermark=True, emit="on_update")}, "`emit`"),
        ({"results": Results(carries_watermark=True, with_events=True)}, "`with_events`"),
        ({"lateness": Lateness(allowed="1 hour")}, "`Lateness(allowed=...)`"),
        ({"lateness": Lateness(reopen_within="1 hour")}, "`reopen_within`"),
        ({"timeout": SessionRules("10s")}, "`timeout=SessionRules(...)`"),
        ({"storage": Storage(layout="pages")}, '`layout="pages"`'),
    ],
)
def test_what_gives_other_rows_than_final_ones_in_time_is_not_chained(
    options: dict[str, Any], name: str
) -> None:
    """Operators that follow would drop them as late."""
    chained = collecting(GAP, results=Results(carries_watermark=True))
    assert says(
        refusal(attrs.evolve, chained, **options), f"{name} doesn't go with `carries_watermark`"
    )


def test_late_events_go_on_or_are_allowed() -> None:
    """Not both: the one reopens sessions too."""
    text = refusal(Lateness, allowed="1h", reopen_within="1h")
    assert says(text, "`Lateness(allowed=...)`", "`reopen_within`")
