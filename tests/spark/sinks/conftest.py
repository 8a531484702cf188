"""Fixtures of the tests of sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.embedded_postgres import Postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server; tests are skipped where none can be had."""
    from examples import embedded_postgres as server  # noqa: PLC0415 - a cell has no psycopg

    try:
        with server.running_postgres() as running:
            yield running
    except server.PostgresMissingError as error:
        pytest.skip(f"not run: {error}")
