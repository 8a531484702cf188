"""
Specs that type checkers refuse: each statement that is marked so, by the one that is named or both.

mypy solves a type variable that stands in parameters only by what all can take, which is `Never`
for two classes; pyright takes a union for `type[R]`. Both are refused when the spec is made.
"""

from typing import Any

import attrs

from sessionkit import (
    Functions,
    KeyState,
    KeyTimes,
    Memory,
    NoTimeout,
    Session,
    SessionSpec,
    StatefulSpec,
)
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, at
from tests.typing.right import (
    KEYS,
    RULES,
    InPlace,
    Row,
    View,
    Visit,
    create,
    finish,
    in_place,
    merge,
    update,
)


@attrs.define
class Click:
    """An event of another class."""

    button: int


def update_click(state: Visit, event: Click) -> Visit:
    """Take another event."""
    return state


def update_row(state: Row, event: View) -> Row:
    """Take another state."""
    return state


def update_to_number(state: Visit, event: View) -> int:
    """Return no state."""
    return 1


def finish_row(session: Session, state: Row) -> Row:
    """Take another state."""
    return state


def process_click(key: Any, events: list[Click], state: KeyState[Visit], times: KeyTimes) -> Row:
    """Take another event."""
    return Row(1)


def process_view(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row:
    """Return a row."""
    return Row(1)


other_event = SessionSpec(  # wrong
    logic=Functions(event=View, update=update_click, merge=merge), timeout="1m", **RULES
)
other_state = SessionSpec(  # wrong
    logic=Functions(state=Visit, update=update_row, merge=merge), timeout="1m", **RULES
)
create_disagrees = SessionSpec(  # wrong: pyright
    logic=Functions(create=create, update=update_row, merge=merge), timeout="1m", **RULES
)
disagree = Functions(create=create, update=update_row, merge=merge)  # wrong
no_state = SessionSpec(  # wrong
    logic=Functions(update=update_to_number, merge=merge), timeout="1m", **RULES
)
finish_disagrees = SessionSpec(  # wrong: pyright
    logic=Functions(update=update, merge=merge, finish=finish_row), timeout="1m", **RULES
)
other_result = SessionSpec(  # wrong: mypy
    logic=Functions(update=update, merge=merge, finish=finish, result=Visit), timeout="1m", **RULES
)
events_disagree = StatefulSpec(  # wrong
    keys=KEYS, timeout=NoTimeout(), event=View, process=process_click
)
states_disagree = StatefulSpec(  # wrong
    keys=KEYS, timeout=NoTimeout(), state=Row, process=process_view
)
results_disagree = StatefulSpec(  # wrong: mypy
    keys=KEYS, timeout=NoTimeout(), result=Visit, process=process_view
)


@attrs.define
class WithoutMerge:
    """A state that needs events in order."""

    pages: int = 0

    def update(self, event: View) -> None:
        """Count a page."""


@attrs.define
class MergesClicks:
    """A state that merges with another class."""

    pages: int = 0

    def update(self, event: View) -> "MergesClicks":
        """Count a page."""
        return self

    def merge(self, other: Click) -> None:
        """Add what is none."""


@attrs.define
class TooMuch:
    """A state whose update takes too much."""

    pages: int = 0

    def update(self, event: View, weight: int, place: int) -> None:
        """Count a page."""

    def merge(self, other: "TooMuch") -> None:
        """Add the pages of another."""


without_merge = SessionSpec.of(WithoutMerge, gap="1m", **RULES)  # wrong
merges_clicks = SessionSpec.of(MergesClicks, gap="1m", **RULES)  # wrong: pyright
takes_too_much = SessionSpec.of(TooMuch, gap="1m", **RULES)  # wrong
without_methods = SessionSpec.of(Visit, gap="1m", **RULES)  # wrong

events_of_methods_disagree = SessionSpec.of(InPlace, event=Click, gap="1m", **RULES)  # wrong
without_watermark_delay = SessionSpec.of(InPlace, keys=KEYS, event_time="ts", gap="1m")  # wrong
misspelt = SessionSpec.of(InPlace, gap="1m", **RULES, buckets=1)  # wrong


def remember_row(session: Session, state: Row) -> Visit:
    """Take another state."""
    return Visit()


def remember_without_asking(session: Session[Any, Visit], state: Visit) -> Visit:  # wrong
    """Take what may be nothing."""
    return Visit(session.memory.pages)


remembers_row = SessionSpec(  # wrong
    logic=Functions(create=create, update=update, merge=merge, finish=finish),
    timeout="1m",
    **RULES,
    memory=Memory(time_to_live="1 day", remember=remember_row),
)
remembers_row_of_methods = SessionSpec.of(  # wrong: pyright
    InPlace, gap="1m", **RULES, memory=Memory(time_to_live="1 day", remember=remember_row)
)
takes_one = Memory(time_to_live="1 day", remember=len)  # wrong
remembers_no_state = SessionSpec.per_event(  # wrong
    View, gap="1m", **RULES, memory=Memory(time_to_live="1 day", remember=remember_row)
)

driver = SessionDriver(in_place)
driver.add("ann", at("10:00"), Click(1))  # wrong

not_aggregates = SessionSpec.aggregate(View, {"pages": "count(*)"}, gap="1m", **RULES)  # wrong
no_such_order = SessionSpec.aggregate(  # wrong
    View, {"pages": agg.count()}, gap="1m", **RULES, order="arrived"
)
agg.sum(1)  # wrong
agg.count(were="is_new")  # wrong
agg.funnel_times(["is_new"])  # wrong
agg.path(at_most=3)  # wrong
agg.steps("url", "/")  # wrong
agg.top("url")  # wrong
agg.percentile("seconds")  # wrong
agg.engaged_time()  # wrong
agg.count() + {1}  # wrong
agg.count() & True  # wrong
agg.least(agg.count(), None)  # wrong
