"""Specs that type checkers accept, and what they make of them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Self, TypedDict, assert_type

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sessionkit import (
    EventTimeGap,
    Functions,
    KeyState,
    KeyTimes,
    Lateness,
    Memory,
    NoTimeout,
    Session,
    SessionRules,
    SessionSpec,
    StatefulSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.spark import recommended_settings
from sessionkit.spec import BatchTimes, BucketResult, by_bucket
from sessionkit.testing import SessionDriver, at

KEYS = {"user_id": str}


class Rules(TypedDict):
    """What all specs say; a dict of anything would hide what is wrong in the rest."""

    keys: dict[str, Any]
    event_time: str
    watermark_delay: str


RULES: Rules = {"keys": KEYS, "event_time": "ts", "watermark_delay": "10 minutes"}


class User(NamedTuple):
    user_id: str


@attrs.define
class View:
    url: str


@attrs.frozen
class Row:
    pages: int


# -- functions ---------------------------------------------------------------------------------


@attrs.define
class Visit:
    pages: int = 0


def create(key: User, event: View) -> Visit:
    """Start a visit; the key has the fields of the named tuple."""
    assert_type(key.user_id, str)
    return Visit(1)


def create_at(key: User, event: View, time: datetime) -> Visit:
    return Visit(1)


def update(state: Visit, event: View) -> Visit:
    return Visit(state.pages + 1)


def update_in_place(state: Visit, event: View) -> None:
    state.pages += 1


def update_at(state: Visit, event: View, time: datetime) -> Visit | None:
    """Take the time of the event."""


def merge(left: Visit, right: Visit) -> Visit:
    return Visit(left.pages + right.pages)


def merge_in_place(left: Visit, right: Visit) -> None:
    left.pages += right.pages


def finish(session: Session[User], state: Visit) -> Row:
    """Return a row; the key of the session has the fields of the named tuple."""
    assert_type(session.key.user_id, str)
    return Row(state.pages)


def finish_many(session: Session, state: Visit) -> list[Row] | None:
    """Return several rows."""


def finish_all(session: Session, state: Visit) -> Iterator[Row]:
    yield Row(state.pages)


explicit = SessionSpec(
    keys=KEYS,
    event_time="ts",
    logic=Functions(
        event=View,
        state=Visit,
        result=Row,
        create=create,
        update=update,
        merge=merge,
        finish=finish,
    ),
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="10 minutes",
)
assert_type(explicit, SessionSpec[View, Visit, Row])

short = SessionSpec(
    logic=Functions(
        create=create_at, update=update_in_place, merge=merge_in_place, finish=finish_many
    ),
    timeout="30 minutes",
    **RULES,
)
assert_type(short, SessionSpec[View, Visit, Row])

shorter = SessionSpec(
    logic=Functions(update=update_at, finish=finish_all),
    order="event_time",
    timeout="30 minutes",
    **RULES,
)
assert_type(shorter, SessionSpec[View, Visit, Row])

shortest = SessionSpec(logic=Functions(update=update, merge=merge), timeout="30 minutes", **RULES)
assert_type(shortest, SessionSpec[View, Visit, Visit])

driver = SessionDriver(short)
driver.add("ann", at("10:00"), View("/"))
assert_type(driver.take_results(), list[Row])


# -- methods -----------------------------------------------------------------------------------


@attrs.define
class InPlace:
    """A state that changes in place, and is its own row."""

    pages: int = 0

    def update(self, event: View) -> None:
        """Count a page."""

    def merge(self, other: "InPlace") -> None:
        """Add the pages of another."""


@attrs.frozen
class Replaced:
    """A state with every method, that is never changed."""

    pages: int

    @classmethod
    def create(cls, key: User, event: View) -> Self:
        return cls(1)

    def update(self, event: View, time: datetime) -> Self:
        return self

    def merge(self, other: Self) -> Self:
        return self

    def finish(self, session: Session[User]) -> list[Row]:
        return [Row(self.pages)]


@attrs.define
class InOrder:
    pages: int = 0

    def update(self, event: View) -> "InOrder":
        return self


in_place = SessionSpec.of(InPlace, gap="30 minutes", **RULES)
assert_type(in_place, SessionSpec[View, InPlace, InPlace])

replaced = SessionSpec.of(
    Replaced,
    event=View,
    timeout=EventTimeGap("30 minutes"),
    **RULES,
    lateness=Lateness(judged_by="session"),
    storage=Storage(bucket_count=128),
    memory=Memory(time_to_live="90 days"),
)
assert_type(replaced, SessionSpec[View, Replaced, Row])


@attrs.frozen
class Shopper:
    visits: int = 0


def remember(session: Session[User, Shopper], state: Visit) -> Shopper:
    """Count visits; what is remembered may be nothing."""
    assert_type(session.key, User)
    assert_type(session.memory, Shopper | None)
    return Shopper(session.memory.visits + 1 if session.memory else 1)


def remember_in_place(session: Session[User], state: InPlace) -> Shopper | None:
    """Take what is remembered as anything, where its class isn't named."""
    assert_type(session.memory, Any | None)
    return None


