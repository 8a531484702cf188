"""What was stored is read after classes have changed: of sessions, of keys, in every layout."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import (
    EventTimeGap,
    Inputs,
    NoTimeout,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
    UserFunctionError,
)
from sessionkit import aggregates as agg
from sessionkit._engine.shell.reading import (
    Comparison,
    check_events_order,
    compared,
    identity_differences,
)
from sessionkit._engine.shell.storage import logic_of
from sessionkit.errors import StateError
from sessionkit.state import RenamedFrom
from sessionkit.testing import SessionDriver, at
from tests.support.changed_classes import (
    SPECS,
    USERS,
    First,
    Fourth,
    LaterView,
    Second,
    Third,
    View,
    add,
    changed,
    count,
    count_later,
    count_texts,
    count_words,
    driver_of,
    ignore,
    keys,
    of_first,
    of_third,
    sessions,
    states,
)


def stateless(spec: Any) -> set[str]:
    named = {user for user in USERS if user.endswith("7")}
    return named if isinstance(spec, StatefulSpec) else set()


def expected(spec: Any, state: Any) -> dict[str, Any]:
    """Return this state for each user, but for those who have none."""
    return {user: None if user in stateless(spec) else state for user in USERS}


CASES = [pytest.param(make, layout, id=f"{make.__name__}-{layout}") for make, layout in SPECS]


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_changed_state_and_a_changed_event_go_on(make: Any, layout: str) -> None:
    """Stored states and events that wait are read as those of the present classes."""
    before, after = make(count, First, layout), make(count_later, Second, layout, LaterView)
    driver = driver_of(before)
    add(driver, View(2, "a"), at("12:00"))
    add(driver, View(3, "b"), at("12:20"))
    add(driver, View(4, "c"), at("12:25"), USERS[:1])

    driver = changed(driver, after)
    assert Second(2.0, ["old"], "a") == seen_first(driver, make)
    add(driver, LaterView(8.0), at("12:40"), USERS[:2])
    driver.advance_watermark_to(at("12:41"))
    add(driver, LaterView(0.5), at("12:42"), USERS[2:3])

    found = states(driver)
    one, two, rest = (found[USERS[place]] for place in (0, 1, 3))
    assert [17.0, 13.0, 5.0] == [one.pages, two.pages, rest.pages]
    assert [["old"]] * 3 == [state.tags for state in (one, two, rest)]
    assert (None, float) == (one.note, type(rest.pages))
    assert stateless(after) == {user for user, state in found.items() if state is None}


def seen_first(driver: Any, make: Any) -> Any:
    """Return a stored state, as far as it has been folded."""
    found = states(driver)[USERS[5]]
    if make is sessions:
        # The view of open sessions folds in the events that wait.
        found.pages -= 3
        found.note = "a"
    return found


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_function_leads_from_version_to_version(make: Any, layout: str) -> None:
    """Groups that a version skipped go all the way; each is upgraded when it's read."""
    first = make(count, First, layout)
    third = make(count_texts, Third, layout, storage=Storage(upgrade={1: of_first}))
    fourth = make(count_words, Fourth, layout, storage=Storage(upgrade={1: of_first, 2: of_third}))
    driver = driver_of(first)
    add(driver, View(2, "a"), at("12:00"))
    driver.advance_watermark_to(at("12:05"))
    driver.run_batch()

    skipping = changed(driver, fourth)
    assert expected(fourth, Fourth(["2", "a"])) == states(skipping)

    driver = changed(driver, third)
    assert expected(third, Third("2 a")) == states(driver)
    add(driver, View(1), at("12:20"), USERS[:1])
    driver.advance_watermark_to(at("12:21"))
    driver.run_batch()
    driver = changed(driver, fourth)

    words = expected(fourth, Fourth(["2", "a"])) | {USERS[0]: Fourth(["2", "a+"])}
    assert words == states(driver)
    assert (2, 3) == (third.storage.version, fourth.storage.version)


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_what_no_rule_covers_stops_the_query_at_its_first_read(make: Any, layout: str) -> None:
    """Each field is named, with what to do; nothing is overwritten."""
    driver = driver_of(make(count, First, layout))
    add(driver, View(2, "a"), at("12:00"))
    fields = {"views": attrs.field(type=str, default=""), "x": attrs.field(type=int, default="1")}
    wrong = attrs.make_class("Wrong", fields)
    again = changed(driver, make(ignore, wrong, layout))
    again.add(USERS[0], at("12:01"), View(1))
    with pytest.raises(StateError) as refused:
        again.run_batch()

    assert (
        "the stored state was written under other rules:\n"
        "  `Wrong.views` is str in the class, int in the checkpoint\n"
        "  `Wrong.x` isn't in the checkpoint; its default: `Wrong.x` must be an int, found str\n\n"
        "Hint: undo the change, or convert stored states with `upgrade=`"
    ) == str(refused.value)


