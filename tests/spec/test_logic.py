"""What a spec reads of its functions: their classes, what is left out, the time and the key."""

from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from functools import partial, wraps
from typing import Any, NamedTuple

import attrs
import pytest

from sessionkit import KeyState, KeyTimes, Session, SessionSpec, UserFunctionError
from sessionkit.spec.functions import wrong_class
from sessionkit.spec.signatures import signature_of
from sessionkit.testing import SessionDriver, at
from tests.support.refusals import refusal, says
from tests.support.visit_specs import (
    SETTINGS,
    SILENT,
    TYPED,
    Click,
    LongView,
    Reading,
    Row,
    User,
    View,
    Visit,
    bare,
    create,
    on_timer,
    process,
    spec_of,
    stateful,
    untyped,
)

STARTED: dict[str, Any] = SILENT | {"event": View, "create": None, "finish": None}


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


def test_annotations_of_functions_may_be_texts() -> None:
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
    text = refusal(spec_of, update=update_click)

    assert says(text, "`event`", f"{create.__module__}.create) says View")
    assert says(text, f"{__name__}.update_click) says Click")


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
        ("state", lambda: spec_of(**SILENT | TYPED | {"create": create_click})),
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

    spec = spec_of(**SILENT | TYPED | {"create": odd})
    assert (Visit, OddVisit) == (spec.state, spec_of(state=OddVisit).state)


@pytest.mark.parametrize(
    ("name", "changes", "hint"),
    [
        ("event", {"create": untyped, "update": untyped}, "`event: View`"),
        ("state", {"event": View, **SILENT}, "`state: Visit`"),
        ("result", {"finish": untyped}, "what `finish` returns"),
    ],
)
def test_a_class_that_nothing_says_is_asked_for(name: str, changes: Any, hint: str) -> None:
    """The hint is the argument, or the annotation that is missing."""
    assert says(refusal(spec_of, **changes), f"`{name}`", f"pass {name}=...", hint)


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

    changes = {"create": None, "update": count, "finish": None, "merge": None}
    text = refusal(spec_of, order="event_time", **changes)
    assert says(text, "`create`", "Row cannot be made without pages")


@attrs.define
class Inner:
    """A part of a state that can change."""

    pages: int = 0


@attrs.frozen
class Outer:
    """A part that can't change itself, but what it holds can."""

    inner: Inner


NO_PAGES = Row(0)


@attrs.define
class NewDefaults:
    """A state whose defaults are made anew, or can't change."""

    urls: list[str] = attrs.field(factory=list)
    inner: Inner = attrs.field(factory=Inner)
    row: Row = NO_PAGES
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

    text = refusal(spec_of, state=shared, **STARTED)

    assert says(text, f"share one {kind}", "`Shared.urls`", f"factory={kind}")


def test_a_shared_default_of_a_part_is_refused() -> None:
    """A new part each time is no help if all parts share what they hold."""
    part = attrs.make_class("Part", {"urls": attrs.field(default=[], type=list[str])})
    whole = attrs.make_class("Whole", {"part": attrs.field(factory=part, type=part)})

    text = refusal(spec_of, state=whole, **STARTED)

    assert "would share one list, the default of `Part.urls`\n\n" in text


def test_a_default_that_is_new_for_each_state_is_accepted() -> None:
    """So is one that can't change, and any default where `create` makes the state."""
    shared = attrs.make_class("Shared", {"urls": attrs.field(default=[], type=list[str])})

    assert NewDefaults is spec_of(state=NewDefaults, **STARTED).state
    assert shared is spec_of(state=shared, **STARTED | {"create": untyped}).state


def test_a_row_of_another_class_needs_finish() -> None:
    """Without finish, the result is the state."""
    assert says(refusal(spec_of, finish=None, result=Row), "`finish`", "Row is not Visit")


@pytest.mark.parametrize("role", ["update", "merge"])
def test_a_frozen_state_cannot_be_changed_in_place(role: str) -> None:
    """A function that says it returns None changes its state, and a frozen one has no change."""

    def add(state: Row, other: Any) -> Row:
        return state

    def nothing(state: Row, other: Any) -> None: ...

    functions = {"create": lambda key, event: Row(1), "update": add, "merge": add, role: nothing}
    text = refusal(spec_of, event=View, finish=None, **functions)

    assert says(text, f"`{role}` (", "returns None", "Row is frozen")


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


def assigns(state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    state = attrs.evolve(state, pages=state.pages + 1)


def assigns_though_it_says(state: Visit, event: Any) -> None:
    state = attrs.evolve(state, pages=state.pages + 1)


def drops_what_it_is_given(by: int, state, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    attrs.evolve(state, pages=state.pages + by)


@pytest.mark.parametrize("role", ["update", "merge"])
@pytest.mark.parametrize(
    "function", [assigns, assigns_though_it_says, partial(drops_what_it_is_given, 2)]
)
def test_a_new_state_that_is_not_returned_is_refused(role: str, function: Any) -> None:
    """Each session would keep the one it had; what changes it, or may, is none of these."""
    text = refusal(spec_of, **TYPED, **{role: function})

    assert says(text, f"`{role}` (", "makes a new Visit and does not return it", "change `state`")


@pytest.mark.parametrize("role", ["create", "finish"])
def test_a_function_whose_value_is_its_use_must_return_one(role: str) -> None:
    """Without an annotation, what it does tells that it returns nothing."""

    def nothing(first, second):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        Row(1)

    text = refusal(spec_of, **TYPED, **{role: nothing})

    assert says(text, f"`{role}` (", "returns nothing", "end it with `return ...`")


def test_a_function_that_is_decorated_may_return_what_it_does_not() -> None:
    """What runs in the end isn't all that runs."""

    def returning(function: Any) -> Any:
        @wraps(function)
        def wrapper(state: Any, event: Any) -> Any:
            function(state, event)
            return state

        return wrapper

    assert Visit is spec_of(**TYPED, update=returning(assigns)).state


def test_a_row_that_is_a_dict_is_refused_when_the_spec_is_made() -> None:
    """The columns are the fields of a class, and a dict has none."""

    def row(session: Session, state: Visit) -> dict[str, Any]:
        return {"pages": state.pages}

    assert says(refusal(spec_of, finish=row), "`result`", "`finish` (", "says dict")


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
    text = refusal(make)
    assert says(text, f"`{role}` ({__name__}.{function.__name__})", "Other", "`keys` has user_id")


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

        # From Python 3.14 on, an annotation that nobody has read names the class of now.
        assert count.__annotations__["event"] is Page
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

    assert says(text, f"a {Visit.__module__}.Visit, found elsewhere.Visit\n\nHint: build one")
