"""Aggregates of what came after what, at their limits."""

from datetime import timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import StateError
from sessionkit.testing import SessionDriver, at, minutes


@attrs.frozen
class Act:
    kind: str
    is_shown: bool = True


Batch = dict[float, str]
STEPS = {name: pc.field("kind") == name for name in "abc"}


def spec_of(**aggregates: agg.Aggregate) -> SessionSpec[Act, Any, Any]:
    return SessionSpec.aggregate(
        Act, aggregates, keys={"user": str}, event_time="ts", gap="10m", watermark_delay="1 hour"
    )


def driven(aggregate: agg.Aggregate, *batches: Batch) -> Any:
    """Return a driver that has run batches of kinds, a letter an event, by minutes after ten."""
    driver = SessionDriver(spec_of(found=aggregate))
    for batch in batches:
        for minute, kinds in batch.items():
            for kind in kinds:
                driver.add("ann", at("10:00") + minutes(minute), Act(kind))
        driver.run_batch()
    return driver


def found_of(aggregate: agg.Aggregate, *batches: Batch) -> Any:
    (session,) = driven(aggregate, *batches).open_sessions()
    return session.state.found


def funnel_of(steps: str, **options: Any) -> agg.Aggregate:
    """Return a funnel whose steps are kinds, a letter each."""
    return agg.funnel([pc.field("kind") == step for step in steps], **options)


@pytest.mark.parametrize(
    ("kinds", "plain", "order", "reentry", "deduplication", "both"),
    [
        ("abc", 3, 3, 3, 3, 3),
        ("adbc", 3, 1, 1, 3, 1),
        ("aabbcc", 3, 3, 3, 2, 2),
        ("aaaabbcc", 3, 3, 3, 2, 2),
        ("aabbdcc", 3, 2, 2, 2, 2),
        ("ccbbaa", 1, 1, 1, 1, 1),
        ("acb", 2, 1, 2, 2, 1),
        ("ababc", 3, 3, 3, 2, 2),
        ("acbc", 3, 1, 3, 3, 1),
        ("dabc", 3, 3, 3, 3, 3),
    ],
)
def test_a_funnel_of_three_steps_is_that_of_clickhouse(  # noqa: PLR0917 (a table's columns)
    kinds: str, plain: int, order: int, reentry: int, deduplication: int, both: int
) -> None:
    """In each mode of `windowFunnel`; a letter is an event, a minute after the one before."""
    visit: Batch = dict(enumerate(kinds))
    found = [
        found_of(funnel_of("abc", **options), visit)
        for options in (
            {},
            {"strict": True},
            {"strict": "order", "allow_reentry": True},
            {"strict": "deduplication"},
            {"strict": ["order", "deduplication"]},
        )
    ]

    assert [plain, order, reentry, deduplication, both] == found


@pytest.mark.parametrize(
    ("steps", "visit", "options", "reached"),
    [
        ("a", "abcdefghi", {}, 1),
        ("abci", "abcdefghi", {}, 4),
        ("defgh", "abcdefghi", {"within": "2m"}, 3),
        ("defgh", "abcdefghi", {"within": "3m"}, 4),
        ("defgh", "abcdefghi", {"within": "4m"}, 5),
        ("ah", "abcdefghi", {}, 2),
        ("ha", "abcdefghi", {}, 1),
        # A step is gone back to: what is reached stays reached.
        ("abcd", "abcad", {"strict": True}, 4),
        ("abcd", "abcacd", {"strict": True}, 4),
        ("abcd", "abcacd", {"strict": "deduplication"}, 3),
        ("abcdefg", "abcdeffg", {"strict": "deduplication"}, 6),
        # Events of one instant.
        ("abcde", {0: "a", 1: "bcd", 2: "e"}, {}, 5),
        ("abcde", {0: "a", 1: "bcd", 2: "e"}, {"strict": "increase"}, 2),
        ("abcdef", {0: "a", 1: "b", 2: "c", 3: "ff", 4: "d"}, {"strict": "deduplication"}, 4),
        ("ab", {0: "a", 1: "bd"}, {"strict": True}, 1),
        # One event is several steps.
        ("eee", "e", {}, 3),
        ("eee", "e", {"strict": "increase"}, 1),
    ],
)
def test_a_funnel_is_that_of_clickhouse(steps: str, visit: Any, options: Any, reached: int) -> None:
    """The last step may be exactly `within` after the first."""
    kinds: Batch = dict(enumerate(visit)) if isinstance(visit, str) else visit

    assert reached == found_of(funnel_of(steps, **options), kinds)