@attrs.define
class Renamed:
    """The first state, whose `views` have another name."""

    hits: int = 0
    note: str = ""
    gone: list[str] = attrs.field(factory=list)


@attrs.define
class Said:
    """The same, which says so; and a new field in the place of one that is gone."""

    hits: Annotated[int, RenamedFrom("views")] = 0
    text: Annotated[str, RenamedFrom()] = ""


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_rename_that_is_not_said_loses_nothing(make: Any, layout: str) -> None:
    """A new field and one of its type that is gone stop the query, until the class says which."""
    driver = driver_of(make(count, First, layout))
    add(driver, View(2, "a"), at("12:00"))
    driver.advance_watermark_to(at("12:10"))
    add(driver, View(0, "a"), at("12:20"))

    with pytest.raises(StateError) as refused:
        states(changed(driver, make(ignore, Renamed, layout)))
    said = states(changed(driver, make(ignore, Said, layout)))

    assert (
        "the stored state was written under other rules:\n"
        "  `Renamed.hits` isn't in the checkpoint, and `views` isn't in the class: was it renamed?"
        '\n\nHint: write `hits: Annotated[..., RenamedFrom("views")]` if it was `views`, and '
        "`RenamedFrom()` if it is new"
    ) == str(refused.value)
    assert Said(2, "") == said[USERS[0]]


@attrs.frozen
class RenamedView:
    """The event, whose `number` has another name."""

    amount: int = 0
    note: str = ""


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_a_rename_in_events_that_wait_is_seen_too(make: Any, layout: str) -> None:
    """Their values would be lost as those of a state."""
    driver = driver_of(make(count, First, layout))
    add(driver, View(2, "a"), at("12:00"))

    with pytest.raises(StateError, match=r"amount: Annotated\[..., RenamedFrom.\"number\""):
        states(changed(driver, make(ignore, First, layout, RenamedView)))


def compared_rows(
    now: Any, *rows: tuple[Any, int, int], **more: Any
) -> list[tuple[Comparison, int, int]]:
    """Return what rows of several states, with the times of the first and the last, are now."""
    logic = logic_of(sessions(ignore, now, "buckets", **more))
    identities = [
        logic_of(sessions(ignore, state, "buckets")).program.identity for state, _, _ in rows
    ]
    found = [compared(logic, json.loads(identity)) for identity in identities]
    return [(one, first, last) for one, (_, first, last) in zip(found, rows, strict=True)]


def test_a_field_that_was_removed_and_added_again_is_refused() -> None:
    """Rows that lack it are newer than some that have it: old values would come back in these."""
    has, lacks = First, attrs.make_class("First", {"note": attrs.field(type=str, default="")})
    of_first_version = compared_rows(has, (has, 1, 5), (lacks, 6, 9))

    with pytest.raises(StateError) as refused:
        check_events_order(of_first_version, "the checkpoint c")
    check_events_order(compared_rows(has, (lacks, 1, 5), (has, 6, 9)), "only added")
    check_events_order(compared_rows(lacks, (has, 1, 5), (lacks, 6, 9)), "only removed")
    check_events_order(compared_rows(has, (lacks, 1, 5), (has, 5, 9)), "at one time")

    assert (
        "the checkpoint c has old values of a field that was removed and added again:\n"
        "  `First.views` is in a row of 1970-01-01 00:00:00.001000+00:00, and not in a newer one\n"
        "  `First.gone` is in a row of 1970-01-01 00:00:00.001000+00:00, and not in a newer one\n\n"
        "Hint: use a name that no stored row has, or convert stored states with `upgrade=`"
    ) == str(refused.value)


