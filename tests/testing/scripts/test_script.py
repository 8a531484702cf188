"""Scripts that hold, the steps one by one, and the picture that a failing script shows."""

from decimal import Decimal
from typing import Any

import attrs
import pytest

from examples.visits import View, Visit, VisitRow, visits
from sessionkit import ExpectationError, ScriptError, Session, UserFunctionError
from sessionkit.testing import (
    SessionDriver,
    Step,
    add,
    add_row,
    add_table,
    advance_processing_time,
    advance_watermark_to,
    at,
    expect_counts,
    expect_nothing,
    expect_open,
    expect_rejected,
    expect_results,
    expect_sessions,
    hours,
    minutes,
    restart,
    run_batch,
    run_script,
    run_until_idle,
)
from sessionkit.testing.pictures.timeline import Event, Fate, Span, Timeline
from tests.support.options import evolved

PAGE = View(url="/", seconds=1.0)
ROW = VisitRow(1, 1.0)
ANN = ("ann", at("10:00"), at("10:30"), ROW)
BOB = ("bob", at("10:05"), at("10:35"), ROW)


def broken(state: Visit, event: View) -> Visit:
    """Fail for every page view but the first."""
    msg = "no such page"
    raise LookupError(msg)


def failed_output(session: Session, state: Visit) -> VisitRow:
    msg = "no end"
    raise LookupError(msg)


def text_of(*steps: Step, **options: Any) -> str:
    """Return the text with which a script fails."""
    with pytest.raises(ExpectationError) as failure:
        run_script(visits, steps, **options)
    return str(failure.value)


# -- scripts that hold -------------------------------------------------------------------------


def test_a_script_of_every_kind_of_step_holds() -> None:
    """Events, batches, clocks, a failed sink and a restart, each followed by what is expected."""
    driver = run_script(
        visits,
        [
            add("ann", at("10:00"), PAGE),
            add_row({"user_id": "ann", "ts": at("10:20"), "url": "/b", "seconds": 2.0}),
            add_table("user_id | ts | url | seconds\nbob | 10:05 | / | null"),
            run_batch(sink_fails=True),
            expect_nothing(),
            run_batch(),
            expect_open(("ann", at("10:00"), at("10:50"), Visit(2, 3.0))),
            expect_rejected("quarantined", ("bob", at("10:05"))),
            advance_watermark_to(at("11:00")),
            advance_processing_time(hours(1)),
            restart(),
            run_batch(),
            expect_nothing(),
            add("ann", at("10:25"), PAGE),
            run_until_idle(),
            expect_sessions(("ann", at("10:00"), at("10:50"), VisitRow(2, 3.0))),
            expect_rejected("late", ("ann", at("10:25"))),
            expect_open(),
            expect_counts(processed=2, late=1, quarantined=1, sessions=1, failed=0),
        ],
        processing_time=at("12:00"),
    )
    assert isinstance(driver, SessionDriver)
    assert at("11:00") == driver.watermark


def test_results_are_expected_in_order_of_key_and_start() -> None:
    """Whatever the order of batches in which the sessions closed."""
    run_script(
        visits,
        [
            add("bob", at("09:00"), View("/", 1.0)),
            run_batch(),
            advance_watermark_to(at("09:30")),
            add("ann", at("11:00"), View("/", 3.0)),
            add("ann", at("10:00"), View("/", 2.0)),
            run_batch(),
            advance_watermark_to(at("12:00")),
            run_batch(),
            expect_results(VisitRow(1, 2.0), VisitRow(1, 3.0), VisitRow(1, 1.0)),
        ],
    )


def test_what_was_expected_is_gone() -> None:
    """Every look takes what it saw; the next one sees only what came since."""
    run_script(
        visits,
        [
            add("ann", at("10:00"), PAGE),
            add("bob", at("10:05"), PAGE),
            run_batch(),
            advance_watermark_to(at("10:30")),
            run_batch(),
            expect_sessions(ANN),
            expect_sessions(),
            advance_watermark_to(at("10:35")),
            run_batch(),
            expect_sessions(BOB),
            expect_nothing(),
        ],
    )


def test_output_from_before_a_restart_can_be_expected_after_it() -> None:
    """A restart loses no output: the sink had it."""
    run_script(
        visits,
        [
            add("ann", at("10:00"), PAGE),
            run_batch(),
            advance_watermark_to(at("11:00")),
            run_batch(),
            restart(),
            expect_sessions(ANN),
            expect_counts(processed=1, sessions=1),
        ],
    )


