"""Fixtures of the tests of sinks."""

from collections.abc import Iterator

import pytest

from examples import embedded_postgres as server


@pytest.fixture(scope="module")
def postgres() -> Iterator[server.Postgres]:
    """A server; tests are skipped where none can be had."""
    try:
        with server.running_postgres() as running:
            yield running
    except server.PostgresMissingError as error:
        pytest.skip(f"not run: {error}")