def test_an_upgrade_from_the_class_without_the_field_takes_no_old_value() -> None:
    """Rows of both kinds are read as that class, whenever they were written."""
    driver = driver_of(sessions(count, First, "buckets"))
    add(driver, View(2, "a"), at("12:00"))
    driver.advance_watermark_to(at("12:10"))
    add(driver, View(0, "a"), at("12:20"))
    spec = sessions(ignore, Again, "buckets", storage=Storage(upgrade={1: of_shorter}))

    assert Again("a", 0) == states(changed(driver, spec))[USERS[0]]
    rows = compared_rows(Again, (First, 1, 5), (Shorter, 6, 9), storage=spec.storage)
    check_events_order(rows, "the checkpoint")


@attrs.define
class Shorter:
    note: str = ""


@attrs.define
class Again:
    note: str = ""
    views: int = 0


def of_shorter(old: Shorter) -> Again:
    return Again(old.note)


CARRY = (
    "carry the state over to a new checkpoint: seed = migrate(checkpoint, old_spec, "
    "new_spec, folder), then sessionize(seed.unread(events), new_spec, seed=seed)"
)
UNDO = "undo the change of `gap_inclusive`, which migrate can't carry; it can carry any other rule"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        (
            {"storage": Storage(bucket_count=3)},
            f"pass storage=Storage(bucket_count=2), as it was started, or {CARRY}",
        ),
        (
            {
                "storage": Storage(bucket_count=3),
                "timeout": EventTimeGap("30m", gap_inclusive=False),
            },
            UNDO,
        ),
    ],
)
def test_another_rule_names_what_carries_the_state_over(changes: Any, hint: str) -> None:
    """No error says to throw state away: it has the line to write."""
    spec = sessions(count, First, "buckets")
    driver = driver_of(spec)
    add(driver, View(2, "a"), at("12:00"))

    with pytest.raises(StateError) as refused:
        states(changed(driver, attrs.evolve(spec, **changes)))

    assert hint == str(refused.value).partition("Hint: ")[2]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"storage": Storage(version=3)}, "`state_version` is 3 in the spec, 1 in the checkpoint"),
        (
            {"storage": Storage(upgrade={2: of_third})},
            "`state_version` is 3 in the spec, 1 in the checkpoint",
        ),
    ],
)
def test_a_version_from_which_nothing_leads_is_refused(more: dict[str, Any], text: str) -> None:
    """So is one that is newer than the code."""
    driver = driver_of(sessions(count, First, "buckets"))
    add(driver, View(2, "a"), at("12:00"))
    with pytest.raises(StateError, match=text):
        states(changed(driver, sessions(count_words, Fourth, "buckets", **more)))

    later = sessions(count_texts, Third, "buckets", storage=Storage(upgrade={1: of_first}))
    driver = driver_of(later)
    add(driver, View(2, "a"), at("12:00"))
    with pytest.raises(StateError, match="`state_version` is 1 in the spec, 2 in the"):
        states(changed(driver, sessions(count, First, "buckets")))


def test_events_that_wait_have_rules_and_no_functions() -> None:
    """What no rule covers of their class is refused, with what to do."""
    driver = driver_of(sessions(count, First, "buckets"))
    add(driver, View(2, "a"), at("12:00"))
    wrong = attrs.make_class("View", {"number": attrs.field(type=str)})

    with pytest.raises(StateError) as refused:
        states(changed(driver, sessions(ignore, First, "buckets", wrong)))

    assert "`View.number` is str in the class, int in the checkpoint" in str(refused.value)
    assert str(refused.value).endswith("and add a new one with a default")


@pytest.mark.parametrize("layout", ["buckets", "pages"])
def test_a_new_field_next_to_the_old_one_covers_any_change_of_events_that_wait(layout: str) -> None:
    """What waited has the old field, and what comes now the new one."""

    @attrs.frozen
    class Named(View):
        name: str = ""

    @attrs.define
    class Names:
        names: list[str] = attrs.field(factory=list)

    def add_name(state: Names, event: Named) -> None:
        state.names.append(event.name or f"number {event.number}")

    driver = driver_of(sessions(ignore, Names, layout))
    add(driver, View(2, "a"), at("12:00"), ["ann"])
    driver = changed(driver, sessions(add_name, Names, layout, Named))
    add(driver, Named(0, name="three"), at("12:01"), ["ann"])

    assert ["number 2", "three"] == states(driver)["ann"].names


