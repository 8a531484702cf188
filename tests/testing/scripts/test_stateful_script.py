"""Scripts on a `StatefulSpec`: what holds, what is rejected, and the picture with its timers."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from examples.devices.spec import Alert, Reading, Sensor, sensors
from examples.visits import visits
from sessionkit import ExpectationError, KeyState, KeyTimes, ScriptError
from sessionkit.testing import (
    StatefulDriver,
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
    expect_rows,
    expect_sessions,
    expect_stored,
    minutes,
    restart,
    run_batch,
    run_script,
    run_until_idle,
)
from tests.support.stateful_specs import Added, Amount, Sum, report, summing

SENSORS = sensors(silence=minutes(5))
COLD = Reading(4.0)
SILENT = Alert("silent", at("10:00"), 4.0)
HEARD = Sensor(at("10:00"), 4.0)
LOST = Sensor(at("10:00"), 4.0, is_silent=True)


def alarm(key: Any, events: list[Amount], state: KeyState[Sum], times: KeyTimes) -> Added | None:
    """Add the numbers; a 1 sets a timer an hour after ten, a 2 deletes it, a 9 fails."""
    for event in events:
        if event.number == 9:
            raise LookupError
        if event.number == 2:
            times.delete_timer("alarm")
        else:
            times.set_event_timer("alarm", at("11:00"))
        state.set(Sum(state.get(Sum()).total + event.number))
    return Added("process", state.get().total)


def failing(key: Any, name: str, state: KeyState[Sum], times: KeyTimes) -> Added:
    raise LookupError


ALARMS = summing(alarm, report, on_error="reject")
SET = [add("ann", at("10:00"), Amount(1)), run_batch(), expect_results(Added("process", 1))]
GONE_OFF = [*SET, advance_watermark_to(at("11:01")), run_batch()]
LATE = [
    *GONE_OFF,
    expect_results(Added("alarm", 1)),
    add("ann", at("11:00"), Amount()),
    run_batch(),
]


def check_rejected(
    steps: Sequence[Step], *said: str, spec: Any = ALARMS, at_the_end: bool = False
) -> None:
    """Check that a script fails at its last step, or at its end, with each of these in the text."""
    with pytest.raises(ExpectationError) as failure:
        run_script(spec, steps)
    text = str(failure.value)
    assert text.startswith(f"step {len(steps) + at_the_end} does not hold: ")
    for fragment in (*said, "\n\nHint: "):
        assert fragment in text


# -- scripts that hold -------------------------------------------------------------------------


def test_a_script_with_timers_in_processing_time_holds() -> None:
    """Events, batches, both clocks, a failed sink and a restart, each with what is expected."""
    driver = run_script(
        SENSORS,
        [
            add("cellar", at("09:59"), COLD),
            add_row({"sensor": None, "read_at": at("09:59"), "celsius": 1.0}),
            add_table("sensor | read_at | celsius\nattic | 09:58 | 21.5"),
            run_batch(sink_fails=True),
            expect_nothing(),
            run_batch(),
            expect_nothing_but_nulls(),
            expect_stored(
                ("attic", Sensor(at("10:00"), 21.5), {"silence": at("10:05")}),
                ("cellar", HEARD, {"silence": at("10:05")}),
            ),
            advance_processing_time(minutes(5)),
            run_batch(),
            expect_nothing(),
            advance_processing_time(minutes(1)),
            restart(),
            run_batch(),
            expect_nothing(),
            add("attic", at("10:06"), Reading(21.0)),
            run_until_idle(),
            expect_rows(("cellar", SILENT)),
            expect_stored(
                ("attic", Sensor(at("10:06"), 21.0), {"silence": at("10:11")}),
                ("cellar", LOST),
            ),
            expect_counts(processed=3, quarantined=1, timers=1, rows=1),
        ],
        processing_time=at("10:00"),
    )
    assert isinstance(driver, StatefulDriver)
    assert SENSORS is driver.spec


def expect_nothing_but_nulls() -> Step:
    return expect_rejected("quarantined", (None, at("09:59")))


def test_results_and_rows_come_in_the_order_of_their_keys() -> None:
    """Whatever the order of the batches; a key of several columns is a plain tuple."""
    spec = summing(keys={"shop": int, "key": str})
    adding = [
        step
        for key in ((10, "ann"), (9, "ann"))
        for step in (add(key, at("10:00"), Amount(key[0])), run_batch())
    ]
    nine, ten = Added("process", 9), Added("process", 10)
    run_script(spec, [*adding, expect_results(nine, ten), expect_results()])
    run_script(spec, [*adding, expect_rows(((9, "ann"), nine), ((10, "ann"), ten)), expect_rows()])


def test_rows_can_be_expected_of_sessions_too() -> None:
    """Key and result say enough in many tests."""
    with pytest.raises(ExpectationError, match="the rows are not as expected"):
        run_script(visits, [expect_rows(("ann", 1))])


def test_without_an_event_time_no_step_needs_one() -> None:
    """Neither an event nor a rejection has one."""
    spec = summing(event_time=None, watermark_delay=None)
    run_script(
        spec,
        [
            add("ann", Amount(3)),
            add_table("key | number\nann | 4"),
            add_row({"key": None, "number": 1}),
            run_batch(),
            expect_rows(("ann", Added("process", 7))),
            expect_rejected("quarantined", (None, None)),
            expect_stored(("ann", Sum(7))),
        ],
    )


def test_what_failed_is_to_be_expected() -> None:
    """Events of a call, and timers, which have a key and no event time."""
    run_script(
        summing(alarm, failing, on_error="reject"),
        [
            *SET,
            add("ann", at("10:01"), Amount(9)),
            run_batch(),
            expect_rejected("failed", ("ann", at("10:01"))),
            advance_watermark_to(at("11:01")),
            run_batch(),
            expect_rejected("failed_output", ("ann", None)),
        ],
    )


def test_with_a_clock_in_processing_time_spark_drops_nothing() -> None:
    """An event before the watermark is late, however old."""
    spec = summing(processing_timers=True, on_timer=report)
    run_script(
        spec,
        [
            advance_watermark_to(at("12:00")),
            run_batch(),
            add("ann", at("12:00") + minutes(1), Amount()),
            run_batch(),
            expect_rows(("ann", Added("process", 1))),
            add("ann", at("02:00"), Amount()),
            run_batch(),
            expect_rejected("late", ("ann", at("02:00"))),
        ],
        processing_time=at("12:00"),
    )


# -- steps that are impossible -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "step", "name", "hint"),
    [
        (ALARMS, expect_sessions(), "expect_sessions", "expect_rows"),
        (ALARMS, expect_open(), "expect_open", "expect_stored"),
        (visits, expect_stored(), "expect_stored", "expect_open"),
    ],
)
def test_a_step_for_the_other_kind_of_spec_is_refused(
    spec: Any, step: Step, name: str, hint: str
) -> None:
    """The hint is the step for this kind."""
    with pytest.raises(ScriptError) as refused:
        run_script(spec, [step])
    text = str(refused.value)
    assert f"`{name}` isn't for the spec of this script, a {type(spec).__name__}" in text
    assert f"Hint: write {hint}(...)" in text


def test_a_spec_with_a_clock_in_processing_time_needs_one() -> None:
    """As for its driver."""
    with pytest.raises(ScriptError, match="the driver was given none"):
        run_script(SENSORS, [])


# -- what is rejected --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (expect_results(Added("alarm", 2)), "the results are not as expected"),
        (expect_rows(("bob", Added("alarm", 1))), "the rows are not as expected"),
        (expect_rows(), "! (nothing)   ('ann', Added(what='alarm', total=1))"),
        (expect_stored(), "! (nothing)   ('ann', Sum(total=1))"),
        (expect_stored(("ann", Sum(2))), "the stored keys are not as expected"),
        (expect_stored(("ann", Sum(1), {"alarm": at("11:00")})), "{'alarm': at(\"11:00\")})"),
        (expect_counts(timers=2), "! timers=2   timers=1"),
        (expect_nothing(), "(nothing)   row: ('ann', Added(what='alarm', total=1))"),
    ],
)
def test_a_wrong_expectation_is_rejected(step: Step, said: str) -> None:
    """Another row, another state, a timer that is not set, another count."""
    check_rejected([*GONE_OFF, step], said)


@pytest.mark.parametrize(
    "wrong",
    [
        ("ann", Sum(1)),
        ("ann", Sum(1), {"alarm": at("11:01")}),
        ("ann", Sum(1), {"clock": at("11:00")}),
    ],
)
def test_a_wrong_timer_is_rejected(wrong: Any) -> None:
    """None, another time, another name; the hint is the step that would have held."""
    hint = "Hint: if what came is right: expect_stored(('ann', Sum(total=1), {'alarm': at("
    check_rejected([*SET, expect_stored(wrong)], hint)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (GONE_OFF, "Hint: if that is right: expect_rows(('ann', Added(what='alarm', total=1)))"),
        (LATE, "Hint: if that is right: expect_rejected('late', ('ann', at(\"11:00\")))"),
        ([*SET, add("ann", at("10:00"), Amount())], "waiting for a batch: ('ann', at("),
    ],
)
def test_what_no_step_expected_is_rejected_at_the_end(steps: list[Step], said: str) -> None:
    """Rows, rejections, and events that no batch has read."""
    check_rejected(steps, said, "the script ends, and something is left", at_the_end=True)


def test_the_hint_can_be_pasted_into_the_script() -> None:
    """Rows stand in the order in which they are expected, instants in states as `at`."""
    steps = [
        add("cellar", at("09:59"), COLD),
        run_batch(),
        add("attic", at("09:59"), COLD),
        run_batch(),
        advance_processing_time(minutes(6)),
        run_batch(),
    ]
    with pytest.raises(ExpectationError) as failure:
        run_script(SENSORS, steps, processing_time=at("10:00"))

    alert = "Alert(status='silent', heard=at(\"10:00\"), celsius=4.0)"
    hint = f"expect_rows(('attic', {alert}), ('cellar', {alert}))"
    assert str(failure.value).endswith(f"Hint: if that is right: {hint}")


# -- the picture -------------------------------------------------------------------------------


def test_the_whole_message_of_a_script_that_fails() -> None:
    """Events, timers that are set and that have gone off, and the watermark, a lane a key."""
    with pytest.raises(ExpectationError) as failure:
        run_script(
            ALARMS,
            [
                add("ann", at("10:00"), Amount(1)),
                add("bob", at("10:30"), Amount(5)),
                run_batch(),
                expect_results(Added("process", 1), Added("process", 5)),
                add("bob", at("10:35"), Amount(2)),
                run_batch(),
                expect_results(Added("process", 7)),
                advance_watermark_to(at("11:01")),
                add("cid", at("11:10"), Amount(2)),
                run_batch(),
                expect_results(Added("alarm", 1)),
            ],
        )

    assert MESSAGE == str(failure.value)


MESSAGE = """\
step 11 does not hold: the results are not as expected

    expected                       got
    Added(what='alarm', total=1)   Added(what='alarm', total=1)
  !                                Added(what='process', total=2)

     1  add('ann', at("10:00"), Amount(number=1))
     2  add('bob', at("10:30"), Amount(number=5))
     3  run_batch()  # batch 0: events=2, processed=2, rows=2
     4  expect_results(Added(what='process', total=1), Added(what='process', total=5))
     5  add('bob', at("10:35"), Amount(number=2))
     6  run_batch()  # batch 1 at 10:20: events=1, processed=1, rows=1
     7  expect_results(Added(what='process', total=7))
     8  advance_watermark_to(at("11:01"))
     9  add('cid', at("11:10"), Amount(number=2))
    10  run_batch()  # batch 2 at 11:01: events=1, processed=1, timers=1, rows=2
