"""Users' functions are checked before anything runs: what they are, and what they take."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from sessionkit.spec.functions import call_failed, name_of, traceback_of
from sessionkit.spec.signatures import check_function
from tests.support.refusals import refusal as refused
from tests.support.refusals import says


@attrs.define
class Loaded:
    """What all events have in common: nothing."""


@attrs.define
class View(Loaded):
    url: str


@attrs.define
class Visit:
    pages: int = 0


@attrs.define
class Row:
    pages: int = 0


class Counter:
    def __call__(self, state: Visit, _event: View) -> Visit:
        return state


class AsyncCounter:
    async def __call__(self, state: Visit, _event: View) -> Visit:
        """Count nothing, later."""
        return state

    def method(self, state: Visit, _event: View) -> Visit:
        return state


def update(state: Visit, event: View) -> Visit:
    return state


async def update_later(state: Visit, event: View) -> Visit:
    """Take what `update` is given, but asynchronously."""
    return state


async def updates_later(state: Visit, event: View) -> Any:
    """Yield asynchronously."""
    yield state


def update_with_bound(limit: int, state: Visit, event: View) -> Visit:
    return state


def check(function: Any) -> None:
    check_function(function, "update", state=Visit, event=View)


def refusal(function: Any) -> str:
    """Return the text with which a function is refused as `update`."""
    return refused(check, function)


@pytest.mark.parametrize(
    "function",
    [
        update,
        lambda state, _: state,
        lambda *anything: anything[0],
        lambda state, _event, _weight=1: state,
        lambda first, /, _second: first,
        functools.partial(update_with_bound, 3),
        Counter(),
        AsyncCounter().method,
        max,
        dict.update,
    ],
)
def test_what_can_be_called_with_two_arguments_is_accepted(function: Any) -> None:
    """Functions, lambdas, partials, methods and objects pass, whatever their parameters' names."""
    check(function)


@pytest.mark.parametrize("hint", [View, Loaded, object, "View", View | None, "Nowhere", None])
def test_annotations_that_fit_are_accepted(hint: Any) -> None:
    """The class itself, one above it, a union, and what cannot be resolved pass."""

    def function(state: Visit, event: View) -> Visit:
        return state

    function.__annotations__["event"] = hint
    if hint is None:
        del function.__annotations__["event"]
    check(function)


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), ("update", "str"), (3, "int")])
def test_what_cannot_be_called_is_refused(value: object, kind: str) -> None:
    """A value in the place of a function is shown, with the function to write."""
    assert says(refusal(value), "`update`", f"{value!r} ({kind})", "def update(state, event)")


@pytest.mark.parametrize(
    "function", [update_later, functools.partial(update_later), updates_later, AsyncCounter()]
)
def test_whatever_is_asynchronous_is_refused(function: Any) -> None:
    """The engine calls functions plainly, so a coroutine would never run."""
    assert says(refusal(function), "`update`", "the async ")


def yielding(state: Visit, event: View) -> Any:
    """Yield a state, which nothing takes."""
    yield state


@pytest.mark.parametrize("function", [yielding, functools.partial(yielding)])
def test_a_generator_is_refused_where_one_value_is_meant(function: Any) -> None:
    """Its body would never run; a function that gives rows may be one."""
    assert says(refusal(function), "`update`", "the generator ", "`return`")
    check_function(yielding, "finish", session=None, state=None)


def without_return(session: Any, state: Visit) -> View:  # type: ignore[return]
    """Make a row, and forget to return it."""
    View(str(state.pages))