def test_columns_that_pass_through_may_change() -> None:
    """They're shown only, so one that is new is null in the events that wait."""
    driver = driver_of(
        sessions(count, First, "buckets", inputs=Inputs(passthrough={"offset": int}))
    )
    driver.add("ann", at("12:00"), View(1), offset=5)
    driver.run_batch()

    later = changed(
        driver, sessions(count, First, "buckets", inputs=Inputs(passthrough={"raw": str}))
    )

    assert [1] == [one.state.views for one in later.open_sessions()]


def test_a_failing_upgrade_names_the_key() -> None:
    """And which function it was."""

    def fail(old: First) -> Third:
        raise KeyError(old.note)

    nothing: dict[str, Any] = {}

    def forget(old: First) -> Third:
        return cast("Third", nothing.get(old.note))

    driver = driver_of(sessions(count, First, "buckets"))
    add(driver, View(2, "a"), at("12:00"), ["ann"])
    driver.advance_watermark_to(at("12:01"))
    driver.run_batch()

    for function, text in ((fail, "raised KeyError"), (forget, "must return a Third, found None")):
        spec = sessions(count_texts, Third, "buckets", storage=Storage(upgrade={1: function}))
        with pytest.raises(UserFunctionError, match=text) as failed:
            states(changed(driver, spec))
        assert "`upgrade[1]`" in str(failed.value)
        assert "on_error" not in str(failed.value)


def test_differences_come_in_the_order_of_their_names() -> None:
    """An entry that only one side has is a difference too; equal entries are none."""
    stored, wanted = {"b": 1, "a": [1], "same": {"x": 1}}, {"c": 2, "a": [2], "same": {"x": 1}}
    expected = [
        "`a` is [2] in the spec, [1] in the checkpoint",
        "`b` is None in the spec, 1 in the checkpoint",
        "`c` is 2 in the spec, None in the checkpoint",
    ]
    assert expected == identity_differences(stored, wanted)
    assert [] == identity_differences(stored, stored)


def test_durations_are_shown_as_a_spec_has_them() -> None:
    """Under the names of their arguments; the longest gap is the gap where no function says it."""
    stored = {"gap_us": 600_000_000, "longest_gap_us": 600_000_000, "watermark_delay_ms": 0}
    wanted = {"gap_us": 540_000_000, "longest_gap_us": 540_000_000, "watermark_delay_ms": None}
    of_function = stored | {"gap_us": None, "longest_gap_us": 1_200_000_000}

    assert identity_differences(stored, wanted) == [
        "`gap` is 9 minutes in the spec, 10 minutes in the checkpoint",
        "`watermark_delay` is None in the spec, 0 seconds in the checkpoint",
    ]
    assert identity_differences(stored, of_function) == [
        "`gap` is None in the spec, 10 minutes in the checkpoint",
        "`longest_gap` is 20 minutes in the spec, 10 minutes in the checkpoint",
    ]


NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)


@attrs.frozen
class PageView:
    page: str


