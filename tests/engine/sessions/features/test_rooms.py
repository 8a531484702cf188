"""A spec that doesn't use a feature runs no line of the module that holds it."""

import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import Inputs, Memory, Results, Session, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, at

PACKAGE = Path(sys.modules["sessionkit"].__file__ or "").parent
ENGINE = PACKAGE / "_engine"
AGGREGATES = PACKAGE / "aggregates"
SHARED: dict[str, Any] = {"keys": {"key": str}, "event_time": "ts", "watermark_delay": "1 minute"}
GAP: dict[str, Any] = {"gap": timedelta(minutes=10)}
FEATURES = frozenset(
    {
        "shell/erasing.py",
        "shell/seed.py",
        "sessions/careful_fold.py",
        "sessions/cutting.py",
        "sessions/folding_walk.py",
        "sessions/walk.py",
        "sessions/features/duplicates.py",
        "sessions/features/event_functions.py",
        "sessions/features/key_history.py",
        "sessions/features/memory.py",
        "sessions/features/revisions.py",
        "sessions/features/rules.py",
        "sessions/features/session_events.py",
    }
)
"""Those that a spec without options, whose sessions close, doesn't use."""


@attrs.frozen
class Step:
    number: int = 1


@attrs.define
class Total:
    total: int = 0

    def update(self, event: Step) -> None:
        if event.number < 0:
            raise ValueError
        self.total += event.number

    def merge(self, other: "Total") -> None:
        self.total += other.total


def remember(_: Session[Any], total: Total) -> Total:
    return total


def entered(spec: SessionSpec[Any, Any, Any], room: Path = ENGINE, bridge: int = 1) -> set[str]:
    """Return the files of a room entered while sessions begin, go on, merge and close."""
    now = at("10:00") if spec.clock == "processing_time" else None
    driver, files = SessionDriver(spec, processing_time=now), set[str]()

    def see(frame: FrameType, kind: str, _: Any) -> None:
        if kind == "call":
            files.add(frame.f_code.co_filename)

    driver.add("a", at("08:00"), Step())
    driver.run_batch()  # the spec is compiled at its first event
    sys.setprofile(see)
    for times in (["10:00"], ["10:01", "10:15"], ["10:08"], ["12:00"], []):
        for time in times:
            driver.add("a", at(time), Step(bridge if time == "10:08" else 1))
        driver.run_batch()
    sys.setprofile(None)
    assert driver.counts.sessions
    paths = [Path(file) for file in files]
    return {path.relative_to(room).as_posix() for path in paths if path.is_relative_to(room)}


def of_features(spec: SessionSpec[Any, Any, Any]) -> set[str]:
    """Return the features entered."""
    return entered(spec) & FEATURES


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_a_spec_without_options_runs_no_code_of_a_feature(on_error: Any) -> None:
    """Not for an empty list either, and what leaves failed events out only where one has failed."""
    spec = SessionSpec.of(Total, on_error=on_error, **SHARED, **GAP)
    assert set() == of_features(spec)
    if on_error == "reject":
        found = entered(spec, bridge=-1)
        assert "sessions/folding_walk.py" in found
        assert "sessions/features/rules.py" not in found


def test_aggregates_run_no_code_of_a_feature_or_of_other_aggregates() -> None:
    """Only what all kinds of them are made of, and neither functions nor aggregates the other."""
    funnel = agg.funnel([pc.field("number") > 0])
    spec = SessionSpec.aggregate(Step, {"far": funnel}, **SHARED, **GAP)
    shared = {"_aggregate.py", "_events.py"}
    assert {"_funnels.py"} == entered(spec, AGGREGATES) - shared
    assert set() == of_features(spec)
    assert "sessions/by_functions.py" not in entered(spec)
    assert set() == entered(SessionSpec.of(Total, **SHARED, **GAP), AGGREGATES)


@pytest.mark.parametrize(
    ("rooms", "options"),
    [
        ({"features/duplicates"}, {"inputs": Inputs(drop_duplicates_for="1 hour")}),
        ({"features/revisions"}, {"results": Results(emit="on_update")}),
        ({"features/session_events"}, {"results": Results(with_events=True)}),
        (
            {"features/memory", "features/key_history"},
            {"memory": Memory(time_to_live="1 day", remember=remember)},
        ),
        (
            {"features/rules", "features/event_functions", "cutting"},
            {"timeout": SessionRules("10 minutes", extends=pc.field("number") > 0), "gap": None},
        ),
    ],
)
def test_an_option_runs_the_code_of_its_own_features_alone(rooms: set[str], options: Any) -> None:
    """And no other."""
    found = of_features(SessionSpec.of(Total, **SHARED, **(GAP | options)))
    assert {f"sessions/{name}.py" for name in rooms} == found
