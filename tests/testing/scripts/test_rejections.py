"""Scripts that must fail: a tester that cannot fail is worse than none."""

from collections.abc import Sequence

import pytest

from examples.visits import View, Visit, VisitRow, visits
from sessionkit import ExpectationError
from sessionkit.testing import (
    Step,
    add,
    advance_watermark_to,
    at,
    expect_counts,
    expect_nothing,
    expect_open,
    expect_rejected,
    expect_results,
    expect_sessions,
    restart,
    run_batch,
    run_script,
)

PAGE = View(url="/", seconds=1.0)
ROW = VisitRow(1, 1.0)
ANN = ("ann", at("10:00"), at("10:30"), ROW)
BOB = ("bob", at("10:05"), at("10:35"), VisitRow(1, 2.0))
STATE = Visit(1, 1.0)

ONE_OPEN = [add("ann", at("10:00"), PAGE), run_batch()]
ONE_CLOSED = [*ONE_OPEN, advance_watermark_to(at("10:30")), run_batch()]
TWO_CLOSED = [
    add("ann", at("10:00"), PAGE),
    add("bob", at("10:05"), View("/", 2.0)),
    run_batch(),
    advance_watermark_to(at("10:35")),
    run_batch(),
]
ONE_LATE = [
    *ONE_CLOSED,
    expect_results(ROW),
    add("ann", at("10:01"), PAGE),
    advance_watermark_to(at("10:40")),
    run_batch(),
]


def check_rejected(steps: Sequence[Step], *said: str, at_the_end: bool = False) -> None:
    """Check that a script fails at its last step, or at its end, with each of these in the text."""
    with pytest.raises(ExpectationError) as failure:
        run_script(visits, steps)
    text = str(failure.value)
    number = len(steps) + at_the_end
    assert text.startswith(f"step {number} does not hold: ")
    assert f"\n--> {number:{len(str(number))}}  " in text
    for fragment in (*said, "\n\nHint: ", "(end of the script)" if at_the_end else ""):
        assert fragment in text


# -- what closed -------------------------------------------------------------------------------


def test_a_wrong_value_is_rejected() -> None:
    """Both values stand in one line, marked, and the hint is the step that would have held."""
    check_rejected(
        [*ONE_CLOSED, expect_results(VisitRow(1, 9.0))],
        "the results are not as expected",
        "\n  ! VisitRow(pages=1, reading=9.0)   VisitRow(pages=1, reading=1.0)\n",
        "Hint: if what came is right: expect_results(VisitRow(pages=1, reading=1.0))",
    )


def test_only_the_lines_that_differ_are_marked() -> None:
    """The second of two here."""
    check_rejected(
        [*TWO_CLOSED, expect_results(ROW, ROW)],
        "\n    VisitRow(pages=1, reading=1.0)   VisitRow(pages=1, reading=1.0)\n"
        "  ! VisitRow(pages=1, reading=1.0)   VisitRow(pages=1, reading=2.0)\n",
    )


@pytest.mark.parametrize(
    "session",
    [
        ("eve", at("10:00"), at("10:30"), ROW),
        ("ann", at("10:01"), at("10:30"), ROW),
        ("ann", at("10:00"), at("10:29:59.999"), ROW),
        ("ann", at("10:00"), at("10:30"), VisitRow(2, 1.0)),
    ],
)
def test_a_wrong_session_is_rejected(session: tuple[str, object, object, VisitRow]) -> None:
    """Another key, start, end or result is another session."""
    check_rejected(
        [*ONE_CLOSED, expect_sessions(session)],  # type: ignore[arg-type]
        "the closed sessions are not as expected",
        '(\'ann\', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0))\n',
    )


def test_a_wrong_order_is_rejected() -> None:
    """Sessions come in order of key and start, and are to be expected so."""
    check_rejected([*TWO_CLOSED, expect_sessions(BOB, ANN)], "  ! ('bob'", "  ! ('ann'")


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (expect_results(), "\n  ! (nothing)   VisitRow(pages=1, reading=1.0)\n"),
        (expect_results(ROW, ROW), "\n  ! VisitRow(pages=1, reading=1.0)\n"),
        (expect_sessions(), "\n  ! (nothing)   ('ann', "),
    ],
)
def test_a_result_too_many_or_too_few_is_rejected(step: Step, line: str) -> None:
    """Exactly those expected must have come."""
    check_rejected([*ONE_CLOSED, step], line)


@pytest.mark.parametrize("step", [expect_results(ROW), expect_sessions(ANN)])
def test_a_session_that_is_still_open_is_no_result(step: Step) -> None:
    """Nor is one expected twice."""
    check_rejected([*ONE_OPEN, step], "(nothing)\n")
    check_rejected([*ONE_CLOSED, expect_results(ROW), step], "(nothing)\n")


def test_a_result_of_a_batch_whose_sink_failed_is_rejected() -> None:
    """Nothing came out."""
    check_rejected([*ONE_CLOSED[:-1], run_batch(sink_fails=True), expect_results(ROW)], "(nothing)")


def test_a_session_that_is_due_does_not_come_after_a_restart() -> None:
    """Spark runs no batch before there is new data."""
    check_rejected(
        [*ONE_CLOSED[:-1], restart(), run_batch(), expect_results(ROW)],
        "run_batch()  # no batch: no event waits, and nothing is due",
    )


