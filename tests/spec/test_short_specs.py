"""Specs that say each thing once: classes from annotations, functions left out, methods."""

import inspect
import pickle
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import attrs
import pytest
from pyspark import cloudpickle

from sessionkit import (
    EventTimeGap,
    Functions,
    Inputs,
    KeyState,
    KeyTimes,
    Lateness,
    Memory,
    NoTimeout,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit._instants import duration_text
from sessionkit.errors import SpecError, StateValueError, UserFunctionError
from sessionkit.spec.functions import wrong_class
from sessionkit.spec.signatures import signature_of
from sessionkit.testing import SessionDriver, at


class User(NamedTuple):
    user_id: str


@attrs.define
class View:
    url: str


@attrs.define
class LongView(View):
    seconds: float


@attrs.define
class Click:
    button: int


@attrs.define
class Visit:
    """A state with methods; it is its own row."""

    pages: int = 0

    def update(self, event: View) -> None:
        self.pages += 1

    def merge(self, other: "Visit") -> None:
        self.pages += other.pages


@attrs.frozen
class Row:
    pages: int
    user: str = ""


@attrs.frozen
class Reading:
    """A frozen state with every method, one of which takes the time."""

    pages: int
    last: datetime

    @classmethod
    def create(cls, key: User, event: View, time: datetime) -> Self:
        return cls(1, time)

    def update(self, event: View, time: datetime) -> Self:
        return attrs.evolve(self, pages=self.pages + 1, last=max(self.last, time))

    def merge(self, other: Self) -> Self:
        return attrs.evolve(self, pages=self.pages + other.pages, last=max(self.last, other.last))

    def finish(self, session: Session[User]) -> Row:
        return Row(self.pages, session.key.user_id)


SETTINGS: dict[str, Any] = {
    "keys": {"user_id": str},
    "event_time": "ts",
    "watermark_delay": "10 minutes",
}


def create(key: Any, event: View) -> Visit:
    return Visit(1)


def update(state: Visit, event: View) -> Visit:
    return Visit(state.pages + 1)


def merge(left: Visit, right: Visit) -> Visit:
    return Visit(left.pages + right.pages)


def finish(session: Session, state: Visit) -> Row:
    return Row(state.pages)


FUNCTIONS = {"create", "update", "merge", "finish", "event", "state", "result"}


def spec_of(**changes: Any) -> SessionSpec[Any, Any, Any]:
    """Make a spec from functions only, some of its settings changed."""
    logic: Any = {"create": create, "update": update, "merge": merge, "finish": finish}
    given = {name: changes.pop(name) for name in FUNCTIONS & changes.keys()}
    logic = Functions(**logic | given)
    return SessionSpec(logic=logic, **{**SETTINGS, "timeout": "30 minutes", **changes})


def refusal(make: Callable[..., Any], *given: Any, **changes: Any) -> str:
    """Return the text with which a spec is refused."""
    with pytest.raises(SpecError) as refused:
        make(*given, **changes)
    return str(refused.value)


# -- classes from annotations ------------------------------------------------------------------


def test_classes_come_from_the_annotations_of_the_functions() -> None:
    """Event, state and result are those that the functions name."""
    spec = spec_of()

    assert (View, Visit, Row) == (spec.event, spec.state, spec.result)
    assert spec == spec_of(event=View, state=Visit, result=Row)


@pytest.mark.parametrize(
    "returned",
    [
        Row | None,
        list[Row],
        Iterable[Row] | None,
        Iterator[Row],
        Row | tuple[Row, ...],
        "Row | list[Row]",
        Generator[Row, Click, Visit],
    ],
)
def test_a_result_is_found_inside_of_what_finish_returns(returned: Any) -> None:
    """`| None`, lists, iterables and generators of rows say the class of a row."""

    def function(session: Session, state: Visit) -> Any: ...

    function.__annotations__["return"] = returned
    assert Row is spec_of(finish=function).result


def update_of_text(state: "Visit", event: "View") -> "Visit":
    return state


def untyped(first: Any, second: Any) -> Any:
    return first


def test_annotations_may_be_texts() -> None:
    """As under `from __future__ import annotations`."""
    spec = spec_of(create=untyped, update=update_of_text, merge=untyped)

    assert (View, Visit) == (spec.event, spec.state)


def update_long(state: Visit, event: LongView) -> Visit:
    return state


def test_the_class_that_fits_all_functions_is_taken() -> None:
    """A function may be written for a class above the one that it is given."""
    assert LongView is spec_of(update=update_long).event


def update_click(state: Visit, event: Click) -> Visit:
    return state


def test_annotations_that_disagree_are_refused() -> None:
    """Both functions are named, with what they say."""
    expected = (
        f"`event` is left out, and the annotations disagree: `create` ({__name__}.create) says "
        f"View, `update` ({__name__}.update_click) says Click\n\n"
        "Hint: make them agree, or pass event=..."
    )
    assert expected == refusal(spec_of, update=update_click)


def test_an_explicit_class_that_a_function_cannot_take_is_refused() -> None:
    """The parameter and its annotation are named."""
    text = refusal(spec_of, event=Click)

    found = "`event` is Click, and the annotations name another class: `create`"
    assert f"{found} ({__name__}.create) says View" in text
    assert text.endswith("Hint: leave event out, or change the annotations")


@attrs.define
class OddVisit(Visit):
    """A kind of visit."""


def create_click(key: Any, event: View) -> Click:
    return Click(1)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("event", lambda: stateful(process, event=Click)),
        ("state", lambda: stateful(process, state=Click)),
        ("result", lambda: stateful(process, result=Click)),
        ("result", lambda: spec_of(result=Click)),
        (
            "state",
            lambda: spec_of(
                state=Visit,
                event=View,
                create=create_click,
                update=untyped,
                merge=untyped,
                finish=untyped,
                result=Row,
            ),
        ),
    ],
)
def test_an_explicit_class_that_contradicts_the_annotations_is_refused(
    name: str, make: Any
) -> None:
    """Inside of `list[...]` and `KeyState[...]`, and in what a function returns."""
    assert f"`{name}` is " in (text := refusal(make))
    assert ", and the annotations name another class: `" in text


