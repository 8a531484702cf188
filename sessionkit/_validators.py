"""Checks of single arguments, as attrs runs them when a value is made."""

from typing import Any

import attrs

from sessionkit.errors import SpecError, with_hint


def choice(*options: str) -> Any:
    """Return the validator of an attribute that takes one of these; the first is the default."""

    def check(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
        if value not in options:
            found = f"`{attribute.name}` must be one of {', '.join(map(repr, options))}"
            raise SpecError(
                with_hint(f"{found}, found {value!r}", f"the default is {options[0]!r}")
            )

    return attrs.validators.and_(check)


def at_least_one(_: Any, attribute: "attrs.Attribute[int]", value: object) -> None:
    """Check a whole number from 1."""
    if type(value) is not int or value < 1:
        found = f"`{attribute.name}` must be a whole number from 1, found {value!r}"
        default = attribute.default if type(attribute.default) in (int, type(None)) else 1
        hint = "leave it out" if default is None else f"leave it out for the default, {default}"
        raise SpecError(with_hint(found, hint))


def column_name(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
    """Check the name of a column."""
    if not isinstance(value, str) or not value:
        found = f"`{attribute.name}` must be the name of a column, found {value!r}"
        raise SpecError(with_hint(found, f'write {attribute.name}="ts"'))


def flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    """Check a bool."""
    if not isinstance(value, bool):
        found = f"`{attribute.name}` must be True or False, found {value!r}"
        raise SpecError(with_hint(found, f"leave it out for {attribute.default}"))