def test_run_until_idle_runs_the_batches_without_data_too() -> None:
    """The second one sees the watermark that the events of the first one have moved."""
    text = text_of(
        add("ann", at("10:00"), PAGE),
        add("bob", at("12:00"), PAGE),
        run_until_idle(),
        expect_sessions(),
    )
    assert "# batch 0: events=2, processed=2; batch 1 at 11:50: sessions=1, rows=1\n" in text


def test_what_is_late_by_years_is_to_be_expected_too() -> None:
    """No event of a script is lost in silence."""
    run_script(
        visits,
        [
            advance_watermark_to(at("11:00")),
            add("ann", at("11:00"), PAGE),
            run_batch(),
            add("ann", at("2020-02-29 10:30"), PAGE),
            run_batch(),
            expect_rejected("late", ("ann", at("2020-02-29 10:30"))),
            expect_counts(late=1, processed=1),
        ],
    )


def test_rejections_are_expected_in_any_order() -> None:
    """Spark gives them none; a null key or time is None."""
    run_script(
        visits,
        [
            add("bob", None, PAGE),
            add(None, at("10:00"), PAGE),
            add("ann", None, PAGE),
            run_batch(),
            expect_rejected("quarantined", ("ann", None), ("bob", None), (None, at("10:00"))),
        ],
    )


def test_failed_events_and_unfinished_sessions_are_rejections() -> None:
    """A session whose `finish` failed has a key and no event time."""
    first = evolved(visits, create=lambda key, event: Visit(1, event.seconds))
    run_script(
        evolved(first, update=broken, finish=failed_output, on_error="reject"),
        [
            add("ann", at("10:00"), PAGE),
            add("ann", at("10:01"), PAGE),
            run_batch(),
            expect_rejected("failed", ("ann", at("10:01"))),
            advance_watermark_to(at("11:00")),
            run_batch(),
            expect_rejected("failed_output", ("ann", None)),
        ],
    )


def test_a_key_of_several_columns_is_a_plain_tuple() -> None:
    """As it is written in `add`."""
    spec = attrs.evolve(visits, keys={"shop": int, "user_id": str})
    run_script(
        spec,
        [
            add((9, "ann"), at("10:00"), PAGE),
            add((10, "ann"), at("10:00"), PAGE),
            run_batch(),
            expect_open(
                ((9, "ann"), at("10:00"), at("10:30"), Visit(1, 1.0)),
                ((10, "ann"), at("10:00"), at("10:30"), Visit(1, 1.0)),
            ),
        ],
    )


def test_an_empty_script_holds() -> None:
    """Nothing happens, nothing is left."""
    assert None is run_script(visits, []).watermark


# -- steps are values --------------------------------------------------------------------------


def test_steps_are_values_that_several_scripts_can_share() -> None:
    """Equal steps are equal, and playing a step does not use it up."""
    opening = [add("ann", at("10:00"), PAGE), run_batch()]
    assert opening == [add("ann", at("10:00"), View("/", 1.0)), run_batch()]
    assert run_batch() != run_batch(sink_fails=True)
    for _ in range(2):
        run_script(visits, [*opening, expect_counts(processed=1)])


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (add("ann", at("10:00"), PAGE), "add('ann', at(\"10:00\"), View(url='/', seconds=1.0))"),
        (add(("a", 1), None, 3, offset=4), "add(('a', 1), None, 3, offset=4)"),
        (run_batch(sink_fails=True), "run_batch(sink_fails=True)"),
        (advance_processing_time(minutes(5)), "advance_processing_time(minutes(5))"),
        (expect_counts(late=2), "expect_counts(late=2)"),
        (expect_rejected("late", ("ann", None)), "expect_rejected('late', ('ann', None))"),
    ],
)
def test_a_step_reads_as_it_is_written(step: Step, text: str) -> None:
    """With the builders for instants and durations."""
    assert text == str(step)


def test_a_step_with_wrong_arguments_fails_where_it_is_written() -> None:
    """Not later, when the script is played."""
    with pytest.raises(TypeError, match="missing a required argument: 'time_or_event'"):
        add("ann")  # type: ignore[call-arg]


def test_what_is_no_step_is_refused() -> None:
    """A function that was not called, say; nothing is played."""
    with pytest.raises(ScriptError, match="step 2 of the script must be a step") as refused:
        run_script(visits, [run_batch(), restart])  # type: ignore[list-item]
    assert "\n\nHint: " in str(refused.value)