def test_an_explicit_class_may_be_above_or_below_that_of_an_annotation() -> None:
    """A function over a class can do with those below, and may return one of those."""

    def odd(key: Any, event: View) -> OddVisit:
        return OddVisit()

    spec = spec_of(
        state=Visit,
        event=View,
        create=odd,
        update=untyped,
        merge=untyped,
        finish=untyped,
        result=Row,
    )
    assert (Visit, OddVisit) == (spec.state, spec_of(state=OddVisit).state)


@pytest.mark.parametrize(
    ("name", "changes", "hint"),
    [
        ("event", {"create": untyped, "update": untyped}, "in `update`: `event: View`"),
        (
            "state",
            {
                "event": View,
                "create": untyped,
                "update": untyped,
                "merge": untyped,
                "finish": untyped,
            },
            "in `update`: `state: Visit`",
        ),
        ("result", {"finish": untyped}, "what `finish` returns"),
    ],
)
def test_a_class_that_nothing_says_is_asked_for(
    name: str, changes: dict[str, Any], hint: str
) -> None:
    """The hint is the argument, or the annotation that is missing."""
    expected = f"`{name}` is left out, and no annotation says it"

    assert f"{expected}\n\nHint: pass {name}=..., or annotate {hint}" == refusal(spec_of, **changes)


def test_a_name_that_cannot_be_resolved_is_shown() -> None:
    """A class that is local to a function is out of reach of an annotation that is a text."""

    def local(state: Visit, event: "Nowhere") -> Visit:  # type: ignore[name-defined] # noqa: F821
        return state

    text = refusal(spec_of, create=untyped, update=local)

    assert "<locals>.local) says 'Nowhere', which cannot be resolved" in text
    assert text.endswith("Hint: pass event=..., or define the class at the top of its module")


