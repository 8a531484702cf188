"""What `remember` returns for a session, and the next one finds."""

from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, NamedTuple, cast

import attrs
import pytest

from sessionkit import Lateness, Memory, Session, SessionSpec, SpecError, Storage, UserFunctionError
from sessionkit import aggregates as agg
from sessionkit._arrays import whole
from sessionkit._engine.sessions.features.key_history import Remembering
from sessionkit.errors import StateError
from sessionkit.state import RenamedFrom
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import memories_of

LIFE = timedelta(days=30)
SETTINGS: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "ts",
    "gap": "30 minutes",
    "watermark_delay": "0 seconds",
}


@attrs.frozen
class View:
    page: str = ""


class User(NamedTuple):
    user: str


class Other(NamedTuple):
    name: str


@attrs.frozen
class Shopper:
    visits: int = 0


@attrs.frozen
class Nothing:
    pass


@attrs.define
class Visit:
    pages: int = 0

    def update(self, _: View) -> None:
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages


@attrs.define
class Told:
    known: int | None

    @classmethod
    def of(cls, session: Session[Any, Shopper]) -> "Told":
        return cls(None if session.memory is None else session.memory.visits)


def finish(session: Session[Any, Shopper], _: Visit) -> Told:
    return Told.of(session)


def remember(session: Session[User, Shopper], _: Visit) -> Shopper:
    assert session.is_final, "an early row isn't remembered"
    return Shopper(1 + (session.memory.visits if session.memory else 0))


def spec_of(function: Any = remember, **options: Any) -> SessionSpec[Any, Any, Any]:
    memory = Memory(time_to_live=LIFE, remember=function, **options.pop("of_memory", {}))
    return SessionSpec.of(Visit, **{"finish": finish, "memory": memory, **SETTINGS, **options})


def shown(driver: SessionDriver[Any, Any, Any], *times: str, until: str | None = None) -> list[Any]:
    """
    Return what the rows of a micro-batch know: when they start, and how many visits.

    Before it, the watermark may move.
    """
    if until is not None:
        driver.advance_watermark_to(at(until))
    for time in times:
        driver.add("ann", at(time), View())
    driver.run_batch()
    return [(f"{row.session_start:%H:%M}", row.result.known) for row in driver.take_rows()]


def test_another_gap_goes_on_with_what_is_remembered() -> None:
    """A migration carries it; also to a spec that has had none, or drops it."""
    driver = SessionDriver(spec_of())
    shown(driver, "10:00", "12:00", "14:00")
    shown(driver)
    plain = attrs.evolve(spec_of(), memory=Memory(time_to_live=LIFE))
    same = driver.migrate(attrs.evolve(spec_of(), timeout="45 minutes"))
    assert shown(same, until="15:00") == [("14:00", 2)]
    dropped = driver.migrate(plain)
    assert shown(dropped, "16:00", until="15:00") == [("14:00", None)]
    again = dropped.migrate(spec_of())
    assert shown(again, until="17:00") == [("16:00", None)]


def for_an_hour() -> SessionSpec[Any, Any, Any]:
    """Return a spec that remembers for an hour."""
    return attrs.evolve(spec_of(), memory=Memory(time_to_live="1 hour", remember=remember))


@pytest.mark.parametrize(("time", "known"), [("11:29:59.999999", 1), ("11:30", None)])
def test_a_session_that_begins_when_the_hour_is_over_is_the_first(
    time: str, known: int | None
) -> None:
    """It's counted from the end of the session before."""
    driver = SessionDriver(for_an_hour())
    shown(driver, "10:00", time)

    assert [("10:00", None), (time[:5], known)] == shown(driver, until="12:00")


def test_a_session_that_began_in_time_finds_what_is_remembered_however_long_it_goes_on() -> None:
    """It's kept until that session is gone, though no other could find it any more."""
    driver = SessionDriver(for_an_hour())
    shown(driver, "10:00")
    assert shown(driver, "11:20", until="11:00") == [("10:00", None)]
    for time in ("11:40", "12:00", "12:20", "12:40"):
        assert shown(driver, time, until=time) == []
    assert shown(driver, until="13:10") == [("11:20", 1)]


