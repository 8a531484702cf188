"""A spec that doesn't use a feature runs no line of the module that holds it."""

import sys
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from sessionkit import Inputs, Lateness, Memory, Results, Session, SessionRules, SessionSpec
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
        "sessions/failing.py",
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
def test_a_spec_without_options_enters_no_feature(on_error: Any) -> None:
    """Not for an empty list either, and what leaves failed events out only where one has failed."""
    spec = SessionSpec.of(Total, on_error=on_error, **SHARED, **GAP)
    assert set() == of_features(spec)
    if on_error == "reject":
        found = entered(spec, bridge=-1)
        assert "sessions/failing.py" in found
        assert "sessions/features/rules.py" not in found


def test_aggregates_without_options_enter_no_feature() -> None:
    """They're another kind of fold, of the same plan."""
    spec = SessionSpec.aggregate(Step, {"total": agg.sum("number")}, **SHARED, **GAP)
    assert set() == of_features(spec)
    assert "sessions/by_functions.py" not in entered(spec)


def test_a_funnel_enters_no_other_kind_of_aggregate() -> None:
    """Only what all of them are made of."""
    funnel = agg.funnel([pc.field("number") > 0])
    spec = SessionSpec.aggregate(Step, {"far": funnel}, **SHARED, **GAP)
    shared = {"_aggregate.py", "_events.py"}
    assert {"_funnels.py"} == entered(spec, AGGREGATES) - shared
    assert set() == of_features(spec)


def test_functions_enter_no_aggregates() -> None:
    """The folds know nothing of each other."""
    assert set() == entered(SessionSpec.of(Total, **SHARED, **GAP), AGGREGATES)


@pytest.mark.parametrize(
    ("feature", "options"),
    [
        ({"duplicates.py"}, {"inputs": Inputs(drop_duplicates_for="1 hour")}),
        ({"revisions.py"}, {"results": Results(emit="on_update")}),
        ({"revisions.py"}, {"lateness": Lateness(allowed="1 hour")}),
        ({"session_events.py"}, {"results": Results(with_events=True)}),
        ({"memory.py", "key_history.py"}, {"memory": Memory(time_to_live="1 day")}),
        (
            {"memory.py", "key_history.py"},
            {"memory": Memory(time_to_live="1 day", remember=remember)},
        ),
    ],
)
def test_an_option_enters_its_own_feature_alone(feature: set[str], options: Any) -> None:
    """And no other."""
    found = of_features(SessionSpec.of(Total, **SHARED, **GAP, **options))
    assert {f"sessions/features/{name}" for name in feature} == found


@pytest.mark.parametrize(
    ("others", "rules"),
    [
        ({"sessions/cutting.py"}, {"midnight": "Europe/Berlin"}),
        ({"sessions/cutting.py"}, {"close_idle_after": "1 hour"}),
        (
            {"sessions/cutting.py", "sessions/features/event_functions.py"},
            {"extends": pc.field("number") > 0},
        ),
    ],
)
def test_a_rule_enters_the_rules_and_what_cuts(others: set[str], rules: Any) -> None:
    """Neither revisions nor duplicates."""
    spec = SessionSpec.of(Total, timeout=SessionRules("10 minutes", **rules), **SHARED)
    assert {"sessions/features/rules.py", *others} == of_features(spec)