def test_a_changed_spec_reads_the_annotations_anew() -> None:
    """`attrs.evolve` takes over what was given, not what was inferred."""
    spec = spec_of(create=None)
    changed = attrs.evolve(spec, logic=attrs.evolve(spec.functions, update=update_click))

    assert Click is changed.event


def process(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row | None:
    """Do nothing."""


def on_timer(key: Any, name: str, state: KeyState[Visit], times: KeyTimes) -> Iterator[Row]:
    yield Row(1)


def bare(key: Any, events: list[View], state: KeyState, times: KeyTimes) -> None:  # type: ignore[type-arg]
    """Leave the class of the state out."""


def stateful(process: Any, **changes: Any) -> StatefulSpec[Any, Any, Any]:
    return StatefulSpec(**{**SETTINGS, "process": process, "timeout": NoTimeout(), **changes})


def test_the_classes_of_state_per_key_come_from_annotations_too() -> None:
    """From `list[View]`, `KeyState[Visit]` and what the function returns."""
    spec = stateful(process)

    assert (View, Visit, Row) == (spec.event, spec.state, spec.result)


def test_on_timer_says_what_process_does_not() -> None:
    """State and result may be named in one of the two only."""
    spec = stateful(bare, on_timer=on_timer)

    assert (Visit, Row) == (spec.state, spec.result)


def test_a_view_without_its_class_says_nothing() -> None:
    """`KeyState` alone isn't the state."""
    assert "`state` is left out, and no annotation says it" in refusal(stateful, bare)


# -- functions left out ------------------------------------------------------------------------


def test_create_and_finish_may_be_left_out() -> None:
    """A session starts from the state as its class makes it, and the state is the row."""
    driver = SessionDriver(spec_of(create=None, finish=None))
    for minute in ("10:00", "10:20"):
        driver.add("ann", at(minute), View("/"))
    driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()

    assert [Visit(2)] == driver.take_results()


def test_a_state_that_needs_values_needs_create() -> None:
    """The fields that have no default are named."""

    def count(state: Row, event: View) -> Row:
        return state

    expected = (
        "`create` is left out, and Row cannot be made without pages\n\n"
        "Hint: pass create=..., or give the fields of Row defaults"
    )
    changes = {"create": None, "update": count, "finish": None, "merge": None}
    assert expected == refusal(spec_of, order="event_time", **changes)


@attrs.define
class Inner:
    """A part of a state that can change."""

    pages: int = 0


@attrs.frozen
class Outer:
    """A part that can't change itself, but what it holds can."""

    inner: Inner


@attrs.define
class NewDefaults:
    """A state whose defaults are made anew, or can't change."""

    urls: list[str] = attrs.field(factory=list)
    inner: Inner = attrs.field(factory=Inner)
    row: Row = Row(0)
    pair: tuple[int, str] = (0, "")
    fixed: bytes = b""


@pytest.mark.parametrize(
    ("default", "kind"),
    [
        ([], "list"),
        ({"/": 1}, "dict"),
        (Inner(), "Inner"),
        (Outer(Inner()), "Outer"),
        ((Inner(),), "tuple"),
    ],
)
def test_a_default_that_all_states_would_share_is_refused(default: Any, kind: str) -> None:
    """Without `create`, a change of it in one session would show in those of other keys."""
    annotations = {"list": list[str], "dict": dict[str, int], "tuple": tuple[Inner, ...]}
    field = attrs.field(default=default, type=annotations.get(kind, type(default)))
    shared = attrs.make_class("Shared", {"urls": field})

    text = refusal(
        spec_of, event=View, state=shared, create=None, update=untyped, merge=untyped, finish=None
    )

    found = f"`create` is left out, and all states would share one {kind}, the default of"
    hint = f"write `urls: ... = attrs.field(factory={kind})`"
    assert f"{found} `Shared.urls`\n\nHint: {hint}" == text


def test_a_shared_default_of_a_part_is_refused() -> None:
    """A new part each time is no help if all parts share what they hold."""
    part = attrs.make_class("Part", {"urls": attrs.field(default=[], type=list[str])})
    whole = attrs.make_class("Whole", {"part": attrs.field(factory=part, type=part)})

    text = refusal(
        spec_of, event=View, state=whole, create=None, update=untyped, merge=untyped, finish=None
    )

    assert "would share one list, the default of `Part.urls`\n\n" in text


def test_a_default_that_is_new_for_each_state_is_accepted() -> None:
    """So is one that can't change, and any default where `create` makes the state."""
    functions = {"event": View, "update": untyped, "merge": untyped, "finish": None}
    shared = attrs.make_class("Shared", {"urls": attrs.field(default=[], type=list[str])})

    spec = spec_of(state=NewDefaults, create=None, **functions)

    assert NewDefaults is spec.state
    assert shared is spec_of(state=shared, create=untyped, **functions).state


def test_a_row_of_another_class_needs_finish() -> None:
    """Without finish, the result is the state."""
    expected = (
        "`finish` is left out, so the state is the row, and Row is not Visit\n\n"
        "Hint: pass finish=..., or leave result out"
    )
    assert expected == refusal(spec_of, finish=None, result=Row)


@pytest.mark.parametrize("role", ["update", "merge"])
def test_a_frozen_state_cannot_be_changed_in_place(role: str) -> None:
    """A function that says it returns None changes its state, and a frozen one has no change."""

    def add(state: Row, other: Any) -> Row:
        return state

    def nothing(state: Row, other: Any) -> None: ...

    functions = {"create": lambda key, event: Row(1), "update": add, "merge": add, role: nothing}
    text = refusal(spec_of, event=View, finish=None, **functions)

    assert f"`{role}` (" in text
    assert "returns None: it changes the state in place, and Row is frozen\n\n" in text
    assert text.endswith("Hint: return the new state, or make Row with attrs.define")


@pytest.mark.parametrize("changed", ["in place", "a copy", "either"])
def test_a_frozen_state_is_refused_where_no_value_is_ever_returned(changed: str) -> None:
    """Without an annotation, what the function does tells that it changes its state in place."""

    @attrs.frozen
    class Frozen:
        pages: int = 0

        def update(self, event: View):  # type: ignore[no-untyped-def]  # noqa: ANN202
            if event.url == "/":
                return
            object.__setattr__(self, "pages", self.pages + 1)

        def merge(self, other: "Frozen"):  # type: ignore[no-untyped-def]  # noqa: ANN202
            return self

    def either(state: Frozen, event: View):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return attrs.evolve(state, pages=1) if event.url else None

    functions = {"a copy": lambda state, event: attrs.evolve(state, pages=1), "either": either}
    settings = {**SETTINGS, "gap": "30m", "event": View, "update": functions.get(changed)}
    if changed == "in place":
        text = refusal(SessionSpec.of, Frozen, **settings)
        assert "returns None: it changes the state in place, and Frozen is frozen\n\n" in text
    else:
        assert Frozen is SessionSpec.of(Frozen, **settings).state


def test_a_row_that_is_a_dict_is_refused_when_the_spec_is_made() -> None:
    """The columns are the fields of a class, and a dict has none."""

    def row(session: Session, state: Visit) -> dict[str, Any]:
        return {"pages": state.pages}

    found, _, hint = refusal(spec_of, finish=row).partition("\n\nHint: ")
    assert found.startswith("`result` is left out, and `finish` (")
    assert found.endswith(") says dict, which has no fields")
    assert hint == "declare an attrs class or a dataclass, and annotate what `finish` returns"


def test_a_dict_in_place_of_a_row_is_shown_its_class() -> None:
    """A dict has items, but none of them is a row."""

    def row(session: Session, state: Visit) -> Any:
        return {"pages": state.pages}

    driver = SessionDriver(spec_of(finish=row, result=Row))
    driver.add("ann", at("10:00"), View("/"))
    driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    with pytest.raises(UserFunctionError) as failed:
        driver.run_batch()
    assert "must return Row, found dict" in str(failed.value)
    assert str(failed.value).endswith("or None; write Row(pages=..., user=...)")


def test_none_in_a_field_that_needs_a_value_says_how_to_allow_it() -> None:
    """To turn it into text would store the word `None`."""

    def forget(state: Row, event: View) -> Row:
        return Row(state.pages, user=None)  # type: ignore[arg-type]

    create, merge = (lambda key, event: Row(1)), (lambda left, right: left)
    driver = SessionDriver(spec_of(create=create, update=forget, merge=merge, finish=None))
    driver.add("ann", at("10:00"), View("/"))
    driver.add("ann", at("10:01"), View("/"))
    with pytest.raises(StateValueError) as failed:
        driver.run_batch()
    assert "`Row.user` must be a str, found NoneType" in str(failed.value)
    assert str(failed.value).endswith(
        "Hint: declare it as `... | None` where it may be missing, or give it a default"
    )


# -- the event's time --------------------------------------------------------------------------


def takes_when(state: Visit, event: View, when: datetime) -> Visit:
    return state


@pytest.mark.parametrize(
    ("expected", "function"),
    [
        (False, lambda state, event: state),
        (False, lambda *given: given),
        (False, lambda state, event, weight=1: state),
        (False, max),
        (True, lambda state, event, time: state),
        (False, lambda state, event, config: state),
        (True, takes_when),
        (True, lambda state, event, time=None: state),
        (True, Reading.update),
        (True, Reading.create),
    ],
)
def test_a_third_parameter_asks_for_the_time(expected: bool, function: Any) -> None:
    """One that is named `time`, or that is needed and annotated `datetime`."""
    assert expected is signature_of(function).takes_time


def test_functions_may_take_the_time_of_the_event() -> None:
    """It is aware, in UTC, and needs no field in the event's class."""

    def start(key: Any, event: View, time: datetime) -> Reading:
        return Reading(1, time)

    def latest(state: Reading, event: View, time: datetime) -> Reading:
        return attrs.evolve(state, last=time)

    spec = spec_of(create=start, update=latest, merge=None, order="event_time", finish=None)
    assert (True, True) == (spec.functions.create_takes_time, spec.functions.update_takes_time)
    driver = SessionDriver(spec)
    for minute in ("10:00", "10:20"):
        driver.add("ann", at(minute), View("/"))
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()

    assert [Reading(1, at("10:20"))] == driver.take_results()


# -- the key -----------------------------------------------------------------------------------


class Other(NamedTuple):
    user: str


def by_user(key: User, events: list[View], state: KeyState[Visit], times: KeyTimes) -> None:
    """Declare the key."""


def by_other(key: Other, events: list[View], state: KeyState[Visit], times: KeyTimes) -> None:
    """Declare another key."""


def finish_other(session: Session[Other], state: Visit) -> Row:
    return Row(1)


def test_a_key_may_be_declared_as_a_named_tuple() -> None:
    """With the columns of the key as its fields, in their order."""
    assert by_user is stateful(by_user, result=Row).process


@pytest.mark.parametrize(
    ("role", "function", "make"),
    [
        ("finish", finish_other, lambda: spec_of(finish=finish_other)),
        ("process", by_other, lambda: stateful(by_other, result=Row)),
    ],
)
def test_a_key_of_other_fields_is_refused(role: str, function: Any, make: Any) -> None:
    """Whether a function declares the key, or a session with it."""
    expected = (
        f"`{role}` ({__name__}.{function.__name__}) declares the key as Other, with the fields "
        "user; `keys` has user_id\n\nHint: give Other the fields of `keys`, in their order"
    )
    assert expected == refusal(make)


# -- methods of the state class ----------------------------------------------------------------


def rows_of(spec: SessionSpec[Any, Any, Any]) -> list[Any]:
    """Return the rows of a session that an event in between made of two."""
    driver = SessionDriver(spec)
    for minute in ("10:00", "10:35", "10:20"):
        driver.add("ann", at(minute), View("/"))
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()
    return driver.take_results()


def test_every_method_is_read() -> None:
    """`create` and `finish` too; the key is as `finish` declares it."""
    spec = SessionSpec.of(Reading, timeout=EventTimeGap("30m"), **SETTINGS)

    assert [Row(3, "ann")] == rows_of(spec)


def test_what_is_given_wins_over_a_method() -> None:
    """All that `SessionSpec` takes may be given."""
    spec = SessionSpec.of(
        Visit,
        gap="30m",
        update=update,
        finish=finish,
        storage=Storage(bucket_count=2),
        order="arrival",
        **SETTINGS,
    )

    given: tuple[Any, ...] = (
        spec.functions.update,
        spec.finish,
        spec.result,
        spec.storage.bucket_count,
    )
    assert (update, finish, Row, 2) == given
    assert timedelta(minutes=30) == spec.timeout.gap


@attrs.define
class Shown(Visit):
    """A state that is its own row."""

    def finish(self, session: Session) -> Self:
        return self


@attrs.define
class ShownIfLong(Visit):
    """A state that is its own row, or none."""

    def finish(self, session: Session) -> list[Self] | None:
        return [self] if self.pages > 1 else None


@pytest.mark.parametrize("state", [Shown, ShownIfLong])
def test_self_is_the_state_class(state: Any) -> None:
    """Also where only a part of an annotation is `Self`."""
    spec = SessionSpec.of(state, gap="30m", **SETTINGS)

    assert state is spec.result
    assert [state(3)] == rows_of(spec)


@pytest.mark.parametrize("tool", [pickle, cloudpickle])
@pytest.mark.parametrize("state", [Visit, Reading])
def test_a_spec_of_a_state_class_pickles(tool: Any, state: Any) -> None:
    """It travels to the executors, with either pickle, and does the same there."""
    spec = SessionSpec.of(state, gap="30m", **SETTINGS)

    assert rows_of(spec) == rows_of(tool.loads(tool.dumps(spec)))


@attrs.define
class Silent:
    pages: int = 0


@attrs.define
class Unbound(Visit):
    """A state whose `create` is a method of an object."""

    def create(self, key: Any, event: View) -> Self:
        return self


@attrs.define
class Greedy(Visit):
    """A state whose `update` takes too much."""

    def update(self, event: View, time: datetime, more: int) -> None:  # type: ignore[override]
        """Take too much."""


@pytest.mark.parametrize(
    ("state", "changes", "found", "hint"),
    [
        (
            Silent,
            {},
            "`Silent` has no method `update`",
            "write `def update(self, event: View) -> None: ...` in it",
        ),
        (
            Unbound,
            {},
            "`Unbound.create` makes a state, so there is none yet to call it on",
            "write `@classmethod` above `def create(cls, key, event): ...`",
        ),
        (
            Visit(),
            {},
            "`SessionSpec.of` takes the state class, found Visit(pages=0) (Visit)",
            "write SessionSpec.of(Visit, ...)",
        ),
        (
            Visit,
            {"timeout": "30m"},
            "`gap` and `timeout` are the same",
            'write gap="30 minutes" alone; a copy has a timeout: attrs.evolve(spec, timeout="30m")',
        ),
    ],
)
def test_a_state_class_that_cannot_work_is_refused(
    state: Any, changes: dict[str, Any], found: str, hint: str
) -> None:
    """What is missing is a method, and the hint is the line to write."""
    text = refusal(SessionSpec.of, state, gap="30m", **SETTINGS, **changes)

    assert f"{found}\n\nHint: {hint}" == text


@pytest.mark.parametrize(
    ("slip", "role"),
    [
        ("finsh", "finish"),
        ("fihish", "finish"),
        ("finissh", "finish"),
        ("fiinsh", "finish"),
        ("Finish", "finish"),
        ("crate", "create"),
    ],
)
def test_a_method_with_a_slip_in_its_name_is_refused(slip: str, role: str) -> None:
    """Nothing would call it, and sessions would give rows without it."""
    state = type("Slipped", (Visit,), {slip: lambda self, session: self})
    text = refusal(SessionSpec.of, state, gap="30m", **SETTINGS)

    found = f"`Slipped.{slip}` would never be called, and there is no `{role}`"
    assert text.startswith(found)
    assert f"Hint: rename it `{role}`" in text


def test_a_slip_is_named_before_what_it_leaves_out() -> None:
    """A class without `update` is told of its `udpate`."""
    state = type("Slipped", (Silent,), {"udpate": lambda self, event: None})

    assert "Hint: rename it `update`" in refusal(SessionSpec.of, state, gap="30m", **SETTINGS)


def test_a_helper_may_have_any_other_name() -> None:
    """Private ones any name; so may one next to the method itself, a field, and a property."""
    helpers: dict[str, Any] = {
        "_finsh": lambda self: None,
        "finish_early": lambda self: None,
        "finished": property(lambda self: True),
        "updated": lambda self: None,
        "merged": lambda self: None,
    }
    state: Any = attrs.make_class(
        "Helped", {"created": attrs.field(default=0, type=int)}, (Visit,), helpers
    )

    assert SessionSpec.of(state, gap="30m", **SETTINGS).finish is None


def test_a_method_of_other_arguments_is_refused() -> None:
    """The method to write is shown as a method."""
    text = refusal(SessionSpec.of, Greedy, gap="30m", **SETTINGS)

    assert text.endswith("Hint: write `def update(self, event, time): ...`")


# -- a class that was defined again ------------------------------------------------------------


def test_a_class_that_was_defined_again_is_told_from_another() -> None:
    """In a notebook a cell that is run again makes a class of the same name."""

    def defined() -> Any:
        @attrs.define
        class Again:
            pages: int = 0

        return Again

    expected = (
        "`create` must return a Again, found one of another Again: the class was defined again "
        "after the spec\n\nHint: build the spec again too; in a notebook, run its cell again"
    )
    assert expected == wrong_class("`create` must return a", defined(), defined()())


def defined_again() -> tuple[Any, Any]:
    """Return two functions over an event, the class of which was defined again in between."""
    functions = []
    for _ in range(2):

        @attrs.define
        class Page:
            url: str

        def count(state: Visit, event: Page) -> Visit:
            return state

        functions.append(count)
    return functions[0], functions[1]


def test_a_function_from_before_the_class_of_its_event_was_defined_again() -> None:
    """Two classes that look the same to their reader are told apart by what happened."""
    before, after = defined_again()

    page = after.__annotations__["event"]
    given = refusal(spec_of, event=page, create=None, update=before)
    assert "<locals>.Page, and an annotation names the class as it was before it was" in given
    assert given.endswith("Hint: define the function again too; in a notebook, run its cell again")


def test_functions_from_before_and_after_a_class_was_defined_again() -> None:
    """The annotations disagree, and their text would be the same."""
    before, after = defined_again()

    text = refusal(spec_of, create=after, update=before, event=None)

    assert "one of the functions names a class from before it was defined again: " in text
    assert text.endswith("in a notebook, run their cells again")


def test_classes_of_one_name_are_shown_with_their_modules() -> None:
    """Where only the last part of their names is the same."""
    other = type("Visit", (), {"__module__": "elsewhere"})

    text = wrong_class("`create` must return a", Visit, other(), "build one")

    assert (
        f"`create` must return a {__name__}.Visit, found elsewhere.Visit\n\nHint: build one" == text
    )


# -- what both kinds of spec share -------------------------------------------------------------

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "spec.md"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \|", re.MULTILINE)
WORDS = {
    "event": "from annotations",
    "state": "from annotations",
    "result": "from annotations",
    "first": "none",
    "last": "none",
    "passthrough": "none",
    "create": "`State()`, then `update`",
    "finish": "the state is the row",
    "upgrade": "none",
    "version": "`1`, or one more than the last of `upgrade`",
    "lateness": "`Lateness()`",
    "results": "`Results()`",
    "inputs": "`Inputs()`",
    "storage": "`Storage()`",
}


def arguments(cls: type[Any]) -> dict[str, Any]:
    """Return the arguments of a spec, by name, with their fields."""
    return {field.alias: field for field in attrs.fields(cls) if field.init and field.alias}


def default_of(field: Any) -> str:
    """Return a default as the reference shows it."""
    if field.alias in WORDS:
        return WORDS[field.alias]
    if field.default is attrs.NOTHING:
        return "required"
    if isinstance(field.default, timedelta):
        return f'`"{duration_text(field.default)}"`'
    shown = f"{field.default:_}" if type(field.default) is int else repr(field.default)
    return f"`{shown}`".replace("'", '"')


def tables() -> list[dict[str, str]]:
    """Return the defaults that each table of the reference shows."""
    sections = re.split(r"\n##+ ", TABLE.read_text("utf-8"))
    return [dict(found) for section in sections if (found := ROW.findall(section))]


def test_the_reference_has_one_table_of_what_both_share() -> None:
    """Each shared argument is there, with the defaults that both classes have."""
    shared, *_ = tables()
    session, key = arguments(SessionSpec), arguments(StatefulSpec)

    expected = {}
    for name in [name for name in session if name in key]:
        of_session, of_key = default_of(session[name]), default_of(key[name])
        both = f"{of_session}; {of_key} in a `StatefulSpec`"
        expected[name] = of_session if of_session == of_key else both
    assert expected == shared


def test_the_reference_has_what_only_sessions_have() -> None:
    """And no more than that."""
    _, own, *_ = tables()
    session, key = arguments(SessionSpec), arguments(StatefulSpec)

    assert {name: default_of(field) for name, field in session.items() if name not in key} == own


def test_the_reference_has_the_functions_and_the_groups() -> None:
    """A table for each, in this order."""
    _, _, *shown, _ = tables()

    classes = (Functions, Lateness, Results, Memory, Inputs, Storage)
    for cls, table in zip(classes, shown, strict=True):
        assert {name: default_of(field) for name, field in arguments(cls).items()} == table


def test_the_reference_has_every_rule() -> None:
    """Those that an `EventTimeGap` has too aside."""
    *_, rules = tables()
    rule, gap = arguments(SessionRules), arguments(EventTimeGap)

    assert {name: default_of(field) for name, field in rule.items() if name not in gap} == rules


@pytest.mark.parametrize(
    "cls", [SessionSpec, StatefulSpec, Functions, Lateness, Results, Memory, Inputs, Storage]
)
def test_a_docstring_says_every_argument_once(cls: type[Any]) -> None:
    """Nothing is left out, and nothing is said of another class."""
    lines = re.findall(r"^        (\w+(?:, \w+)*): ", str(cls.__doc__), re.MULTILINE)

    shown = [name for line in lines for name in line.split(", ") if name in arguments(cls)]
    assert sorted(arguments(cls)) == sorted(shown)


@pytest.mark.parametrize("cls", [SessionSpec, StatefulSpec])
def test_a_spec_has_at_most_fourteen_arguments(cls: type[Any]) -> None:
    """What few need is in groups."""
    assert len(arguments(cls)) <= 14


@pytest.mark.parametrize("name", ["of", "aggregate", "per_event"])
def test_a_constructor_shows_every_argument(name: str) -> None:
    """With the defaults that `SessionSpec` has."""
    shown = inspect.signature(getattr(SessionSpec, name)).parameters
    fields = arguments(SessionSpec)
    del fields["logic"]

    for argument, field in fields.items():
        needed = field.default is attrs.NOTHING
        assert (inspect.Parameter.empty if needed else field.default) == shown[argument].default
