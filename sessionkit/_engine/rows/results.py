"""What a function of the user returned: the result rows in it, and whether they fit."""

from collections.abc import Callable, Iterable
from typing import Any

from sessionkit.errors import StateValueError, UserFunctionError
from sessionkit.spec.functions import name_of, wrong_class
from sessionkit.state._codec import codec_of


def collected(found: Any, cls: type[Any]) -> list[Any]:
    """Return what was returned as a list; a generator runs to its end here."""
    if found.__class__ is cls:
        return [found]
    if found is None:
        return []
    return list(found) if isinstance(found, Iterable) else [found]


def check_rows(
    rows: list[Any], cls: type[Any], role: str, function: Callable[..., Any], key: Any
) -> None:
    """
    Check that rows are of the class of the result.

    Raises:
        UserFunctionError: One is not.
    """
    for row in rows:
        if row.__class__ is not cls:
            what = f"`{role}` ({name_of(function)}), for {key!r}, must return"
            hint = "return a result row, a list of them, or None"
            raise UserFunctionError(wrong_class(what, cls, row, hint))


def check_fit(
    rows: list[Any], cls: type[Any], role: str, function: Callable[..., Any], key: Any
) -> None:
    """
    Check that the values of rows fit their fields.

    Raises:
        UserFunctionError: One does not; it is named with its path.
    """
    try:
        codec_of(cls).encode(rows)
    except StateValueError as error:
        what = f"`{role}` ({name_of(function)}), for {key!r}, returned a row that does not fit"
        message = f"{what}: {error}"
        raise UserFunctionError(message) from error
