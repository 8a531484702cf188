"""
State that a release stored is read by every later one; the files stay as that release left them.

`RECORD_STORED=1` writes them anew: only for a format that has never been released.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from sessionkit import Functions, SessionRules, Storage
from sessionkit._engine.keys.program import stored_keys_of
from sessionkit._engine.sessions.view import open_sessions_of
from sessionkit._engine.shell.payload import FORMAT_VERSION, FORMATS
from sessionkit._engine.shell.storage import logic_of, stored_memory
from sessionkit.spec.session import SessionSpec
from sessionkit.testing import SessionDriver, at
from sessionkit.testing.drivers.query import stored_rows
from sessionkit.testing.drivers.rows import bucket_of
from sessionkit.testing.group_state import StoredGroup
from sessionkit.timeouts._session_rules import RULES
from tests.support.changed_classes import (
    SPECS,
    First,
    Fourth,
    LaterView,
    Second,
    View,
    add,
    count,
    count_later,
    count_words,
    driver_of,
    of_first,
    of_third,
)

FOLDER: Final = Path(__file__).parent / "stored"
USERS: Final = ["ann", "bob", "user 7"]


def coded(value: Any) -> Any:
    """Return what JSON can hold: bytes as base64 in a list, pages as a dict."""
    if isinstance(value, bytes):
        return [base64.b64encode(value).decode()]
    if isinstance(value, dict):
        return {str(start): coded(page) for start, page in value.items()}
    return value


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return base64.b64decode(value[0])
    if isinstance(value, dict):
        return {int(start): decoded(page) for start, page in value.items()}
    return value


def record(make: Any, layout: str, file: Path) -> None:
    """Store sessions or keys of three users, with events that wait."""
    driver = driver_of(make(count, First, layout))
    add(driver, View(2, "a"), at("12:00"), USERS)
    add(driver, View(3, "b"), at("12:20"), USERS)
    add(driver, View(4, "c"), at("12:25"), USERS[:1])
    rows = [[list(group), list(map(coded, row))] for group, row in stored_rows(driver.snapshot())]
    file.write_text(json.dumps(rows, indent=1) + "\n")


def rows_in(file: Path) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the groups in a file, and their rows."""
    found = json.loads(file.read_text("utf-8"))
    return [(tuple(group), tuple(map(decoded, row))) for group, row in found]


def states(spec: Any, file: Path) -> dict[str, Any]:
    """Return the states in a file, by user, without events that wait."""
    found: list[Any] = []
    for group, row in rows_in(file):
        memory = stored_memory(logic_of(spec), group, row)
        assert memory.buffered.num_rows
        view: Any = open_sessions_of if isinstance(spec, SessionSpec) else stored_keys_of
        found += view(spec, type(memory)(memory.kept, memory.buffered.slice(0, 0)))
    return {one.key.user: one.state for one in found}


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize(("make", "layout"), SPECS)
def test_a_stored_format_is_read_by_every_later_release(
    make: Any, layout: str, version: int
) -> None:
    """As it was written, by the rules for changed classes, and through functions."""
    file = FOLDER / f"format-{version}-{make.__name__}-{layout}.json"
    if os.environ.get("RECORD_STORED") and version == FORMAT_VERSION:
        record(make, layout, file)
    nobody = {} if make.__name__ == "sessions" else {"user 7": None}

    def expected(state: Any) -> dict[str, Any]:
        return dict.fromkeys(USERS, state) | nobody

    assert expected(First(2, "a")) == states(make(count, First, layout), file)
    later = make(count_later, Second, layout, LaterView)
    assert expected(Second(2.0, ["old"], "a")) == states(later, file)
    fourth = make(count_words, Fourth, layout, storage=Storage(upgrade={1: of_first, 2: of_third}))
    assert expected(Fourth(["2", "a"])) == states(fourth, file)


@pytest.mark.parametrize(("make", "layout"), SPECS)
def test_a_query_goes_on_from_the_format_before_and_writes_its_own(make: Any, layout: str) -> None:
    """Each row is written anew when its bucket changes; until then, it stays as it is."""
    spec = make(count, First, layout)
    groups = {
        group[0]: StoredGroup(row, None)
        for group, row in rows_in(FOLDER / f"format-{min(FORMATS)}-{make.__name__}-{layout}.json")
    }
    driver = driver_of(spec)
    driver.advance_watermark_to(at("12:15"))
    driver = driver.restore(spec, attrs.evolve(driver.snapshot(), groups=groups, batch_id=5))
    add(driver, View(5, "d"), at("12:30"), USERS[:1])

    numbers = {group: row[0] for group, row in stored_rows(driver.snapshot())}
    changed = bucket_of(spec, {"user": USERS[0]})
    others = dict.fromkeys(({group for (group,) in numbers} - {changed}), min(FORMATS))
    assert {changed: FORMAT_VERSION, **others} == {group: v for (group,), v in numbers.items()}


RULED: Final[SessionSpec[View, First, First]] = SessionSpec(
    keys={"user": str},
    event_time="ts",
    logic=Functions(update=count),
    watermark_delay="10 minutes",
    order="event_time",
    timeout=SessionRules("30 minutes", max_duration="35 minutes", midnight="Asia/Kolkata"),
)
TIMES: Final = {"gap": ["17:50"], "max_duration": ["17:45", "18:00"], "midnight": ["18:05"]}
"""For each rule that may end a session that's open in a checkpoint, the events of one user."""


def test_the_numbers_of_rules_in_a_checkpoint_never_change() -> None:
    """A session goes on to be closed by the rule that its row names."""
    file = FOLDER / "rules.json"
    if os.environ.get("RECORD_STORED"):
        record_rules(file)
    found: dict[str, str] = {}
    for group, row in json.loads(file.read_text("utf-8")):
        memory = stored_memory(logic_of(RULED), tuple(group), tuple(map(decoded, row)))
        found |= {one.key.user: one.closed_by for one in open_sessions_of(RULED, memory)}
    assert {rule: rule for rule in TIMES} == found
    others = {"until": 0, "max_events": 1, "starts_with": 4, "changes_of": 5, "idle": 7}
    assert others == {rule.name: rule.code for rule in RULES if rule.name not in TIMES}


def record_rules(file: Path) -> None:
    """Store an open session of each user, who is named after the rule that will end it."""
    driver = SessionDriver(RULED)
    for user, times in TIMES.items():
        for time in times:
            driver.add(user, at(time), View(1))
    driver.run_batch()
    driver.advance_watermark_to(at("18:06"))
    driver.run_batch()
    rows = [[list(group), list(map(coded, row))] for group, row in stored_rows(driver.snapshot())]
    file.write_text(json.dumps(rows, indent=1) + "\n")