remembering = SessionSpec(
    logic=Functions(create=create, update=update, merge=merge, finish=finish),
    timeout="30 minutes",
    **RULES,
    memory=Memory(time_to_live="90 days", remember=remember),
)
assert_type(remembering, SessionSpec[View, Visit, Row])

remembering_in_place = SessionSpec.of(
    InPlace,
    gap="30 minutes",
    **RULES,
    memory=Memory(time_to_live="90 days", remember=remember_in_place),
)
assert_type(remembering_in_place, SessionSpec[View, InPlace, InPlace])

in_order = SessionSpec.of(InOrder, gap="30 minutes", **RULES, order="event_time")
assert_type(in_order, SessionSpec[View, InOrder, InOrder])


# -- state per key -----------------------------------------------------------------------------


def process(key: Any, events: list[View], state: KeyState[Visit], times: KeyTimes) -> Row | None:
    assert_type(state.get(), Visit)
    assert_type(times.event_times, tuple[datetime, ...])
    return Row(len(events)) if events else None


def process_bucket(events: pa.Table, states: pa.Table, times: BatchTimes) -> BucketResult:
    return BucketResult(states)


per_key = StatefulSpec(keys=KEYS, process=process, timeout=NoTimeout())
assert_type(per_key, StatefulSpec[View, Visit, Row])

per_bucket = StatefulSpec(
    keys=KEYS,
    event=View,
    state=Visit,
    result=Row,
    process=by_bucket(process_bucket),
    timeout=NoTimeout(),
)
assert_type(per_bucket, StatefulSpec[View, Visit, Row])

# -- rules that cut sessions -------------------------------------------------------------------


def gap_of(view: View) -> timedelta:
    return timedelta(minutes=len(view.url))


def gap_after(visit: Visit) -> timedelta:
    return timedelta(minutes=visit.pages)


def is_logout(view: View) -> bool:
    return view.url == "/logout"


every_rule = SessionRules(
    gap="30m",
    gap_inclusive=False,
    state_gap=gap_after,
    max_duration=timedelta(days=1),
    max_duration_inclusive=False,
    max_events=500,
    until=is_logout,
    starts_with=pc.field("url") == "/login",
    changes_of=("url", "campaign"),
    midnight="Europe/Berlin",
    opens_with="is_view",
    extends=is_logout,
    close_idle_after="5m",
)
by_gaps = SessionRules(gap_of, max_gap="1h", changes_of="url")

# -- aggregates --------------------------------------------------------------------------------

made = SessionSpec.aggregate(View, {"pages": agg.count()}, gap="1m", **RULES)
assert_type(made, SessionSpec[View, Any, Any])

typed = SessionSpec.aggregate(
    View,
    {
        "pages": agg.count(),
        "urls": agg.collect("url", at_most=3, where="is_new"),
        "engaged": presets.ga4_engaged(page_view="is_new"),
        "far": agg.funnel({"new": "is_new", "seen": pc.field("url") != ""}, within="1m"),
        "when": agg.funnel_times(agg.funnel(["is_new"], strict=True)),
        "instead": agg.funnel_next(agg.funnel(["is_new"]), "url", where=pc.field("url") != "/"),
        "most_soon": agg.most_within("10m", where="is_new", at_most=5) >= 5,
        "five_at": agg.reached_within(5, timedelta(minutes=10), where="is_new"),
        "soon": agg.counts_within("10m", at_most=10),
        "shown": agg.time_between("is_new", pc.field("url") == "/help", at_most=10, where="is_new"),
        "path": agg.path("url", at_most=10),
        "steps": agg.steps("url", "/", "/cart", where=pc.field("url") != "/help"),
        "top": agg.top("url", 3, at_most=50),
        "slowest": agg.percentile("seconds", 0.95, relative_error=0.02, at_most=200),
        "rate": agg.count(where="is_new") / (agg.duration() / timedelta(minutes=1)),
        "spread": agg.stddev("seconds", variance=True),
        "here": agg.engaged_time(cap="10s", within=timedelta(hours=1)),
        "entry": agg.first("url"),
        "exit": agg.last("url", where="is_new"),
        "is_bounce": (3 > agg.count(at_most=3)) & ~(agg.duration() >= timedelta(seconds=10)),
        "at_home": agg.first("url").eq("/").fill_null(value=False),
        "different": agg.count_distinct("url", at_most=20, where="is_new"),
        "each": agg.count_by("url", at_most=5, rest="other"),
        "usual": agg.mean("seconds"),
        "all_new": agg.all("is_new") & ~agg.any(pc.field("url") == "/help"),
        "most": agg.greatest(agg.max("seconds"), 2.5),
        "least": agg.least(abs(-agg.sum("seconds")), 2 - agg.min("seconds"), Decimal(2)),
    },
    result=Row,
    timeout=presets.posthog(),
    order="event_time",
    **RULES,
)
assert_type(typed, SessionSpec[View, Row, Row])
assert_type(SessionDriver(typed).take_results(), list[Row])


def start_spark() -> SparkSession:
    """Start Spark with the settings that are for its start, and set the others."""
    spark = SparkSession.builder.config(map=recommended_settings(2)).getOrCreate()
    for name, value in recommended_settings(2, running=True).items():
        spark.conf.set(name, value)
    return spark
