"""A state is what it was when it's read again, or refused: its class may compute its fields."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from sessionkit import EventTimeGap, Functions, SessionSpec
from sessionkit.errors import StateValueError
from sessionkit.state._codec import codec_of
from sessionkit.testing import SessionDriver

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def double(value: int) -> int:
    return value * 2


@attrs.define
class Doubled:
    n: int = attrs.field(converter=double)


@dataclass
class Made:
    n: int
    made: int = 0

    def __post_init__(self) -> None:
        self.made += 1


@dataclass
class Labelled:
    n: int
    label: str = ""

    def __post_init__(self) -> None:
        self.label = f"{self.n}"


@attrs.define
class Cut:
    n: int
    text: str = "long"

    def __attrs_post_init__(self) -> None:
        self.text = self.text[1:]


@attrs.define
class Holder:
    n: int
    items: list[tuple[Doubled, int]] = attrs.field(factory=list)
    by_name: dict[str, Made | None] = attrs.field(factory=dict)


@attrs.define
class Whole:
    """Its code leaves what it has made as it is."""

    n: int = attrs.field(converter=int)
    real: float = attrs.field(default=float("nan"), converter=float)


def relabelled() -> Labelled:
    made = Labelled(1)
    made.label = "first"
    return made


def run(made: Callable[[], Any]) -> Any:
    """Return the result of a session of three micro-batches, whose state nothing changes."""
    cls = type(made())
    spec: SessionSpec[Any, Any, Any] = SessionSpec(
        keys={"user": str},
        event_time="ts",
        logic=Functions(
            event=Nothing,
            state=cls,
            result=cls,
            create=lambda key, event: made(),
            update=lambda state, event: state,
            finish=lambda session, state: state,
        ),
        timeout=EventTimeGap("30 minutes"),
        watermark_delay="0 seconds",
        order="event_time",
    )
    driver = SessionDriver(spec)
    for minute in range(3):
        driver.add_row({"user": "ann", "ts": NOON + timedelta(minutes=minute)})
        driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(days=1))
    driver.run_until_idle()
    (row,) = driver.take_rows()
    return row.result


@attrs.define
class Nothing:
    pass


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Doubled(1), "`Doubled.n` is 2, and would be read as 4"),
        (lambda: Made(1), "`Made.made` is 1, and would be read as 2"),
        (relabelled, "`Labelled.label` is 'first', and would be read as '1'"),
        (lambda: Cut(1), "`Cut.text` is 'ong', and would be read as 'ng'"),
        (lambda: Holder(1, [(Doubled(1), 1)]), "`Holder.items` is"),
        (lambda: Holder(1, [], {"a": None, "b": Made(1)}), "`Holder.by_name` is"),
    ],
)
def test_a_state_that_its_class_makes_into_another_one_is_refused(
    made: Callable[[], Any], told: str
) -> None:
    """A stream would have another value after each micro-batch, and a batch would not."""
    with pytest.raises(StateValueError, match=r"the state of Key\(user='ann'\)") as refused:
        run(made)
    assert told in str(refused.value)
    assert "\n\nHint: " in str(refused.value)


@pytest.mark.parametrize("state", [Whole(1), Labelled(1), Holder(1)])
def test_a_class_whose_code_leaves_its_values_is_stored(state: Any) -> None:
    """A converter to the type of the field, or a field that follows from others."""
    assert repr(run(lambda: state)) == repr(state)


def test_no_other_class_is_read_again() -> None:
    """It costs nothing where no code of the class runs."""
    assert not codec_of(Nothing).computes
    assert codec_of(Holder).computes
