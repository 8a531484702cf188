"""The reference of the arguments of a spec: its table, and the docstrings."""

import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from sessionkit import (
    EventTimeGap,
    Functions,
    Inputs,
    Lateness,
    Memory,
    Results,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit._instants import duration_text

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "spec.md").read_text("utf-8")
ROW = re.compile(r"^\| (`[^|]*`) \| ([^|]*) \|", re.MULTILINE)
GROUPS = (Lateness, Results, Inputs, Storage, Memory)
WORDS = {
    "first": "none",
    "last": "none",
    "passthrough": "none",
    "upgrade": "none",
    "version": "from `upgrade`",
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


def rows() -> dict[str, str]:
    """Return the arguments and defaults that the page shows; a row may have several arguments."""
    cells = ROW.findall(PAGE)
    return {name: default for names, default in cells for name in re.findall(r"`(.+?)`", names)}


def test_the_reference_has_every_argument_of_a_session_spec() -> None:
    """With its default, and the default of a `StatefulSpec` where that differs."""
    session, key = arguments(SessionSpec), arguments(StatefulSpec)
    expected = {}
    for name in session.keys() - {"lateness", "results", "inputs", "storage"}:
        of_session = default_of(session[name])
        of_key = default_of(key[name]) if name in key else of_session
        both = f"{of_session}; {of_key} in a `StatefulSpec`"
        expected[name] = of_session if of_session == of_key else both

    assert expected == {name: text for name, text in rows().items() if name.isidentifier()}


def test_the_reference_has_every_argument_of_a_group() -> None:
    """Written as a call: `Results(emit=...)`."""
    expected = {
        f"{cls.__name__}({name}=...)": default_of(field)
        for cls in GROUPS
        for name, field in arguments(cls).items()
    }
    assert expected == {name: text for name, text in rows().items() if name.endswith("=...)")}


def test_the_reference_names_every_rule() -> None:
    """In the section of `SessionRules`, which leaves their meaning to another page."""
    section = PAGE.split("\n## `SessionRules`\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert set() == arguments(SessionRules).keys() - arguments(EventTimeGap).keys() - named


@pytest.mark.parametrize(
    "cls", [SessionSpec, StatefulSpec, Functions, Lateness, Results, Memory, Inputs, Storage]
)
def test_a_docstring_says_every_argument_once(cls: type[Any]) -> None:
    """Nothing is left out, and nothing is said of another class."""
    lines = re.findall(r"^        (\w+(?:, \w+)*): ", str(cls.__doc__), re.MULTILINE)

    shown = [name for line in lines for name in line.split(", ") if name in arguments(cls)]
    assert sorted(arguments(cls)) == sorted(shown)


@pytest.mark.parametrize("name", ["of", "aggregate", "per_event"])
def test_a_constructor_shows_every_argument(name: str) -> None:
    """With the defaults that `SessionSpec` has."""
    shown = inspect.signature(getattr(SessionSpec, name)).parameters
    fields = arguments(SessionSpec)
    del fields["logic"]

    for argument, field in fields.items():
        needed = field.default is attrs.NOTHING
        assert (inspect.Parameter.empty if needed else field.default) == shown[argument].default
