"""A PostgreSQL server for the tests of this folder."""

from collections.abc import Iterator

import pytest

from examples.embedded_postgres import Postgres, running_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running
