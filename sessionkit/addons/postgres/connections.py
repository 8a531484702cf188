"""Connect to PostgreSQL, and retry transactions after a lost connection."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import LockNotAvailable, QueryCanceled, UndefinedTable

from sessionkit.addons.postgres import Postgres, check_readable, dsn_error
from sessionkit.errors import SinkError

Result = TypeVar("Result")

LOG: Final = logging.getLogger("sessionkit.postgres")
SETTINGS: Final = {
    "application_name": "sessionkit",
    "connect_timeout": 10,
    # These notice a server that vanishes within a minute instead of hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    # Of several hosts, connect to the current primary.
    "target_session_attrs": "read-write",
}
"""Defaults for settings that `dsn` leaves out."""
PASSING: Final = ("08", "40", "57", "55P03", "25P", "25006")
"""
Prefixes of the codes of transient errors.

Connection lost, rolled back, shut down or canceled, lock timeout, idle timeout, and no longer the
primary. A statement or a lock that timed out may be quick when the server is less busy.
"""
LASTING: Final = ("authentication failed", "no password", "no pg_hba.conf entry", "does not exist")
"""Parts of messages, without a code, of refusals for which a retry doesn't help."""
WAITS: Final = "PostgreSQL didn't write to the table %s (%s): again in %.3g s, for %.0f s more"
FIRST_WAIT_S: Final = 0.25
LONGEST_WAIT_S: Final = 5.0


def connected(dsn: str | Callable[[], str]) -> Connection[Any]:
    """Return a new connection; no error shows the address."""
    text = dsn if isinstance(dsn, str) else dsn()
    check_readable(text)
    try:
        settings = conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        raise dsn_error() from None
    if not str(settings.get("port") or 0).replace(",", "").isdigit():
        raise dsn_error()
    defaults: Any = {name: value for name, value in SETTINGS.items() if name not in settings}
    return psycopg.connect(text, **defaults)


@attrs.define
class Connections:
    """The connection of a sink, reopened after each loss, for repeatable transactions."""

    sink: Postgres
    current: Connection[Any] | None = attrs.field(default=None, init=False)

    def run(self, transaction: Callable[[Connection[Any]], Result]) -> Result:
        """Run a transaction; after a lost connection, run it again, even if it was committed."""
        end, wait_s = None, FIRST_WAIT_S
        while True:
            try:
                return self._once(transaction)
            except psycopg.Error as error:
                self.close()
                now = time.monotonic()
                end = now + self.sink.retry_for.total_seconds() if end is None else end
                if isinstance(error, QueryCanceled) and now >= end:
                    found = f"PostgreSQL canceled each try to write to {self.sink.table}: {error}"
                    hint = "give the role more time: ALTER ROLE .. SET statement_timeout = '10min'"
                    raise SinkError(found, hint) from error
                if isinstance(error, LockNotAvailable) and now >= end:
                    found = f"another run or session holds a lock on {self.sink.label}: {error}"
                    raise SinkError(found, "end it, then start this query again") from error
                if isinstance(error, UndefinedTable):
                    reason, *_ = str(error).splitlines()
                    found = f"a table that the query needs for {self.sink.label} is gone: {reason}"
                    hint = "start the query again: it makes its staging table, and checks the rest"
                    raise SinkError(found, hint) from error
                if not _passes(error) or now >= end:
                    raise
                reason, *_ = str(error).splitlines() or [type(error).__name__]
                LOG.warning(WAITS, self.sink.table, reason, wait_s, end - now)
            time.sleep(min(wait_s, end - now))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _once(self, transaction: Callable[[Connection[Any]], Result]) -> Result:
        if self.current is None:
            self.current = connected(self.sink.dsn)
        with self.current.transaction():
            return transaction(self.current)

    def close(self) -> None:
        if self.current is not None:
            self.current.close()
            self.current = None


def _passes(error: psycopg.Error) -> bool:
    """Return whether a retry of the transaction may succeed."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith(PASSING)
    lost = isinstance(error, psycopg.OperationalError)
    return lost and not any(text in str(error) for text in LASTING)