--> 11  expect_results(Added(what='alarm', total=1))

2026-01-01  10:00   10:10    10:20   10:30    10:40   10:50    11:00   11:10
            |-------|--------|-------|--------|-------|--------|-------|
'ann'       o
                                                               !          alarm went off 11:00
'bob'                                o    o
'cid'                                                                  o
watermark                    ^                                 ^          11:01
o event (2..9, + several)  . waiting  x rejected  T timer set  ! went off  ^ clock  < > outside

Hint: if what came is right: expect_results(Added(what='alarm', total=1), \
Added(what='process', total=2))"""


def test_a_timer_that_was_deleted_is_not_drawn() -> None:
    """It neither is set nor has gone off, even where its time has come."""
    steps = [
        *SET,
        advance_watermark_to(at("11:01")),
        add("ann", at("11:02"), Amount(2)),
        run_batch(),
    ]
    with pytest.raises(ExpectationError) as failure:
        run_script(ALARMS, steps)

    assert "alarm" not in str(failure.value).partition("2026-01-01")[2]


def test_the_picture_shows_the_processing_time_where_it_is_the_clock() -> None:
    """A lane of its own, and the timers that it lets go off."""
    steps = [
        add("cellar", at("09:59"), COLD),
        run_batch(),
        advance_processing_time(minutes(6)),
        run_batch(),
    ]
    with pytest.raises(ExpectationError) as failure:
        run_script(SENSORS, steps, processing_time=at("10:00"))

    picture = str(failure.value)
    assert " silence went off 10:05\n" in picture
    assert "\nprocessing " in picture
    assert "  ! went off  ^ clock  " in picture


def test_a_function_that_fails_shows_the_script_in_a_note() -> None:
    """As for sessions."""
    spec = attrs.evolve(ALARMS, on_error="raise")
    with pytest.raises(Exception, match="LookupError") as failure:
        run_script(spec, [add("ann", at("10:00"), Amount(9)), run_batch()])

    assert "\n--> 2  run_batch()" in failure.value.__notes__[0]