def test_a_watermark_that_would_go_back_is_said_to_stay() -> None:
    """The step holds, as in Spark, with a warning; a script that fails later says so too."""
    steps = [add("ann", at("10:00"), PAGE), run_batch(), advance_watermark_to(at("09:00"))]
    with (
        pytest.warns(UserWarning, match="can't go back to 09:00: it stays at 09:50"),
        pytest.raises(ExpectationError) as failure,
    ):
        run_script(visits, [*steps, expect_open()])
    assert "ignored: the watermark stays at 09:50" in str(failure.value)


# -- steps that are impossible -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (advance_processing_time(minutes(1)), "the driver has no processing time"),
        (add(7, at("10:00"), PAGE), "`user_id` must be a str"),
        (add_row({"user": "ann"}), "reads no column `user`"),
        (add_table("user_id | ts\nann | noon"), "line 2, column `ts`: 'noon' isn't an instant"),
        (expect_counts(lates=1), "there is no count `lates`"),
        (expect_counts(), "no count is named"),
        (expect_rejected("early"), "'early' isn't a kind of rejection"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_step_shows_the_script(step: Step, said: str) -> None:
    """It isn't a failed expectation but a `ScriptError`, with a hint and the same picture."""
    with pytest.raises(ScriptError) as refused:
        run_script(visits, [add("ann", at("10:00"), PAGE), run_batch(), step, run_batch()])
    text = str(refused.value)
    assert text.startswith("step 3 is impossible: ")
    assert said in text
    assert "\n\nHint: " in text
    assert "\n--> 3  " in text
    assert "\n    4  run_batch()\n" in text
    assert "watermark  <" in text


def test_a_function_that_fails_shows_the_script_in_a_note() -> None:
    """The error itself is that of Spark's run, word for word."""
    spec = evolved(visits, update=broken)
    steps = [add("ann", at("10:00"), PAGE), add("ann", at("10:01"), PAGE), run_batch()]
    with pytest.raises(UserFunctionError, match="no such page") as failure:
        run_script(spec, steps)
    (note,) = failure.value.__notes__
    assert "\n--> 3  run_batch()\n" in note


# -- the picture -------------------------------------------------------------------------------


def test_the_whole_message_of_a_script_that_fails() -> None:
    """What is wrong, expected next to got, the script with an arrow, the run to scale, a hint."""
    text = text_of(
        add("ann", at("10:00"), PAGE),
        add("bob", at("10:05"), PAGE),
        run_batch(),
        advance_watermark_to(at("10:35")),
        add("bob", at("10:01"), PAGE),
        run_batch(),
        expect_sessions(ANN, ("bob", at("10:05"), at("10:35"), VisitRow(2, 1.0))),
        expect_rejected("late", ("bob", at("10:01"))),
    )
    assert MESSAGE == text


MESSAGE = """\
step 7 does not hold: the closed sessions are not as expected

    expected                                                            got
    ('ann', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0))   \
('ann', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0))
  ! ('bob', at("10:05"), at("10:35"), VisitRow(pages=2, reading=1.0))   \
('bob', at("10:05"), at("10:35"), VisitRow(pages=1, reading=1.0))

    1  add('ann', at("10:00"), View(url='/', seconds=1.0))
    2  add('bob', at("10:05"), View(url='/', seconds=1.0))
    3  run_batch()  # batch 0: events=2, processed=2
    4  advance_watermark_to(at("10:35"))
    5  add('bob', at("10:01"), View(url='/', seconds=1.0))
    6  run_batch()  # batch 1 at 10:35: events=1, late=1, sessions=2, rows=2
--> 7  expect_sessions(('ann', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0)), \
('bob', a...)
    8  expect_rejected('late', ('bob', at("10:01")))

2026-01-01  10:00   10:05    10:10   10:15    10:20   10:25    10:30   10:35
            |-------|--------|-------|--------|-------|--------|-------|
'ann'       o
            [==================================================)          closed 10:00 to 10:30
'bob'         x     o
                    [==================================================)  closed 10:05 to 10:35
watermark                                                              ^  10:35
o event (2..9, + several)  . waiting  x rejected  [==) closed  [--) open  ^ clock  < > outside

Hint: if what came is right: expect_sessions(\
('ann', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0)), \
('bob', at("10:05"), at("10:35"), VisitRow(pages=1, reading=1.0)))"""


# -- the timeline ------------------------------------------------------------------------------


def test_a_timeline_of_nothing_is_nothing() -> None:
    """A script that fails before its first event shows no axis."""
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
