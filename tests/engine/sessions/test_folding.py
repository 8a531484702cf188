"""Which code folds the sessions of a micro-batch."""

import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest

from sessionkit import SessionSpec
from sessionkit.testing import SessionDriver
from tests.support.session_specs import fed

CAREFUL = {"careful_fold.py", "cutting.py", "rejecting.py"}


@attrs.frozen
class Step:
    """An event: its number; functions fail over a negative one."""

    number: int


@attrs.define
class Total:
    total: int = 0

    def update(self, event: Step) -> None:
        if event.number < 0:
            message = "negative"
            raise ValueError(message)
        self.total += event.number

    def merge(self, other: "Total") -> None:
        self.total += other.total


def entered(on_error: Any, bad: int) -> set[str]:
    """Return the files entered while two events join two open sessions, one with this number."""
    spec = SessionSpec.of(
        Total,
        keys={"key": str},
        event_time="ts",
        gap=timedelta(minutes=10),
        watermark_delay="10 hours",
        on_error=on_error,
    )
    driver = fed(SessionDriver(spec), ("10:00", Step(1)), ("10:16", Step(2)))
    files = set[str]()

    def see(frame: FrameType, kind: str, _: Any) -> None:
        if kind == "call":
            files.add(Path(frame.f_code.co_filename).name)

    sys.setprofile(see)
    try:
        fed(driver, ("10:08", Step(3)), ("10:17", Step(bad)))
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_where_nothing_fails_only_the_fast_fold_is_entered(on_error: str) -> None:
    """What cuts by rules, says why or leaves out costs nothing there."""
    files = entered(on_error, 4)

    assert "by_functions.py" in files
    assert not files & CAREFUL


def test_where_an_event_fails_its_session_alone_is_folded_again() -> None:
    """A spec without rules enters none."""
    files = entered("reject", -4)

    assert {"rejecting.py"} == {"rejecting.py", "rules.py"} & files
