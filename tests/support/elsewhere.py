"""
Tests that need what another cell of the matrix has: they are left out here and counted.

`@pytest.mark.cell("delta", "connect")` says what a test needs, of the names in `HERE`. What a cell
has is known before Spark starts.
"""

from collections import Counter
from importlib.util import find_spec
from typing import Any, Final

import pytest

from tests.support.cell import IS_CONNECT
from tests.support.spark_settings import ICEBERG

HERE: Final = frozenset(
    need
    for need, is_here in {
        "delta": find_spec("delta") is not None,
        "no delta": find_spec("delta") is None,
        "iceberg": bool(ICEBERG),
        "classic": not IS_CONNECT,
        "connect": IS_CONNECT,
    }.items()
    if is_here
)
"""What this cell has."""

LEFT_OUT: Final = pytest.StashKey[list[str]]()
"""What each test that was left out needs, and this cell hasn't."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need what this cell hasn't, among those that were chosen."""
    lacking = {item: needs_of(item) - HERE for item in items}
    left_out = [item for item, lacks in lacking.items() if lacks]
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = [" and ".join(sorted(lacking[item])) for item in left_out]
    items[:] = [item for item, lacks in lacking.items() if not lacks]


def needs_of(item: pytest.Item) -> frozenset[str]:
    """Return what a test needs of a cell."""
    return frozenset(need for mark in item.iter_markers("cell") for need in mark.args)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a process of pytest-xdist send what it has left out: all of them leave out the same."""
    sent: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if sent is not None:
        sent["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what such a process has sent, if it hasn't crashed."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which tests were left out, and what runs them."""
    lacks: list[str] = config.stash.get(LEFT_OUT, [])
    left_out = Counter(lacks)
    if left_out:
        parts = ", ".join(f"{number} with {need}" for need, number in sorted(left_out.items()))
        terminalreporter.write_line(f"left to other cells (make test-lakes, test-matrix): {parts}")