@attrs.frozen
class Grown:
    """`Shopper` with a field of another name, one of a wider type, and new ones."""

    all_visits: Annotated[float, RenamedFrom("visits")]
    spent: int = 0
    sources: list[str] = attrs.field(factory=list)


@attrs.frozen
class Renamed:
    times: int = 0


@attrs.frozen
class Texts:
    visits: str = ""


@attrs.frozen
class Needs:
    visits: int
    spent: int


def remembering(cls: type[Any]) -> SessionSpec[Any, Any, Any]:
    """Return a spec that shows what is remembered, of a class, and remembers the same."""

    def told(session: Session[Any, Any], _: Visit) -> Told:
        return Told(session.memory and round(10 * session.memory.all_visits))

    def same(session: Session[Any, Any], _: Visit) -> Any:
        assert session.memory is None or session.memory == cls(session.memory.all_visits)
        return session.memory

    return spec_of(same, finish=told, result=Told, of_memory={"remembered": cls})


@pytest.mark.parametrize(
    "options",
    [{}, {"storage": Storage(layout="pages")}, {"lateness": Lateness(allowed="10 hours")}],
)
def test_a_class_may_change_between_two_runs(options: Any) -> None:
    """Where a rule says what a stored value becomes; a new field is filled with its default."""
    driver = SessionDriver(spec_of(**options))
    shown(driver, "10:00", "12:00")
    shown(driver, "14:00")
    grown = attrs.evolve(remembering(Grown), **options)
    driver = SessionDriver.restore(grown, driver.snapshot())
    assert shown(driver, "16:00", until="15:00") == [("12:00", 10), ("14:00", 10)]
    assert shown(driver, until="17:00") == [("16:00", 10)]


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Texts, "`Texts.visits` is str in the class, int in the checkpoint\n+Hint: undo the chan"),
        (Needs, "`Needs.spent` isn't in the checkpoint, and has no default\n+Hint: undo the chan"),
        (Renamed, "`visits` isn't in the class: was it renamed.\n+Hint: write `times: Annotated"),
    ],
)
def test_any_other_change_of_the_class_is_refused(cls: Any, message: str) -> None:
    """The error names the field; another gap in one go is refused too."""
    driver = SessionDriver(spec_of())
    shown(driver, "10:00", "12:00")
    shown(driver)
    other = remembering(cls)
    with pytest.raises(StateError, match=message):
        shown(SessionDriver.restore(other, driver.snapshot()), "12:10")
    with pytest.raises(StateError, match="what `remember` returns"):
        driver.migrate(attrs.evolve(other, timeout="45 minutes"))


class Mood(Enum):
    NEW = "new"


class Moods(Enum):
    KNOWN = "known"


@attrs.frozen
class Feels:
    mood: Mood = Mood.NEW


@attrs.frozen
class Felt:
    mood: Moods


def test_a_member_that_an_enum_has_lost_is_found() -> None:
    """By the session that would be given it, and by whoever reads all that is stored."""

    def told(_: Session[Any], __: Visit) -> Told:
        return Told(None)

    def spec(cls: type[Any], left: Any) -> SessionSpec[Any, Any, Any]:
        return spec_of(lambda _, __: left, finish=told, of_memory={"remembered": cls})

    driver = SessionDriver(spec(Feels, Feels()))
    shown(driver, "10:00", "12:00")
    shown(driver)
    felt = spec(Felt, None)
    after = SessionDriver.restore(felt, driver.snapshot())
    after.advance_watermark_to(at("13:00"))
    with pytest.raises(StateError, match="can't be read as Felt: .* no member of"):
        shown(after)
    (memory,) = memories_of(felt, driver.snapshot())
    reader = Remembering.of(felt)
    assert reader is not None
    with pytest.raises(StateError, match="can't be read as Felt"):
        reader.read(whole(memory.kept["remembered"]))


