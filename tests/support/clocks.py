"""A clock that a file says, for a process and those that it starts."""

from pathlib import Path

import pytest

from tests.support.debian import PackageMissingError, files_of


def faked_by(clock: Path) -> dict[str, str]:
    """Return the variables under which a process goes by the clock that a file says."""
    try:
        (library,) = files_of("libfaketime").rglob("libfaketimeMT.so.1")
    except PackageMissingError as error:
        pytest.skip(f"not run: {error}")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or no wait of Java's takes any time
        "NO_FAKE_STAT": "1",
    }
