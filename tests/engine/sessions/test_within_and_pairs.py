"""Aggregates over the last minutes, between pairs, and after a funnel, at their limits."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at, minutes, seconds
from sessionkit.testing.drivers.query import memories_of

NOON = at("12:00")


@attrs.frozen
class Act:
    kind: str
    page: str | None
    turn: int


Batch = dict[float, str]
IS_A, IS_B = pc.field("kind") == "a", pc.field("kind") == "b"


def spec_of(sequence: str | None = None, **aggregates: agg.Aggregate) -> SessionSpec[Act, Any, Any]:
    return SessionSpec.aggregate(
        Act,
        aggregates,
        keys={"user": str},
        event_time="ts",
        gap="1 hour",
        watermark_delay="1 day",
        sequence=sequence,
    )


def driven(spec: SessionSpec[Act, Any, Any], *batches: Batch) -> Any:
    """Return a driver that has run batches of kinds, a letter an event, by minutes after noon."""
    driver = SessionDriver(spec)
    for batch in batches:
        for minute, kinds in batch.items():
            for turn, kind in enumerate(kinds):
                page = None if kind == "-" else f"/{kind}"
                driver.add("ann", NOON + minutes(minute), Act(kind, page, turn))
        driver.run_batch()
    return driver


def found_of(aggregate: agg.Aggregate, *batches: Batch, sequence: str | None = None) -> Any:
    (session,) = driven(spec_of(sequence, found=aggregate), *batches).open_sessions()
    return session.state.found


def moved(aggregate: agg.Aggregate, other: agg.Aggregate, *batches: Batch) -> Any:
    """Return what another aggregate finds in the state of one."""
    driver = driven(spec_of(found=aggregate), *batches)
    (session,) = SessionDriver.restore(spec_of(found=other), driver.snapshot()).open_sessions()
    return session.state.found


def time(minute: float) -> datetime:
    return NOON + minutes(minute)


# -- within a time -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "most", "reached", "counts"),
    [
        ({0: "a", 3: "a", 6: "a", 9: "a", 10: "a"}, 5, 10, [1, 2, 3, 4, 5]),
        ({0: "a", 3: "a", 6: "a", 9: "a", 10 + 1 / 60: "a"}, 4, None, [1, 2, 3, 4, 4]),
        ({0: "aaaaa"}, 5, 0, [1, 2, 3, 4, 5]),
        ({0: "a", 10: "aaaaaa", 30: "a"}, 7, 10, [1, 2, 3, 4, 5, 6, 7, 1]),
        ({0: "aa", 11: "aa", 22: "aaa", 30: "aa"}, 5, 30, [1, 2, 1, 2, 1, 2, 3, 4, 5]),
        ({0: "b"}, 0, None, []),
        ({0: "abababab"}, 4, None, [1, 2, 3, 4]),
    ],
)
def test_events_within_a_time_count_up_to_exactly_its_end(
    batch: Batch, most: int, reached: float | None, counts: list[int]
) -> None:
    """An event exactly ten minutes before counts, and all of one instant do."""
    found = [
        found_of(aggregate, batch)
        for aggregate in (
            agg.most_within("10 minutes", where=IS_A),
            agg.reached_within(5, "10 minutes", where=IS_A),
            agg.counts_within("10 minutes", where=IS_A),
        )
    ]

    assert [most, None if reached is None else time(reached), counts] == found


def test_a_late_event_makes_a_count_reach_its_limit_earlier() -> None:
    """What came after that is forgotten, and isn't missed."""
    batches: list[Batch] = [
        {20: "aa"},
        {30: "a", 40: "a"},
        {25: "a"},
        {0: "a", 9: "a", 30: "aaaa"},
        {10: "a"},
    ]

    first = agg.reached_within(3, "10 minutes")
    found = [found_of(first, *batches[:number]) for number in range(1, 6)]

    assert [None, time(30), time(25), time(25), time(10)] == found


def test_a_count_is_never_more_than_its_limit() -> None:
    """And what is stored ends there."""
    most = agg.most_within("10 minutes", at_most=3)
    spec = spec_of(found=most)
    driver = driven(spec, {0: "a", 20: "aa"}, dict.fromkeys(range(60), "a"))

    (session,) = driver.open_sessions()
    (memory,) = memories_of(spec, driver.snapshot())

    assert 3 == session.state.found
    assert [[time(0), time(0), time(1)]] == memory.kept["state.found"].to_pylist()


