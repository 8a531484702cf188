"""The reference of the arguments of a spec: its tables, and the docstrings."""

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


@pytest.mark.parametrize("name", ["of", "aggregate", "per_event"])
def test_a_constructor_shows_every_argument(name: str) -> None:
    """With the defaults that `SessionSpec` has."""
    shown = inspect.signature(getattr(SessionSpec, name)).parameters
    fields = arguments(SessionSpec)
    del fields["logic"]

    for argument, field in fields.items():
        needed = field.default is attrs.NOTHING
        assert (inspect.Parameter.empty if needed else field.default) == shown[argument].default
