"""What the code of a function shows of it, without a call."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from sessionkit.spec.bytecode import attributes_alone, computes_in_vain, ends_in_none, loses


@attrs.define
class Visit:
    pages: int = 0
    urls: list[str] = attrs.field(factory=list)


def helper(state: Any, *_: Any) -> Any:
    return state


def assigns(state: Any, event: Any) -> Any:
    state = attrs.evolve(state, pages=state.pages + 1)


def assigns_by_helper(state: Any, event: Any) -> Any:
    state = helper(state, event)


def assigns_in_a_branch(state: Any, event: Any) -> Any:  # noqa: RET503 (forgotten)
    if event.url:
        return helper(state)
    state = helper(state, event)


def assigns_in_a_loop(state: Any, event: Any) -> Any:
    for url in event.urls:
        state = dataclasses.replace(state, pages=len(url))


def assigns_another(state: Any, event: Any) -> Any:
    changed = Visit(state.pages + len(event.url))  # noqa: F841


def drops(state: Any, event: Any) -> Any:
    attrs.evolve(state, pages=state.pages + 1)


def changes(state: Any, event: Any) -> Any:
    state.pages += 1


def changes_after(state: Any, event: Any) -> Any:
    state = helper(state)
    state.pages += 1


def changes_by_alias(state: Any, event: Any) -> Any:
    urls = state.urls
    urls += [event.url]


def changes_by_call(state: Any, event: Any) -> Any:
    state.urls.append(copy.copy(event.url))


def changes_in_a_loop(state: Any, event: Any) -> Any:
    for url in event.urls:
        state.urls.append(url)
        state = helper(state)


def changes_in_an_error(state: Any, event: Any) -> Any:
    try:
        state.pages += int(event.url)
    except ValueError:
        state = Visit()
    state.pages += 1


def changes_by_its_class(state: Any, event: Any) -> Any:
    Visit.__setattr__(state, "pages", attrs.evolve(state).pages + 1)


def does_nothing(state: Any, event: Any) -> Any:
    pass


def compares(state: Any, event: Any) -> Any:
    assert [state.lower() for state in event.urls] != state.urls


def returns(state: Any, event: Any) -> Any:
    state = attrs.evolve(state, pages=1)
    return state  # noqa: RET504 (as it's often written)


@pytest.mark.parametrize(
    "function",
    [
        assigns,
        assigns_by_helper,
        assigns_in_a_branch,
        assigns_in_a_loop,
        assigns_another,
        drops,
    ],
)
def test_a_new_object_that_is_dropped_is_seen(function: Any) -> None:
    """It is assigned and nothing reads it, or made in a function that can do nothing else."""
    assert loses(function, "state", Visit)


@pytest.mark.parametrize(
    "function",
    [
        changes,
        changes_after,
        changes_by_alias,
        changes_by_call,
        changes_by_its_class,
        changes_in_a_loop,
        changes_in_an_error,
        does_nothing,
        compares,
        returns,
        lambda state, event: None,
        lambda state, _: helper(state),
    ],
)
def test_what_may_change_the_state_passes(function: Any) -> None:
    """A call may do so, and a function may have nothing to do."""
    assert not loses(function, "state", Visit)


def adds(left: Any, right: Any) -> Any:
    left.pages + right.pages


def compares_by_mistake(left: Any, right: Any) -> Any:
    left.pages == left.pages + right.pages  # noqa: B015 (the mistake)


def forgets_the_state(state: Any, event: Any) -> Any:
    url = event.url  # noqa: F841


def names_the_sum(left: Any, right: Any) -> Any:
    pages = left.pages + right.pages  # noqa: F841


def takes_the_larger(left: Any, right: Any) -> Any:
    max(left.pages, right.pages)


def joins_lists(left: Any, right: Any) -> Any:
    [*left.urls, *right.urls]  # noqa: B018 (the mistake)


def sorts(left: Any, right: Any) -> Any:
    urls = sorted(left.urls + right.urls)  # noqa: F841


def adds_in_a_branch(state: Any, event: Any) -> Any:
    if event.url:
        state.pages + 1


def adds_in_a_loop(left: Any, right: Any) -> Any:
    for url in right.urls:
        left.urls + [url]  # noqa: RUF005 (the mistake)


@pytest.mark.parametrize(
    "function",
    [
        adds,
        adds_in_a_branch,
        adds_in_a_loop,
        compares_by_mistake,
        forgets_the_state,
        names_the_sum,
        takes_the_larger,
        joins_lists,
        sorts,
    ],
)
def test_a_value_that_nothing_takes_is_seen(function: Any) -> None:
    """The function calls nothing that could change the state, and assigns nothing."""
    assert computes_in_vain(function)


def checks(left: Any, right: Any) -> Any:
    assert left.pages + right.pages < 100
    if left.pages > right.pages:
        raise ValueError


def names_what_it_leaves(state: Any, event: Any) -> Any:
    _ = event.url


def branches(state: Any, event: Any) -> Any:
    if event.url == "/":
        pass


def sums_in_place(left: Any, right: Any) -> Any:
    urls = left.urls
    urls += right.urls


def extends(left: Any, right: Any) -> Any:
    left.urls.extend(left.urls + right.urls)


def returns_a_sum(left: Any, right: Any) -> Any:
    return left.pages + right.pages


@pytest.mark.parametrize(
    "function",
    [
        checks,
        names_what_it_leaves,
        branches,
        sums_in_place,
        extends,
        returns_a_sum,
        changes,
        changes_by_alias,
        changes_by_call,
        does_nothing,
        compares,
        helper,
        lambda state, event: None,
    ],
)
def test_a_value_that_something_may_take_passes(function: Any) -> None:
    """As does a function that has nothing to do, or that checks its arguments."""
    assert not computes_in_vain(function)


def reads(key: Any, events: Any, state: Any, times: Any) -> Any:
    held = state.get(Visit())
    changed = attrs.evolve(held, pages=held.pages + len(events))
    return changed if state.exists else None


def passes_on(key: Any, events: Any, state: Any, times: Any) -> Any:
    helper(key, state)


def keeps(key: Any, events: Any, state: Any, times: Any) -> Any:
    return [lambda: state.get().pages]


def assigns_a_view(key: Any, events: Any, state: Any, times: Any) -> Any:
    state = state.get(None)
    return state.pages


@pytest.mark.parametrize(
    ("function", "asked"),
    [(reads, {"get", "exists"}), (passes_on, None), (keeps, None), (assigns_a_view, None)],
)
def test_what_is_asked_of_a_parameter_is_known_where_that_is_all(
    function: Callable[..., Any], asked: set[str] | None
) -> None:
    """Elsewhere than in the function itself, anything may be done with it."""
    assert asked == attributes_alone(function, "state")  # type: ignore[arg-type]


def test_a_function_that_never_returns_a_value_is_seen() -> None:
    """One that does so in a branch isn't."""
    functions: list[Any] = [assigns, assigns_in_a_branch]
    assert [True, False] == [ends_in_none(one) for one in functions]