def test_the_counts_of_the_earliest_events_are_listed() -> None:
    """With the times that `collect` lists, and for another length from the same state."""
    batches: list[Batch] = [{5: "aa", 9: "b"}, {0: "a"}, {3: "a"}]
    counts = agg.counts_within("4 minutes", at_most=4)

    assert [1, 2, 2, 3] == found_of(counts, *batches)
    assert [1, 2, 3, 4] == moved(counts, agg.counts_within("5 minutes", at_most=4), *batches)
    for other in (agg.counts_within("4 minutes", at_most=5), agg.most_within("4m", at_most=4)):
        with pytest.raises(StateError, match=r"'counts_within\(\), 4' in the checkpoint"):
            moved(counts, other, *batches)


@pytest.mark.parametrize(
    "change",
    [
        (agg.most_within("5m"), agg.most_within("6m")),
        (agg.most_within("5m"), agg.most_within("5m", at_most=2)),
        (agg.reached_within(2, "5m"), agg.reached_within(3, "5m")),
        (agg.reached_within(2, "5m"), agg.reached_within(2, "6m")),
    ],
    ids=repr,
)
def test_what_decides_which_times_are_stored_is_fixed(change: Any) -> None:
    """Times that another length or number needs may be gone."""
    with pytest.raises(StateError, match="in the checkpoint"):
        moved(*change, {0: "aaa"})


def test_counts_within_a_time_may_be_asked_for_from_now_on() -> None:
    """As any aggregate; of a session that was open before, they're of later events."""
    soon: Any = {
        "is_many": (agg.most_within("10m", at_most=2) >= 2).from_now(),
        "at": agg.reached_within(1, "10m").from_now(),
        "open": agg.time_between(IS_A, IS_B).from_now(),
        "next": agg.funnel_next(agg.funnel([IS_A]), "page").from_now(),
    }
    driver = driven(spec_of(events=agg.count()), {0: "a", 1: "b"})
    driver = SessionDriver.restore(spec_of(events=agg.count(), **soon), driver.snapshot())
    (before,) = driver.open_sessions()
    driver.add("ann", time(2), Act("a", "/a", 0))
    driver.run_batch()
    (after,) = driver.open_sessions()

    assert (2, False, None, timedelta(0), None) == attrs.astuple(before.state)
    assert (3, False, time(2), timedelta(0), None) == attrs.astuple(after.state)


# -- pairs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "open_for"),
    [
        ([{0: "a", 3: "b", 5: "a", 6: "b"}], 4),
        ([{0: "a", 1: "a", 3: "b", 4: "b"}], 3),  # what is open already, what isn't open
        ([{0: "b", 5: "c"}], 0),
        ([{0: "a", 4: "c"}], 4),  # up to the last event, whatever it is
        ([{0: "a"}], 0),
        ([{0: "a", 3: "ab", 5: "b"}], 5),  # closed and opened again
        ([{0: "ba", 5: "b"}], 0),  # opened and closed
        ([{0: "a", 9: "b"}, {5: "b"}, {7: "a"}, {8: "b", 3: "a"}], 6),
        ([{0: "a", 9: "c"}, {12: "c"}, {5: "b", 6: "a"}], 11),
    ],
)
def test_time_between_pairs_adds_up(batches: list[Batch], open_for: float) -> None:
    """However they come; where both are at one instant, nothing changes."""
    assert minutes(open_for) == found_of(agg.time_between(IS_A, IS_B), *batches)


@pytest.mark.parametrize(("kinds", "open_for"), [("ab", 0), ("ba", 5), ("aab", 0), ("bab", 0)])
def test_a_sequence_says_whether_an_instant_opens_or_closes(kinds: str, open_for: float) -> None:
    """The last one does."""
    found = found_of(agg.time_between(IS_A, IS_B), {0: kinds, 5: "b"}, sequence="turn")

    assert minutes(open_for) == found


def test_time_between_is_unknown_beyond_its_limit() -> None:
    """Other events don't count towards it, and `where` chooses what opens and closes."""
    between = agg.time_between(IS_A, IS_B, at_most=2)
    batches: list[Batch] = [{0: "a", 1: "c", 2: "cbb"}, {3: "c"}, {1: "b"}]

    assert [minutes(2), minutes(2), None] == [
        found_of(between, *batches[:number]) for number in (1, 2, 3)
    ]
    of_first = agg.time_between(IS_A, IS_B, where=pc.field("turn") == 0)
    assert minutes(3) == found_of(of_first, {0: "a", 1: "cb", 3: "b"})
    assert seconds(90) == found_of(between, {0: "a", 1.5: "b"})


def test_time_between_has_a_share_of_a_session() -> None:
    """Operators take it as any timedelta."""
    share = agg.time_between(IS_A, IS_B) / agg.duration()

    assert 0.25 == found_of(share, {0: "c", 2: "a", 4: "b", 8: "c"})


# -- after a funnel ------------------------------------------------------------------------------

