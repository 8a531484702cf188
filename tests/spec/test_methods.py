"""Specs of a state class: its methods are the functions."""

import pickle
from datetime import datetime, timedelta
from typing import Any, Self

import attrs
import pytest
from pyspark import cloudpickle

from sessionkit import EventTimeGap, Session, SessionSpec, Storage
from sessionkit.testing import SessionDriver, at
from tests.support.refusals import refusal, says
from tests.support.visit_specs import SETTINGS, Reading, Row, View, Visit, finish, update


def rows_of(spec: SessionSpec[Any, Any, Any]) -> list[Any]:
    """Return the rows of a session that an event in between made of two."""
    driver = SessionDriver(spec)
    for minute in ("10:00", "10:35", "10:20"):
        driver.add("ann", at(minute), View("/"))
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_batch()
    return driver.take_results()


def test_every_method_is_read() -> None:
    """`create` and `finish` too; the key is as `finish` declares it."""
    spec = SessionSpec.of(Reading, timeout=EventTimeGap("30m"), **SETTINGS)

    assert [Row(3, "ann")] == rows_of(spec)


def test_what_is_given_wins_over_a_method() -> None:
    """All that `SessionSpec` takes may be given."""
    given: dict[str, Any] = {"update": update, "finish": finish, "storage": Storage(bucket_count=2)}
    spec = SessionSpec.of(Visit, gap="30m", order="arrival", **given, **SETTINGS)

    assert (update, finish, Row) == (spec.functions.update, spec.finish, spec.result)
    assert (2, timedelta(minutes=30)) == (spec.storage.bucket_count, spec.timeout.gap)


@attrs.define
class Shown(Visit):
    """A state that is its own row."""

    def finish(self, session: Session) -> Self:
        return self


@attrs.define
class ShownIfLong(Visit):
    """A state that is its own row, or none."""

    def finish(self, session: Session) -> list[Self] | None:
        return [self] if self.pages > 1 else None


@pytest.mark.parametrize("state", [Shown, ShownIfLong])
def test_self_is_the_state_class(state: Any) -> None:
    """Also where only a part of an annotation is `Self`."""
    spec = SessionSpec.of(state, gap="30m", **SETTINGS)

    assert state is spec.result
    assert [state(3)] == rows_of(spec)


@pytest.mark.parametrize("tool", [pickle, cloudpickle])
@pytest.mark.parametrize("state", [Visit, Reading])
def test_a_spec_of_a_state_class_pickles(tool: Any, state: Any) -> None:
    """It travels to the executors, with either pickle, and does the same there."""
    spec = SessionSpec.of(state, gap="30m", **SETTINGS)

    assert rows_of(spec) == rows_of(tool.loads(tool.dumps(spec)))


@attrs.define
class Silent:
    pages: int = 0


@attrs.define
class Unbound(Visit):
    """A state whose `create` is a method of an object."""

    def create(self, key: Any, event: View) -> Self:
        return self


@attrs.define
class Greedy(Visit):
    """A state whose `update` takes too much."""

    def update(self, event: View, time: datetime, more: int) -> None:  # type: ignore[override]
        """Take too much."""


@pytest.mark.parametrize(
    ("state", "changes", "facts"),
    [
        (Silent, {}, ["`Silent`", "`update`", "def update(self, event: View)"]),
        (Unbound, {}, ["`Unbound.create`", "`@classmethod`"]),
        (Visit(), {}, ["found Visit(pages=0) (Visit)", "SessionSpec.of(Visit, ...)"]),
        (Visit, {"timeout": "30m"}, ["`gap` and `timeout`", 'gap="30 minutes"']),
    ],
)
def test_a_state_class_that_cannot_work_is_refused(
    state: Any, changes: dict[str, Any], facts: list[str]
) -> None:
    """What is missing is a method, and the hint is the line to write."""
    text = refusal(SessionSpec.of, state, gap="30m", **SETTINGS, **changes)

    assert says(text, *facts)


@pytest.mark.parametrize(
    ("cls", "slip", "role"),
    [
        *((Visit, slip, "finish") for slip in ("finsh", "fihish", "finissh", "fiinsh", "Finish")),
        (Visit, "crate", "create"),
        # It's named before what it leaves out.
        (Silent, "udpate", "update"),
    ],
)
def test_a_method_with_a_slip_in_its_name_is_refused(cls: Any, slip: str, role: str) -> None:
    """Nothing would call it, and sessions would give rows without it."""
    state = type("Slipped", (cls,), {slip: lambda self, session: self})
    text = refusal(SessionSpec.of, state, gap="30m", **SETTINGS)

    found = f"`Slipped.{slip}` would never be called, and there is no `{role}`"
    assert text.startswith(found)
    assert f"Hint: rename it `{role}`" in text


def test_a_helper_may_have_any_other_name() -> None:
    """Private ones any name; so may one next to the method itself, a field, and a property."""
    helpers: dict[str, Any] = {
        "_finsh": lambda self: None,
        "finish_early": lambda self: None,
        "finished": property(lambda self: True),
        "updated": lambda self: None,
        "merged": lambda self: None,
    }
    state: Any = attrs.make_class(
        "Helped", {"created": attrs.field(default=0, type=int)}, (Visit,), helpers
    )

    assert SessionSpec.of(state, gap="30m", **SETTINGS).finish is None


def test_a_method_of_other_arguments_is_refused() -> None:
    """The method to write is shown as a method."""
    text = refusal(SessionSpec.of, Greedy, gap="30m", **SETTINGS)

    assert text.endswith("Hint: write `def update(self, event, time): ...`")
