"""Events that fail under `on_error="reject"`: who is blamed, what is left, and at what cost."""

import random
from datetime import timedelta
from typing import Any, ClassVar

import attrs
import pytest

from sessionkit import EventTimeGap, Functions, SessionRules, SessionSpec
from sessionkit.testing import SessionDriver, at
from tests.support.session_specs import ended, fed, opened

GAP = timedelta(minutes=10)
CALLS_AN_EVENT = 4
"""How often a function may see an event: at first, on a copy, and without those that fail."""
ORDERED: dict[str, Any] = {"timeout": SessionRules(GAP, max_events=10_000), "order": "event_time"}


@attrs.frozen
class Step:
    """An event: its number, and whether the functions fail over it."""

    number: int
    bad: bool = False


@attrs.define
class Path:
    numbers: list[int] = attrs.field(factory=list)


@attrs.define
class Copied(Path):
    """A state that counts how often it is copied."""

    copies: ClassVar[list[int]] = []

    def __deepcopy__(self, _: Any) -> "Copied":
        self.copies.append(len(self.numbers))
        return Copied([*self.numbers])


@attrs.define
class Folding:
    calls: int = 0
    merges_fail: bool = False

    def create(self, _: Any, event: Step) -> Path:
        return self.update(Path([]), event)

    def update(self, state: Path, event: Step) -> Path:
        self.calls += 1
        state.numbers.append(event.number)
        if event.bad:
            raise ValueError
        return state

    def merge(self, left: Path, right: Path) -> Path:
        left.numbers += right.numbers
        if self.merges_fail:
            raise ValueError
        return left


def spoil(state: Path, event: Step) -> Path:
    """Leave what can't be stored after a bad event."""
    return Path([*state.numbers, "x" if event.bad else event.number])  # type: ignore[list-item]


