"""Connections to PostgreSQL, whose errors don't show how they are made."""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sessionkit.errors import SpecError, with_hint

__all__ = ["connected"]


def connected(dsn: str | Callable[[], str]) -> "psycopg.Connection[Any]":
    """
    Connect.

    Raises:
        SpecError: The text isn't one by which anyone can connect. The message doesn't show it.
        psycopg.OperationalError: The server can't be reached, or refuses.
    """
    text = dsn if isinstance(dsn, str) else dsn()
    try:
        conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        found = "PostgreSQL can't read `dsn`, which isn't shown here: it may have a password"
        hint = "write it as postgresql://user@host/database, or host=... dbname=... user=..."
        raise SpecError(with_hint(found, hint)) from None
    return psycopg.connect(text, application_name="sessionkit")