def test_a_funnel_beyond_its_limit_is_known_only_if_it_is_complete() -> None:
    """The earliest instants are kept, so one that comes later and is earlier changes what is."""
    funnel = agg.funnel(STEPS, at_most=3)
    batches: list[Batch] = [{3: "a", 4: "b", 5: "b"}, {6: "c"}, {1: "b", 2: "c"}]

    assert [2, None, None] == [found_of(funnel, *batches[:number]) for number in (1, 2, 3)]
    assert 3 == found_of(funnel, {3: "b"}, {1: "c", 5: "c"}, {2: "a"}, {2.5: "bc"})
    assert found_of(agg.funnel_times(funnel), *batches) is None


def took(*between: Any) -> agg.Aggregate:
    return agg.funnel_times(agg.funnel(STEPS, at_most=3), between=between)


def test_a_session_has_the_time_between_two_steps_that_it_reached() -> None:
    """It may take none, and it's unknown where the number of steps is."""
    visit: Batch = {0: "a", 3: "b", 7: "bc"}

    assert [minutes(7), minutes(7), minutes(0), None] == [
        found_of(took("a", "c"), visit),
        found_of(took("a", "b"), visit),
        found_of(took("b", "c"), visit),
        found_of(took("b", "c"), {0: "a", 3: "b"}),
    ]
    assert found_of(took("a", "b"), {0: "a", 1: "b", 2: "b", 3: "b"}) is None
    driver = driven(took("a", "c"), visit)
    (session,) = SessionDriver.restore(
        spec_of(found=took("b", "c")), driver.snapshot()
    ).open_sessions()
    assert minutes(0) == session.state.found


def test_what_must_not_come_between_steps_counts_towards_the_limit() -> None:
    """Its instants are stored as those of the steps are."""
    visit: Batch = dict(enumerate("adddb"))

    ends = agg.funnel(STEPS, at_most=3, not_between=pc.field("kind") == "d")

    assert 2 == found_of(agg.funnel(STEPS, at_most=3), visit)
    assert found_of(ends, visit) is None


def test_a_funnel_may_be_asked_for_in_a_condition_and_from_now_on() -> None:
    """As any aggregate."""
    bought = agg.funnel(STEPS) >= 2
    assert found_of(bought, {0: "a", 1: "b"}) is True
    driver = driven(agg.count(), {0: "a", 1: "b"})
    added = spec_of(found=agg.count(), bought=bought.from_now())

    (session,) = SessionDriver.restore(added, driver.snapshot()).open_sessions()

    assert (2, False) == attrs.astuple(session.state)


def test_a_checkpoint_keeps_the_steps_of_a_funnel_but_not_its_time() -> None:
    """The time may change; the names of steps and what is kept may not."""
    driver = driven(agg.funnel(STEPS), {0: "a", 1: "b", 3: "c"})

    shorter = spec_of(found=agg.funnel(STEPS, within="1m", strict="increase"))
    (session,) = SessionDriver.restore(shorter, driver.snapshot()).open_sessions()
    assert 2 == session.state.found
    for other in (
        agg.funnel({"c": "is_shown"}),
        agg.funnel(STEPS, strict=True),
        agg.funnel(STEPS, not_between="is_shown"),
    ):
        with pytest.raises(StateError, match=r"'funnel\(a, b, c\), 1000' in the ch"):
            SessionDriver.restore(spec_of(found=other), driver.snapshot()).open_sessions()


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.funnel({}), "takes 1 to 32 steps, found 0"),
        (lambda: agg.funnel(["is_shown"] * 33), "takes 1 to 32 steps, found 33"),
        (lambda: agg.funnel("is_shown"), "`funnel` takes steps, found 'is_shown'"),
        (lambda: agg.funnel({"a": 1}), "step 'a' must be a condition, found 1"),
        (lambda: agg.funnel(["is_shown"], strict=1), "`strict` must be True or False"),  # type: ignore[arg-type]
        (lambda: agg.funnel(["is_shown"], strict="ordr"), "'increase', found 'ordr'"),  # type: ignore[arg-type]
        (lambda: agg.funnel(["is_shown"], allow_reentry=True), "the order isn't strict"),
        (lambda: agg.funnel(["is_shown"], not_between=1), "`not_between` must be a condition"),
        (lambda: agg.funnel(["is_shown"], within="-1s"), "`within`"),
        (lambda: agg.funnel(["is_shown"], within=timedelta(0)), "`within` must be longer"),
        (lambda: agg.funnel(["is_shown"], at_most=0), "`at_most` must be a whole number from 1"),
        (lambda: agg.funnel_times(agg.count()), "`funnel_times` takes a funnel, found"),
        (lambda: took("a", "d"), "`between` takes two of the steps a, b, c"),
        (lambda: took("c", "a"), "the earlier one first; found ('c', 'a')"),
        (lambda: took("a"), "the earlier one first; found ('a',)"),
        (lambda: agg.funnel_times(agg.funnel(STEPS), between=1), "found 1"),  # type: ignore[arg-type]
        (lambda: spec_of(x=agg.funnel(["is_showm"])), "`x`: step `1` is 'is_showm', and Act has"),
        (lambda: spec_of(x=agg.funnel({"s": pc.field("kind")})), "step `s` is kind, which is str"),
    ],
)
def test_a_funnel_that_cannot_work_is_refused(made: Any, found: str) -> None:
    """When it's made, or when the spec is."""
    with pytest.raises(SpecError) as refused:
        made()

    assert found in str(refused.value)