def test_a_function_that_never_returns_what_it_promises_is_refused() -> None:
    """It's found where the spec is made, since no path of the function returns anything."""
    text = refused(check_function, without_return, "finish", session=None, state=Visit)
    assert says(text, "`finish` (", "`-> View`")


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (lambda: None, "()"),
        (lambda state: state, "(state)"),
        (lambda a, _b, *, _c: a, "(a, _b, *, _c)"),
        (lambda a, *, _event: a, "(a, *, _event)"),
    ],
)
def test_a_function_of_other_arguments_is_refused(function: Any, signature: str) -> None:
    """A function that cannot be called with two arguments is refused with its signature."""
    name = f"{__name__}.<lambda>{signature}"
    assert says(refusal(function), "`update`", f"found {name}: ", "def update(state, event)")


def test_a_third_parameter_that_is_needed_must_be_the_time() -> None:
    """Nothing else can be given for it, and the hint says so."""
    assert says(refusal(lambda state, _event, _config: state), "'_config'", "`time`")


def test_an_annotation_of_another_class_is_refused() -> None:
    """A function that declares another class than it is given was meant for another place."""

    def other(state: Row, event: View) -> Row:
        return state

    assert says(refusal(other), "`update`", f"{other.__qualname__} declares `state: Row`")
    assert says(refusal(other), "Hint: declare `state: Visit`")


def by_class(first: View, second: Visit) -> None:
    """Take the event first, by the annotations."""


def by_name(event, state):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Take the event first, by the names."""


@pytest.mark.parametrize(
    ("swapped", "shown"), [(by_class, "(first: View, second: Visit)"), (by_name, "(event, state)")]
)
def test_parameters_in_another_order_are_refused(swapped: Any, shown: str) -> None:
    """Annotations say the order; where there are none, the names do."""
    text = refusal(swapped)
    assert says(text, "another order", f"{swapped.__name__}{shown}", "def update(state, event)")


def test_classes_say_more_of_the_order_than_names() -> None:
    """A parameter whose class is right may have any name, also that of another one."""

    def odd(event: Visit, state: View) -> Visit:
        return event

    check(odd)


@pytest.mark.parametrize("said", [list[View], int, Mapping[str, View]])
def test_an_annotation_that_no_event_fits_is_refused(said: Any) -> None:
    """`update` is given one event: not a list of them, nor a number."""

    def plain(state: Visit, event: Any) -> Visit:
        return state

    plain.__annotations__["event"] = said
    text = refusal(plain)

    assert "`update` is given a View as its event, but " in text
    assert text.endswith("Hint: declare `event: View`")


def test_a_parameter_without_a_class_may_be_annotated_freely() -> None:
    """The key has no class that a user could name, so its annotation is the user's own."""

    def create(key: int, event: View) -> Visit:
        return Visit()

    check_function(create, "create", key=None, event=View)


def test_a_function_is_named_as_its_author_would_look_for_it() -> None:
    """Module and qualified name; without the module where that is the program itself."""
    assert f"{__name__}.update" == name_of(update)
    assert f"{__name__}.AsyncCounter.method" == name_of(AsyncCounter().method)
    assert "functools.partial" in name_of(functools.partial(update))

    def local() -> None: ...

    local.__module__ = "__main__"
    assert local.__qualname__ == name_of(local)


def raised_by(function: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (whatever it is)
        function()
    return raised.value


def countdown(number: int) -> int:
    """Raise at the bottom of calls, each of which has a line of its own in the traceback."""
    if not number:
        message = "no more"
        raise ValueError(message)
    if number % 2:
        return countdown(number - 1)
    return 1 + countdown(number - 1)


def test_a_long_traceback_shows_its_last_frames() -> None:
    """A function that calls itself too often fails many events, each with its traceback."""
    lines = (traceback_of(raised_by(lambda: countdown(100))) or "").splitlines()

    assert 20 == sum(line.startswith("  File") for line in lines)
    assert "ValueError: no more" == lines[-1]


def test_an_error_without_a_frame_of_the_user_has_no_traceback() -> None:
    """As where a function is called with what it can't take: the error says it all."""
    error = raised_by(lambda: check_function(3, "update")).with_traceback(None)

    assert traceback_of(error) is None
    assert call_failed("update", update, "Key('a')", error).traceback is None