# -- what is open ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        expect_open(),
        expect_open(("ann", at("10:00"), at("10:30"), Visit(2, 1.0))),
        expect_open(("ann", at("10:00"), at("10:31"), STATE)),
        expect_open(
            ("ann", at("10:00"), at("10:30"), STATE), ("bob", at("10:00"), at("10:30"), STATE)
        ),
    ],
)
def test_wrong_open_sessions_are_rejected(step: Step) -> None:
    """Another state, another end, one too many or too few."""
    check_rejected(
        [*ONE_OPEN, step], "the open sessions are not as expected", "open 10:00 to 10:30"
    )


def test_a_closed_session_is_not_open() -> None:
    """It is a result."""
    step = expect_open(("ann", at("10:00"), at("10:30"), STATE))
    check_rejected([*ONE_CLOSED, step], "(nothing)\n", "closed 10:00 to 10:30")


# -- what was rejected -------------------------------------------------------------------------


def test_expecting_late_where_none_is_late_is_rejected() -> None:
    """An event that was folded is not late."""
    check_rejected(
        [*ONE_OPEN, expect_rejected("late", ("ann", at("10:00")))],
        "the late events are not as expected",
        "\n  ! ('ann', at(\"10:00\"))   (nothing)\n",
    )


@pytest.mark.parametrize(
    "step",
    [
        expect_rejected("late"),
        expect_rejected("late", ("ann", at("10:02"))),
        expect_rejected("late", ("bob", at("10:01"))),
        expect_rejected("late", ("ann", at("10:01")), ("ann", at("10:01"))),
    ],
)
def test_wrong_late_events_are_rejected(step: Step) -> None:
    """Another key or time, one too many or too few; the timeline shows the event as an `x`."""
    check_rejected([*ONE_LATE, step], "('ann', at(\"10:01\"))\n", "'ann'       o x")


def test_a_rejection_of_another_kind_does_not_count() -> None:
    """A late event was not quarantined."""
    check_rejected([*ONE_LATE, expect_rejected("quarantined", ("ann", at("10:01")))], "(nothing)")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (ONE_CLOSED, "(nothing)   closed: ('ann', "),
        (ONE_LATE, "(nothing)   late: ('ann', at(\"10:01\")), its own window is over"),
    ],
)
def test_expecting_nothing_where_something_came_is_rejected(steps: list[Step], said: str) -> None:
    """A result, or a rejection."""
    check_rejected([*steps, expect_nothing()], "something came out", said)


# -- counts ------------------------------------------------------------------------------------


def test_a_wrong_count_is_rejected() -> None:
    """The counts that are right are shown too, unmarked."""
    check_rejected(
        [*ONE_LATE, expect_counts(processed=1, late=2)],
        "\n    processed=1   processed=1\n  ! late=2        late=1\n",
        "Hint: if what came is right: expect_counts(processed=1, late=1)",
    )


def test_a_replay_counts_once() -> None:
    """To expect its events twice is wrong."""
    steps = [ONE_OPEN[0], run_batch(sink_fails=True), run_batch(), expect_counts(processed=2)]
    check_rejected(steps, "! processed=2   processed=1", "but the sink failed")


# -- what is left ------------------------------------------------------------------------------


def test_a_missing_expectation_is_rejected() -> None:
    """A session that no step expected; the hint is the step that is missing."""
    check_rejected(
        ONE_CLOSED,
        "the script ends, and something is left",
        '(nothing)   closed: (\'ann\', at("10:00"), at("10:30"), VisitRow(pages=1, reading=1.0))',
        'Hint: if that is right: expect_sessions((\'ann\', at("10:00"), at("10:30"), VisitRow(',
        at_the_end=True,
    )


def test_an_event_lost_in_silence_is_rejected() -> None:
    """A rejection that no step expected is left over too."""
    hint = "Hint: if that is right: expect_rejected('late', ('ann', at(\"10:01\")))"
    check_rejected(ONE_LATE, hint, at_the_end=True)


def test_an_event_that_no_batch_reads_is_rejected() -> None:
    """A script that forgets its last batch tests nothing."""
    check_rejected(
        [*ONE_OPEN, add("bob", at("10:05"), PAGE)],
        "(nothing)   waiting for a batch: ('bob', at(\"10:05\"))",
        "Hint: end the script with run_batch()",
        at_the_end=True,
    )


def test_events_of_a_batch_whose_sink_failed_are_left_over() -> None:
    """Unless it runs again."""
    steps = [ONE_OPEN[0], run_batch(sink_fails=True)]
    check_rejected(steps, "waiting for a batch: ('ann', ", at_the_end=True)


def test_output_is_not_forgotten_by_a_restart() -> None:
    """What closed before it and was not expected is left over all the same."""
    check_rejected([*ONE_CLOSED, restart()], "closed: ('ann', ", at_the_end=True)


# -- classes without equality ------------------------------------------------------------------


def test_values_that_only_look_alike_are_rejected() -> None:
    """The hint says that the class lacks equality, since no line differs to the eye."""
    check_rejected(
        [*ONE_OPEN, expect_open(("ann", at("10:00"), at("10:30"), LookAlike()))],
        "Hint: they look alike: define equality in their class",
    )


class LookAlike:
    """Looks like a state, and is none."""

    def __repr__(self) -> str:
        return repr(STATE)