def spec_of(functions: Folding, **changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec of these functions, under which failures are data."""
    logic: dict[str, Any] = {
        "create": functions.create,
        "update": functions.update,
        "merge": functions.merge,
        "finish": lambda session, state: state,
        "state": Path,
        "result": Path,
    }
    logic |= {name: changes.pop(name) for name in logic.keys() & changes.keys()}
    settings: dict[str, Any] = {
        "keys": {"key": str},
        "event_time": "ts",
        "logic": Functions(event=Step, **logic),
        "timeout": EventTimeGap(GAP),
        "watermark_delay": "10 hours",
        "on_error": "reject",
    }
    return SessionSpec(**settings | changes)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_key_with_many_bad_events_takes_a_fixed_number_of_calls_an_event(every: int) -> None:
    """Whether all events are bad or some, each is seen a few times only."""
    functions, number = Folding(), 600
    driver = SessionDriver(spec_of(functions))
    for place in range(number):
        driver.add("a", at("10:00") + place * timedelta(seconds=1), Step(place, place % every == 0))
    driver.run_batch()

    good = [place for place in range(number) if place % every]
    assert ([good] if good else []) == opened(driver)
    assert number - len(good) == driver.counts.failed
    assert functions.calls <= CALLS_AN_EVENT * number


@pytest.mark.parametrize("step", [timedelta(0), timedelta(seconds=1)])
@pytest.mark.parametrize("rules", [{"max_duration": "10 hours"}, {"max_events": 50}])
def test_many_bad_events_under_rules_take_as_few_calls(
    rules: dict[str, Any], step: timedelta
) -> None:
    """Though without each of them every session after it may be another one; at one instant too."""
    functions, number = Folding(), 1_000
    timeout = SessionRules(GAP, **rules)
    driver = SessionDriver(spec_of(functions, timeout=timeout, order="event_time"))
    for place in range(number):
        driver.add("a", at("10:00") + place * step, Step(place, place % 2 == 0))
    driver.run_batch()

    rows = [row.result.numbers for row in ended(driver)]
    assert [*range(1, number, 2)] == [n for numbers in rows for n in numbers]
    most = rules.get("max_events", number) if step else number
    assert {len(numbers) for numbers in rows} == {min(most, number // 2)}
    assert number // 2 == driver.counts.failed
    assert functions.calls <= CALLS_AN_EVENT * number


def test_bad_events_that_hold_a_session_together_let_it_fall_apart_in_as_few_calls() -> None:
    """Without them every good event is a session of its own."""
    functions, number = Folding(), 200
    driver = SessionDriver(spec_of(functions))
    for place in range(number):
        driver.add("a", at("10:00") + place * GAP * 0.7, Step(place, place % 2 == 1))
    driver.run_batch()

    assert [[place] for place in range(0, number, 2)] == opened(driver)
    assert functions.calls <= CALLS_AN_EVENT * number


def test_all_events_that_lead_up_to_a_session_fail_where_it_can_not_be_merged() -> None:
    """Each of them would join what `merge` refuses to join."""
    functions = Folding(merges_fail=True)
    driver = fed(SessionDriver(spec_of(functions)), ("10:00", Step(1)), ("10:16", Step(2)))
    fed(driver, ("10:03", Step(3)), ("10:07", Step(4)), ("10:08", Step(5)), ("10:17", Step(6)))

    assert [[1, 3], [2, 6]] == opened(driver)
    failed = [rejected.event_time for rejected in driver.take_rejections("failed")]
    assert [at("10:07"), at("10:08")] == sorted(filter(None, failed))


@pytest.mark.parametrize("options", [{}, ORDERED], ids=["plain", "ruled"])
def test_an_event_over_which_a_function_fails_once_is_not_lost(options: dict[str, Any]) -> None:
    """It's tried again, and that counts."""
    functions = Folding()

    def update(state: Path, event: Step) -> Path:
        functions.calls += 1
        if functions.calls == 2:
            raise ValueError
        return Path([*state.numbers, event.number])

    spec = spec_of(functions, update=update, create=None, **options)
    driver = fed(SessionDriver(spec), ("10:00", Step(1)), ("10:01", Step(2)))
    driver.advance_watermark_to(at("10:05"))
    driver.run_batch()

    assert [[1, 2]] == opened(driver)
    assert (2, 0) == (driver.counts.processed, driver.counts.failed)


@pytest.mark.parametrize("options", [{}, ORDERED], ids=["plain", "ruled"])
def test_functions_that_fail_at_random_cost_the_events_that_fail_twice(
    options: dict[str, Any],
) -> None:
    """No event takes others with it, and nothing is counted twice."""
    chance = random.Random(7)

    def update(state: Path, event: Step) -> Path:
        if chance.random() < 0.05:
            raise ValueError
        return Path([*state.numbers, event.number])

    driver = SessionDriver(spec_of(Folding(), update=update, **options))
    for place in range(300):
        driver.add("a", at("10:00") + place * timedelta(seconds=1), Step(place))
    driver.run_batch()
    driver.advance_watermark_to(at("10:06"))
    driver.run_batch()

    assert driver.counts.is_balanced
    assert 0 < driver.counts.failed < 40
    assert driver.counts.processed == len(opened(driver)[0])


def test_a_merge_that_leaves_what_can_not_be_stored_is_blamed_on_the_bridge() -> None:
    """Events that lie within a session of their own are not."""

    def merge(left: Path, right: Path) -> Path:
        return Path([*left.numbers, "x"])  # type: ignore[list-item]

    driver = fed(
        SessionDriver(spec_of(Folding(), merge=merge)),
        ("10:00", Step(1)), ("10:20", Step(2)),
    )  # fmt: skip
    fed(driver, ("10:05", Step(3)), ("10:13", Step(4)), ("10:25", Step(5)))

    assert [[1, 3], [2, 5]] == opened(driver)
    (failed,) = driver.take_rejections("failed")
    assert at("10:13") == failed.event_time
    assert failed.reason.startswith("`merge` (")


@pytest.mark.parametrize("options", [{}, ORDERED], ids=["plain", "ruled"])
@pytest.mark.parametrize(("bad", "most"), [({500}, 40), ({100, 400, 900}, 80)])
def test_a_state_is_copied_for_events_that_fail_and_not_for_others(
    bad: set[int], most: int, options: dict[str, Any]
) -> None:
    """So a state that grows with its session doesn't cost the square of its events."""

    def update(state: Copied, event: Step) -> Copied:
        state.numbers.append(event.number)
        if event.bad:
            raise ValueError
        return state

    changes: dict[str, Any] = {"state": Copied, "result": Copied, "update": update, "create": None}
    changes |= {"merge": None} if options else {}
    spec = spec_of(Folding(), **changes, **options)
    driver, number = SessionDriver(spec), 1_000
    for place in range(number):
        driver.add("a", at("10:00") + place * timedelta(seconds=1), Step(place, place in bad))
    Copied.copies.clear()
    driver.run_batch()

    assert [[n for n in range(number) if n not in bad]] == closed(driver)
    assert len(Copied.copies) <= most


@pytest.mark.parametrize("options", [{}, ORDERED], ids=["plain", "ruled"])
@pytest.mark.parametrize("bad", [False, True])
def test_a_state_that_fits_again_at_the_end_fails_no_event(
    options: dict[str, Any], bad: bool
) -> None:
    """Whether another event of its session fails or not."""

    def update(state: Path, event: Step) -> Path:
        if event.bad:
            raise ValueError
        added: Any = "x" if event.number == 2 else event.number
        return Path([*filter(lambda n: isinstance(n, int), state.numbers), added])

    driver = SessionDriver(spec_of(Folding(), update=update, create=None, **options))
    fed(
        driver,
        ("10:00", Step(1)), ("10:01", Step(2)), ("10:02", Step(3)), ("10:03", Step(4, bad=bad)),
    )  # fmt: skip

    assert [[1, 3] if bad else [1, 3, 4]] == closed(driver)
    assert bad == driver.counts.failed


@pytest.mark.parametrize("options", [{}, ORDERED], ids=["plain", "ruled"])
def test_where_the_last_state_does_not_fit_each_event_must_leave_one_that_does(
    options: dict[str, Any],
) -> None:
    """Those that don't fail alone, and other sessions of the key are left as they are."""
    driver = SessionDriver(spec_of(Folding(), update=spoil, create=None, **options))
    fed(
        driver,
        ("10:00", Step(1)), ("10:01", Step(2, bad=True)), ("10:02", Step(3)),
        ("10:03", Step(4, bad=True)), ("10:40", Step(5)),
    )  # fmt: skip

    assert [[1, 3], [5]] == closed(driver)
    failed = driver.take_rejections("failed")
    assert [at("10:01"), at("10:03")] == sorted(filter(None, [one.event_time for one in failed]))
    text = "for Key(key='a'), left a state that does not fit: `Path.numbers["
    assert {(True, True)} == {
        (one.reason.startswith("`update` ("), text in one.reason) for one in failed
    }


def test_an_event_whose_gap_fails_is_left_out_after_others_of_its_instant() -> None:
    """It was folded before they failed, and must not be in the state of those that follow."""

    def update(state: Path, event: Step) -> Path:
        if event.bad or (event.number == 4 and 2 in state.numbers):
            raise ValueError
        return Path([*state.numbers, event.number])

    def state_gap(state: Path) -> timedelta:
        if state.numbers[-1] == 2:
            raise ValueError
        return GAP

    timeout = SessionRules(GAP, state_gap=state_gap)
    spec = spec_of(Folding(), update=update, create=None, timeout=timeout, order="event_time")
    driver = fed(
        SessionDriver(spec),
        ("10:00", Step(1)), ("10:01", Step(2)), ("10:01", Step(3, bad=True)), ("10:02", Step(4)),
    )  # fmt: skip

    assert [[1, 4]] == closed(driver)
    assert 2 == driver.counts.failed


def test_under_rules_only_the_bridge_fails_between_sessions_that_can_not_be_merged() -> None:
    """After `migrate` to a longer gap, and without a `merge`; the other events are processed."""
    before = spec_of(Folding())
    driver = fed(SessionDriver(before), ("10:00", Step(1)), ("10:20", Step(2)))
    after = spec_of(
        Folding(), timeout=SessionRules(2 * GAP, max_events=10), order="event_time", merge=None
    )
    driver = driver.migrate(after)
    fed(driver, ("10:01", Step(3)), ("10:05", Step(4)), ("10:21", Step(5)), ("10:22", Step(6)))

    assert [[1], [2, 5, 6]] == closed(driver)
    found = [failed.event_time for failed in driver.take_rejections("failed")]
    assert [at("10:01"), at("10:05")] == sorted(filter(None, found))


@pytest.mark.parametrize("merges_fail", [False, True])
def test_open_sessions_that_reach_up_to_each_other_wait_for_an_event_that_joins_them(
    merges_fail: bool,
) -> None:
    """Midnight has parted them, and the new rules don't: an event elsewhere changes neither."""
    before = spec_of(Folding(), timeout=SessionRules(GAP, midnight="UTC"))
    driver = fed(SessionDriver(before), ("23:58", Step(1)), ("2026-01-02 00:01", Step(2)))
    after = spec_of(Folding(merges_fail=merges_fail))
    driver = fed(driver.migrate(after), ("2026-01-02 01:00", Step(3)))
    assert [[1], [2], [3]] == opened(driver)

    fed(driver, ("2026-01-02 00:03", Step(4)))
    assert ([[1], [2], [3]] if merges_fail else [[1, 2, 4], [3]]) == opened(driver)
    assert merges_fail == driver.counts.failed


def carried(before: SessionSpec[Any, Any, Any], **rules: Any) -> SessionDriver[Any, Any, Any]:
    """Open sessions at 10:10 and 10:30, and carry them over to rules and time order."""
    driver = fed(SessionDriver(before), ("10:10", Step(10)), ("10:30", Step(30)))
    timeout = SessionRules(GAP, **rules)
    return driver.migrate(attrs.evolve(before, timeout=timeout, order="event_time"))


def closed(driver: SessionDriver[Any, Any, Any]) -> list[list[int]]:
    return sorted(row.result.numbers for row in ended(driver))


@pytest.mark.parametrize("bad", [False, True])
def test_an_event_before_an_open_session_is_folded_onto_it(bad: bool) -> None:
    """Under rules that need an order too, and whether another event fails or not."""

    def update(state: Path, event: Step) -> Path:
        if event.bad or not state.numbers:
            raise ValueError
        return Path([*state.numbers, event.number])

    before = spec_of(Folding())
    driver = carried(
        attrs.evolve(before, logic=attrs.evolve(before.functions, update=update)), max_events=10
    )
    fed(driver, ("10:05", Step(5)), ("10:12", Step(12, bad=bad)))

    assert [[10, 5] if bad else [10, 5, 12], [30]] == closed(driver)
    assert bad == driver.counts.failed


def test_a_session_that_reaches_an_open_one_without_a_failed_event_is_folded_onto_it() -> None:
    """The failed event counted to `max_events`, so it was planned to end the session before."""
    driver = carried(spec_of(Folding()), max_events=4)
    fed(driver, ("10:15", Step(15)), ("10:20", Step(20, bad=True)), ("10:22", Step(22)))

    assert [[10, 30, 15, 22]] == closed(driver)


def test_the_traceback_of_an_event_does_not_show_those_before_it() -> None:
    """Events of one instant are tried one after the other, each for itself."""
    spec = spec_of(Folding())
    driver = fed(SessionDriver(spec), *[("10:00", Step(place, bad=True)) for place in range(3)])

    tracebacks = [failed.traceback or "" for failed in driver.take_rejections("failed")]
    assert [1, 1, 1] == [one.count("Traceback (most recent call last)") for one in tracebacks]