def test_steps_count_how_often_a_value_came_right_after_another() -> None:
    """Equal ones in a row are one, and a late value may come in between."""
    steps = agg.steps("kind", "a", "b", at_most=6)
    batches: list[Batch] = [{1: "a", 2: "a", 3: "b", 6: "ab"}, {2.5: "c"}, {9: "a"}]

    assert [2, 1, None] == [found_of(steps, *batches[:number]) for number in (1, 2, 3)]


def test_counts_by_value_are_of_the_least_values_whatever_comes_first() -> None:
    """The others count under one that may be a value itself, or nowhere."""
    batches: list[Batch] = [{0: "dc"}, {1: "baad"}, {2: "~c"}]
    counts = agg.count_by("kind", at_most=2)
    with_rest = agg.count_by("kind", at_most=2, rest="~")

    found = [found_of(counts, *batches[:number]) for number in (1, 2, 3)]

    assert [{"c": 1, "d": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 1}] == found
    assert {"a": 2, "b": 1, "~": 5} == found_of(with_rest, *batches)
    assert {"a": 5, "b": 1} == found_of(agg.count_by("kind", at_most=2, rest="a"), *batches[:2])
    driver = driven(counts, *batches)
    (session,) = SessionDriver.restore(spec_of(found=with_rest), driver.snapshot()).open_sessions()
    assert {"a": 2, "b": 1, "~": 5} == session.state.found


def rate(per: str) -> agg.Aggregate:
    return agg.count() / (agg.duration() / {"1s": timedelta(seconds=1), "1m": minutes(1)}[per])


def test_a_checkpoint_keeps_no_question_that_its_values_answer_anyway() -> None:
    """Which values come after each other, how many are first, and what an expression asks."""
    driver = SessionDriver(
        spec_of(steps=agg.steps("kind", "a", "b"), top=agg.top("kind", 1), rate=rate("1s"))
    )
    for minute, kind in enumerate("abca"):
        driver.add("ann", at("10:00") + minutes(minute), Act(kind))
    driver.run_batch()
    changed = spec_of(steps=agg.steps("kind", "b", "c"), top=agg.top("kind", 3), rate=rate("1m"))

    (session,) = SessionDriver.restore(changed, driver.snapshot()).open_sessions()

    assert (1, ["a", "b", "c"], 4 / 3) == attrs.astuple(session.state)


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.steps("kind", "a", "a"), "takes two different values, found 'a' twice"),
        (lambda: spec_of(x=agg.steps("kind", 1, "a")), "`Act.kind` is never 1"),
        (lambda: spec_of(x=agg.count_by("kind", rest=1)), "`Act.kind` is never 1"),
        (lambda: agg.top("kind", 1, counts=1), "`counts` must be True or False"),  # type: ignore[arg-type]
        (lambda: agg.top("kind", 0), "`n` must be a whole number from 1 to `at_most`, found 0"),
        (lambda: agg.top("kind", 3, at_most=2), "from 1 to `at_most`, found 3"),
        (lambda: rate("1s").from_now(), "`duration` is of a whole session"),
        (lambda: agg.count(at_most=0), "`at_most` must be a whole number from 1"),
    ],
)
def test_what_no_session_answers_is_refused(made: Any, found: str) -> None:
    """When it's made, or when the spec is."""
    with pytest.raises(SpecError) as refused:
        made()

    assert found in str(refused.value)


def test_engaged_time_has_each_gap_up_to_the_cap() -> None:
    """Whatever comes late, and up to a time after the first event."""
    engaged = agg.engaged_time(cap="2m", within="12m")
    batches: list[Batch] = [{0: "a"}, {9: "a", 18: "a"}, {4: "a"}, {1: "a", 10: "a"}]

    found = [found_of(engaged, *batches[:number]) for number in (1, 2, 3, 4)]

    assert [minutes(0), minutes(4), minutes(6), minutes(8)] == found


def test_a_cap_may_be_as_long_as_any_duration() -> None:
    """All time up to `within` then counts."""
    engaged = agg.engaged_time(cap=timedelta(days=36_500))

    assert minutes(9) == found_of(engaged, {0: "a", 9: "a"})


def test_engaged_time_has_a_bound() -> None:
    """What is stored grows with `within` by `cap`."""
    with pytest.raises(SpecError, match="`within` may be at most 100,000 times `cap`"):
        agg.engaged_time(cap="1ms")
    with pytest.raises(SpecError, match="`cap` must be longer than zero"):
        agg.engaged_time(cap=timedelta(0))