def spec_of(**rules: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.aggregate(
        PageView,
        {"views": agg.count(), "last": agg.last("page")},
        keys={"user": str},
        event_time="ts",
        timeout=SessionRules("30 minutes", **rules),
        watermark_delay="10 minutes",
        order="event_time" if SessionRules("1s", **rules).in_order else "arrival",
    )


def with_a_view(spec: SessionSpec[Any, Any, Any]) -> SessionDriver[Any, Any, Any]:
    driver = SessionDriver(spec)
    driver.add("ann", NOON, PageView("/"))
    driver.run_batch()
    return driver


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"extends": pc.field("page") != "/beat"}),
        ({"extends": pc.field("page") != "/beat"}, {}),
        ({"max_events": 9, "until": lambda view: view.page == "/a"}, {"max_events": 9}),
        ({"max_events": 9}, {"max_events": 9, "starts_with": pc.field("page") == "/b"}),
    ],
)
def test_a_predicate_may_change_between_two_runs(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """An open session goes on, and new events are judged by the new rules."""
    spec = spec_of(**after)
    driver = SessionDriver.restore(spec, with_a_view(spec_of(**before)).snapshot())
    driver.add("ann", NOON + timedelta(minutes=5), PageView("/beat"))
    driver.run_batch()
    (session,) = driver.open_sessions()
    extends = 0 if "extends" in after else 5
    assert session.state.views == 2
    assert session.session_end == NOON + timedelta(minutes=30 + extends)


@attrs.define
class Visit:
    views: int = 0

    def update(self, event: PageView) -> None:
        self.views += 1


def shorter_after_two(visit: Visit) -> timedelta:
    return timedelta(minutes=30 if visit.views < 2 else 5)


@pytest.mark.parametrize(
    ("before", "after", "end"), [(None, shorter_after_two, 15), (shorter_after_two, None, 40)]
)
def test_a_gap_by_the_state_may_change_between_two_runs(before: Any, after: Any, end: int) -> None:
    """An open session keeps its end until the next event, whose gap is by the new rule."""
    specs = [
        SessionSpec.of(
            Visit,
            keys={"user": str},
            event_time="ts",
            timeout=SessionRules("30 minutes", max_events=9, state_gap=gap),
            watermark_delay="1 minute",
            order="event_time",
        )
        for gap in (before, after)
    ]
    driver = SessionDriver(specs[0])

    def end_after(minute: int) -> datetime:
        driver.add("ann", NOON + timedelta(minutes=minute), PageView("/"))
        moving_the_watermark = NOON + timedelta(minutes=minute + 2)
        driver.add("bob", moving_the_watermark, PageView("/"))
        driver.run_until_idle()
        return next(one.session_end for one in driver.open_sessions() if one.key.user == "ann")

    assert end_after(0) == NOON + timedelta(minutes=30)
    driver = SessionDriver.restore(specs[1], driver.snapshot())
    assert end_after(10) == NOON + timedelta(minutes=end)


def test_the_watermark_delay_may_change_between_two_runs() -> None:
    """The watermark stays until it's ahead again, and then moves by the new delay."""
    spec, minute = spec_of(), timedelta(minutes=1)
    driver = with_a_view(spec)
    assert NOON - 10 * minute == driver.watermark
    driver = SessionDriver.restore(attrs.evolve(spec, watermark_delay="1 hour"), driver.snapshot())
    for later, expected in ((50, -10), (55, -5)):
        driver.add("ann", NOON + later * minute, PageView("/"))
        driver.run_batch()
        assert NOON + expected * minute == driver.watermark
    assert 2 == len(driver.open_sessions())
    driver = SessionDriver.restore(attrs.evolve(spec, watermark_delay="1m"), driver.snapshot())
    driver.add("ann", NOON + 60 * minute, PageView("/"))
    driver.run_until_idle()
    assert NOON + 59 * minute == driver.watermark
    assert 1 == len(driver.open_sessions())


@pytest.mark.parametrize(("make", "layout"), CASES)
def test_another_delay_goes_on_with_what_is_stored(make: Any, layout: str) -> None:
    """Sessions and keys need no migration for it, but a watermark is neither added nor removed."""
    spec = make(count, First, layout)
    driver = driver_of(spec)
    add(driver, View(2, "a"), at("12:00"))
    before = states(driver)

    assert before == states(changed(driver, attrs.evolve(spec, watermark_delay="2 hours")))
    if make is keys:
        arriving = attrs.evolve(spec, order="arrival")
        driver = driver_of(arriving)
        add(driver, View(2, "a"), at("12:00"))
        none: dict[str, Any] = {"watermark_delay": None, "timeout": NoTimeout(), "on_timer": None}
        with pytest.raises(StateError, match="`watermark_delay` is None in the spec"):
            states(changed(driver, attrs.evolve(arriving, **none)))


@pytest.mark.parametrize(
    "after", [{"max_duration": "1h"}, {"max_events": 8}, {"changes_of": "page"}]
)
def test_another_kind_of_rule_is_refused_over_a_checkpoint(after: dict[str, Any]) -> None:
    """What is stored follows from it."""
    driver = with_a_view(spec_of(max_events=9))
    with pytest.raises(StateError, match="rules"):
        SessionDriver.restore(spec_of(**after), driver.snapshot()).open_sessions()