FAR = agg.funnel({"a": IS_A, "b": IS_B})


@pytest.mark.parametrize(
    ("batches", "came_next"),
    [
        ([{0: "a", 1: "b", 2: "c"}], "/c"),
        ([{0: "a", 2: "c"}], "/c"),
        ([{0: "a", 2: "a", 3: "c"}], "/a"),  # a repeat of the step is what came next
        ([{0: "a", 1: "b"}], None),
        ([{0: "c", 1: "d"}], None),  # no step reached
        ([{0: "ad", 2: "dc"}], "/c"),  # later than the step, and of two the least
        ([{0: "a", 1: "-", 2: "d"}], "/d"),  # without a value
        ([{0: "a", 9: "d"}, {5: "c"}, {6: "b"}, {2: "b"}], "/c"),
    ],
)
def test_what_came_after_a_funnel_is_the_next_event(
    batches: list[Batch], came_next: str | None
) -> None:
    """Of the chain whose last step is earliest, whatever comes late."""
    assert came_next == found_of(agg.funnel_next(FAR, "page"), *batches)


def test_a_sequence_says_what_came_next_at_one_instant() -> None:
    """Where there is one, an event of the same instant may be next."""
    after = agg.funnel_next(FAR, "page")

    assert "/d" == found_of(after, {0: "bad", 2: "c"}, sequence="turn")
    assert "/c" == found_of(after, {0: "bad", 2: "c"})


def test_what_comes_next_is_of_the_funnels_events_and_of_those_chosen() -> None:
    """Both conditions hold of it."""
    batch: Batch = {0: "a", 1: "x", 2: "y", 3: "z"}
    funnel = agg.funnel([IS_A], where=pc.field("kind") != "x")

    assert "/y" == found_of(agg.funnel_next(funnel, "page"), batch)
    assert "/z" == found_of(agg.funnel_next(funnel, "page", where=pc.field("kind") > "y"), batch)
    assert 0 == found_of(agg.funnel_next(funnel, "turn"), batch)


def test_a_step_needs_no_value() -> None:
    """Only what comes next does."""
    ping = agg.funnel([pc.field("kind") == "-"])

    assert "/c" == found_of(agg.funnel_next(ping, "page"), {0: "-", 1: "-", 2: "c"})


def test_what_comes_next_is_unknown_beyond_the_limit() -> None:
    """The earliest instants with a value are kept."""
    after = agg.funnel_next(agg.funnel([IS_A, IS_B], at_most=2), "page")

    assert "/c" == found_of(after, {0: "a", 1: "c"}, {2: "d"})
    assert found_of(after, {0: "d", 1: "a"}, {2: "d"}) is None
    assert found_of(after, {0: "aa", 1: "aa", 2: "aa"}) is None


def test_a_checkpoint_keeps_the_field_that_comes_next() -> None:
    """And the time of the funnel may change."""
    after = agg.funnel_next(FAR, "page")
    shorter = agg.funnel_next(agg.funnel({"a": IS_A, "b": IS_B}, within="1m"), "page")

    assert "/b" == moved(after, shorter, {0: "a", 5: "b", 6: "c"})
    with pytest.raises(StateError, match="in the checkpoint"):
        moved(after, agg.funnel_next(FAR, "kind"), {0: "a"})


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.most_within(timedelta(0)), "`within` must be longer than zero"),
        (lambda: agg.most_within("10 minutes", at_most=0), "`at_most` must be a whole number"),
        (lambda: agg.reached_within(0, "10 minutes"), "`n` must be a whole number from 1, found 0"),
        (lambda: agg.reached_within(2.5, "10m"), "`n` must be a whole number from 1, found 2.5"),  # type: ignore[arg-type]
        (lambda: agg.counts_within("1m", at_most=-1), "`at_most` must be a whole number from 1"),
        (lambda: agg.time_between("kind", 1), "`closed` must be a condition, found 1"),
        (lambda: spec_of(x=agg.time_between("kind", IS_B)), "`x`: `opened` is 'kind', and `Act"),
        (lambda: agg.funnel_next(agg.count(), "page"), "`funnel_next` takes a funnel, found"),
        (lambda: agg.funnel_next(FAR, None), "takes the name of a field, as text, found None"),  # type: ignore[arg-type]
        (lambda: agg.funnel_next(FAR, "page", where=1), "bool field, found 1"),
        (lambda: spec_of(x=agg.funnel_next(FAR, "pages")), "and Act has no field `pages`"),
    ],
)
def test_what_can_not_work_is_refused(made: Any, found: str) -> None:
    """When it's made, or when the spec is."""
    with pytest.raises(SpecError) as refused:
        made()

    assert found in str(refused.value)
