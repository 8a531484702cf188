"""A table of PostgreSQL as a sink: each row exactly once. Needs the extra `postgres`."""

from sessionkit.addons.postgres.sink import Postgres

__all__ = ["Postgres"]
