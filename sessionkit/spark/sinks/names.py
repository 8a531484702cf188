"""Names of columns, as a sink takes them."""

from collections.abc import Iterable

__all__ = ["names_in", "names_or_none"]


def names_in(names: Iterable[str] | str) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def names_or_none(names: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """Return one name or several as a tuple, and None as it is."""
    return None if names is None else names_in(names)
