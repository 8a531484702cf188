"""The errors: what they inherit, and that their text is all there is to them."""

import inspect
import pickle
import re

import pytest

import sessionkit
from sessionkit import errors
from sessionkit.errors import with_hint

CLASSES: dict[str, type[Exception]] = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, Exception)
}
TREE_LINE = re.compile(r"^    (?P<indent> *)(?P<name>\w+Error)(?: \((?P<also>\w+)\))?")


def drawn_tree() -> dict[str, tuple[str, ...]]:
    """Read the names of the bases of each error from the tree drawn in the module."""
    bases: dict[str, tuple[str, ...]] = {}
    above: list[str] = []
    for found in map(TREE_LINE.match, (errors.__doc__ or "").splitlines()):
        if found is not None:
            depth = len(found["indent"]) // 2
            above[depth:] = [found["name"]]
            drawn = (*above[depth - 1 : depth], found["also"]) if depth else ("Exception",)
            bases[found["name"]] = tuple(name for name in drawn if name)
    return bases


def test_the_classes_of_errors_are_those_that_the_page_draws() -> None:
    """The tree in the docstring of the module shows every error and exactly its bases."""
    real = {name: tuple(base.__name__ for base in cls.__bases__) for name, cls in CLASSES.items()}
    assert drawn_tree() == real


def test_every_error_is_exported() -> None:
    """What can be raised can be caught by name, from one of two addresses."""
    at_the_root = {name for name in sessionkit.__all__ if name.endswith("Error")}
    assert sorted(CLASSES) == sorted([*at_the_root, *errors.__all__])


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_pickles_and_keeps_its_text(name: str) -> None:
    """An error crosses from one process to another with its class and its whole text."""
    error = CLASSES[name](with_hint("`Visit.pages` must be an int, found str", "convert it"))
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above
    assert (type(error), str(error), error.args) == (type(back), str(back), back.args)


def test_a_hint_follows_its_message_after_an_empty_line() -> None:
    """The hint follows the message after an empty line."""
    assert "too long\n\nHint: make it shorter" == with_hint("too long", "make it shorter")