def test_a_function_that_is_added_or_dropped_needs_another_query() -> None:
    """What closed sessions left isn't known without it, and would be lost."""
    without = attrs.evolve(spec_of(), memory=Memory(time_to_live=LIFE))
    for before, after in ((without, spec_of()), (spec_of(), without)):
        driver = SessionDriver(before)
        shown(driver, "10:00", "12:00")
        with pytest.raises(StateError, match="`memory` is.*\n+Hint: carry the state over"):
            shown(SessionDriver.restore(after, driver.snapshot()), "12:10")


def raising(_: Session[Any], __: Visit) -> Shopper:
    msg = "no"
    raise ValueError(msg)


def of_another_class(_: Session[Any], visit: Visit) -> Shopper:
    return cast("Shopper", visit)


def too_large(_: Session[Any], __: Visit) -> Shopper:
    return Shopper(2**70)


def forgetful(session: Session[Any], _: Visit) -> Shopper:
    return Shopper(1) if session.memory is not None else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (forgetful, r"`remember` \(.*\), for Key\(user='ann'\), must return a Shopper, found None"),
        (
            raising,
            r"`remember` \(.*raising\) raised ValueError: no, for Key\(user='ann'\), session",
        ),
        (
            of_another_class,
            r"`remember` \(.*\), for Key\(user='ann'\), must return a Shopper, found",
        ),
        (too_large, r"`remember` \(.*\).*returned what does not fit: `Shopper.visits` must be an"),
    ],
)
def test_a_failure_names_the_function_and_the_key(function: Any, message: str) -> None:
    """It stops the query, or the session is a failed output whose row doesn't come out."""
    driver = SessionDriver(spec_of(function))
    shown(driver, "10:00", "12:00")
    with pytest.raises(UserFunctionError, match=message):
        shown(driver)
    driver = SessionDriver(spec_of(function, on_error="reject"))
    shown(driver, "10:00", "12:00")
    assert shown(driver) == []
    assert driver.counts.failed_output == 1


def said(session: Any = Session[Any], state: Any = Visit, returned: Any = Shopper) -> Any:
    """Return a function with these annotations."""

    def function(session: Any, state: Any) -> Any:
        return state

    function.__annotations__ = {"session": session, "state": state, "return": returned}
    return function


def too_many(_: Session[Any], __: Visit, ___: int) -> Shopper:
    return Shopper()


@attrs.define
class Unstorable:
    what: object


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (1, SpecError, "`remember` must be a function, found 1"),
        (said(state=Told), SpecError, "`remember` is given a Visit as its state, but .*: Told`"),
        (said(Session[Other]), SpecError, "declares the key as Other"),
        (said(Session[User, Told]), SpecError, "memory of its session as Told\n+Hint: write Shop"),
        (said(returned=Any), SpecError, "`remembered` is left out.*\n+Hint: pass remembered="),
        (said(returned=Nothing), SpecError, "returns Nothing, which has no fields"),
        (too_many, SpecError, r"`remember` must take remember\(session, state\), found"),
        (said(returned=Unstorable), SpecError, "`Unstorable.what`"),
    ],
)
def test_a_function_that_cannot_work_is_refused(function: Any, error: Any, message: str) -> None:
    """At construction."""
    with pytest.raises(error, match=message):
        spec_of(function)


def test_the_class_may_be_given() -> None:
    """Where no annotation says it, as of a lambda."""
    spec = spec_of(lambda _, __: Shopper(7), of_memory={"remembered": Shopper})
    driver = SessionDriver(attrs.evolve(spec, timeout="20 minutes"))
    shown(driver, "10:00", "12:00", "14:00")
    assert shown(driver) == [("10:00", None), ("12:00", 7)]


def test_a_spec_without_functions_has_no_state_to_remember() -> None:
    """It's told what it has instead."""
    memory: Any = Memory(time_to_live=LIFE, remember=remember)
    with pytest.raises(
        SpecError, match="a spec of aggregates has none\n+Hint: .*`first` and `last`"
    ):
        SessionSpec.aggregate(View, {"pages": agg.count()}, memory=memory, **SETTINGS)
    with pytest.raises(SpecError, match="a spec of events has none"):
        SessionSpec.per_event(View, memory=memory, **SETTINGS)
