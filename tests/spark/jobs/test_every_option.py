"""
Each option of a session spec: the driver, a batch and a stream come to the same rows of every kind.

Each rule is there alone, and all at once; other options share cases. A new option needs a case, or
a test of its own where it can't be compared so. The stream has an event dated 2099 in its middle.
Rules that are alone are left to a batch, unless the long tests run.

All specs run in one query: each starts as many jobs for a micro-batch as it would alone, but shares
what a query costs.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    Inputs,
    Lateness,
    Memory,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit._instants import micros_of
from sessionkit.spark import sessionize
from sessionkit.spark.jobs import frames as public_rows
from sessionkit.spec.logic import Events
from sessionkit.testing import Rejection, SessionDriver, SessionEvent, SessionRow
from sessionkit.timeouts._session_rules import CLOSED_BY
from tests.support.spark_settings import changed
from tests.support.streams import FileStream, run_to_files

# Half an hour before midnight in New York, on the day that has 23 hours.
START: Final = datetime(2026, 3, 9, 3, 30, tzinfo=UTC)
END: Final = START + timedelta(days=1)
GAP: Final = timedelta(minutes=5)
SETTINGS: Final = {"spark.sql.streaming.unsupportedOperationCheck": "false"}
SCHEMA: Final = pa.schema(
    {
        "user": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
        "n": pa.int64(),
        "page": pa.string(),
        "is_last": pa.bool_(),
        "campaign": pa.string(),
        "offset": pa.int64(),
    }
)
SHOWN: Final = {
    "kind": "string",
    "user": "string",
    "session_id": "string",
    "session_start": "timestamp",
    "session_end": "timestamp",
    "last_event_time": "timestamp",
    "closed_by": "string",
    "numbers": "array<bigint>",
    "number": "bigint",
    "event_time": "timestamp",
    "event_id": "string",
    "offset": "bigint",
    "session_number": "bigint",
    "previous_session_id": "string",
    "landed": "bigint",
}
REMEMBERED: Final = ("session_number", "previous_session_id", "landed")
SPOILED: Final = 59
"""The number of the last view, which fails where functions may."""


@attrs.frozen
class View:
    n: int
    page: str
    is_last: bool
    campaign: str | None


@attrs.define
class Visit:
    """The numbers of the views of a session."""

    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        """Add a number, so that the order of arrival doesn't show."""
        self.numbers = sorted([*self.numbers, event.n])

    def merge(self, other: "Visit") -> None:
        self.numbers = sorted([*self.numbers, *other.numbers])


@attrs.define
class Fragile(Visit):
    def update(self, event: View) -> None:
        super().update(event)
        if event.n == SPOILED:
            message = "spoiled"
            raise ValueError(message)


@attrs.define
class Trail:
    """The numbers of the views in the order in which they're taken."""

    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        self.numbers.append(event.n)


@attrs.define
class Past:
    """How many views a user has had."""

    views: int = 0


@attrs.define
class Told:
    """The numbers of a session, and how many views came before it."""

    numbers: list[int]
    before: int


@attrs.define
class Recalling(Trail):
    def finish(self, session: Session[Any, Past]) -> Told:
        return Told(self.numbers, session.memory.views if session.memory else 0)


def remember(session: Session[Any, Past], visit: Recalling) -> Past:
    before = session.memory or Past()
    return Past(before.views + len(visit.numbers))


def short_at_login(view: View) -> timedelta:
    """Return the gap that a view asks for."""
    return GAP / 2 if view.page == "/login" else GAP


def is_seen(view: View) -> bool:
    """Tell whether a view keeps a session open."""
    return view.page != "/beat"


def short_with_many(visit: Trail) -> timedelta:
    return GAP / min(len(visit.numbers), 4)


ALONE: Final[dict[str, dict[str, Any]]] = {
    "gap_inclusive": {"gap_inclusive": False},
    "gap of the event": {"gap": short_at_login, "max_gap": GAP},
    "max_duration": {"max_duration": "10 minutes", "max_duration_inclusive": False},
    "max_events": {"max_events": 5},
    "until": {"until": "is_last"},
    "starts_with": {"starts_with": pc.field("page") == "/login"},
    "changes_of": {"changes_of": "campaign"},
    "midnight": {"midnight": "America/New_York"},
    "opens_with": {"opens_with": pc.field("page") != "/"},
    "extends": {"extends": is_seen},
}
RULES: Final = {**ALONE, "all": reduce(lambda one, other: one | other, ALONE.values())}

# What a spec takes besides rules. Of a session with several rows, the last one is compared.
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "both": {
        "results": Results(with_events=True),
        "state": Fragile,
        "on_error": "reject",
        "inputs": Inputs(
            passthrough={"offset": int}, event_id=("offset",), drop_duplicates_for="0 seconds"
        ),
        "storage": Storage(bucket_count=3),
    },
    "per event": {
        "per_event": True,
        "inputs": Inputs(drop_duplicates_for="1 hour"),
        "lateness": Lateness(judged_by="session"),
    },
    "in sequence": {
        "state": Trail,
        "order": "event_time",
        "sequence": "n",
        "timeout": SessionRules(GAP, max_events=1, until="is_last"),
    },
    "gap of the state": {
        "state": Recalling,
        "order": "event_time",
        "timeout": SessionRules(GAP, state_gap=short_with_many),
        "memory": Memory(time_to_live="1 day", remember=remember, last={"landed": "before"}),
    },
    "jumps": {"aggregates": True, "inputs": Inputs(max_future_skew=None, max_jump="1 day")},
    "early": {
        "aggregates": True,
        "results": Results(emit="on_update"),
        "lateness": Lateness(reopen_within="1 hour"),
    },
    "lateness": {"lateness": Lateness(allowed="1 hour", measured=False)},
    "remembered": {
        "aggregates": True,
        "memory": Memory(time_to_live="1 day", first={"landed": "most"}),
    },
}
ELSEWHERE: Final = {
    "carries_watermark": "spark/jobs/test_chained.py",  # It changes what operators read.
    "close_idle_after": "spark/jobs/test_idle.py",  # A batch has no clock.
    "layout": "spark/jobs/test_pages.py",  # It needs another state store.
    "max_buffered_per_key": "spark/jobs/test_time_order.py",  # A batch holds no events.
    "nulls": "spark/jobs/test_bad_input.py",  # It refuses the columns of files.
    "version": "spark/checkpoints/test_check_state.py",  # State of another class is restored.
    "upgrade": "spark/checkpoints/test_check_state.py",
}
ALWAYS: Final = {"keys", "event_time", "timeout", "watermark_delay"}
LOGIC: Final = {"logic", "state", "aggregates", "per_event"}
GROUPS: Final = {"lateness": Lateness, "results": Results, "inputs": Inputs, "storage": Storage}


def settings(**options: Any) -> dict[str, Any]:
    """Return what all specs share, and the options of one."""
    return {
        "keys": {"user": str},
        "event_time": "ts",
        "timeout": GAP,
        "watermark_delay": "2 minutes",
        "storage": Storage(bucket_count=1),
        **options,
    }


def ruled(options: dict[str, Any], *, aggregated: bool) -> SessionSpec[Any, Any, Any]:
    rules = SessionRules(**{"gap": GAP, **options})
    given = settings(timeout=rules, order="event_time" if rules.in_order else "arrival")
    if aggregated:
        return SessionSpec.aggregate(View, {"numbers": agg.collect("n")}, **given)
    return SessionSpec.of(Visit, **given)


def optional(options: dict[str, Any]) -> SessionSpec[Any, Any, Any]:
    given = settings(**options)
    state, aggregated = given.pop("state", Visit), given.pop("aggregates", False)
    if given.pop("per_event", False):
        return SessionSpec.per_event(View, **given)
    if aggregated:
        numbers = {"numbers": agg.collect("n"), "most": agg.max("n")}
        return SessionSpec.aggregate(View, numbers, **given)
    return SessionSpec.of(state, **given)


SPECS: Final = {
    **{
        f"{name} by {way}": ruled(options, aggregated=way == "aggregates")
        for name, options in RULES.items()
        for way in ("functions", "aggregates")
    },
    **{name: optional(options) for name, options in OPTIONS.items()},
}


# Where the long tests don't run: a batch has each rule by functions, and both all at once.
FEW: Final = [name for name in SPECS if name.startswith("all") or not name.endswith("aggregates")]
# What only a stream shows of a rule, its stored columns, it shows of all at once.
FEWER: Final = [name for name in FEW if name.startswith("all") or name in OPTIONS]


def some(few: Sequence[str]) -> pytest.MarkDecorator:
    """Run a test for some cases, and in the long tests for the rest."""
    rest = [name for name in SPECS if name not in few]
    return pytest.mark.parametrize(
        "names",
        [pytest.param(few, id="few"), pytest.param(rest, id="rest", marks=pytest.mark.long)],
    )


def views() -> list[list[dict[str, Any]]]:
    """Make two files of views: two users within an hour, copies, a null, and a poison event."""
    random = Random(7)
    minutes = sorted(random.choices(range(60), k=60))
    rows = [
        {
            "user": random.choice("ab"),
            "ts": START + timedelta(minutes=minute),
            "n": number,
            "page": random.choice(["/", "/", "/beat", "/login"]),
            "is_last": random.random() < 0.15,
            "campaign": random.choice([None, None, None, "x", "y"]),
            "offset": number,
        }
        for number, minute in enumerate(minutes)
    ]
    poison = {**rows[10], "ts": datetime(2099, 1, 1, tzinfo=UTC), "n": 1000, "offset": 1000}
    empty = {**rows[20], "n": None, "offset": 1001}
    return [
        [*rows[:10], poison, *rows[10:30], rows[3]],
        [rows[29], *rows[30:], empty, LAST],
    ]


LAST: Final = {"user": "z", "ts": END, "n": -1, "page": "/", "is_last": False, "offset": -1}


Found = dict[str, list[tuple[Any, ...]]]


def together(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the rows of several specs, each with the name of its case."""
    frames = []
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            # In one query, no two metrics have one name.
            patch.setattr(public_rows, "OBSERVATION", name)
            found = sessionize(events, SPECS[name], with_rejected=True)
        frames.append(shown(found, name))
    return reduce(DataFrame.unionByName, frames)


def shown(frame: DataFrame, name: str) -> DataFrame:
    """Return the rows of a case with the columns of all."""
    there = set(frame.columns)
    if "is_final" in there:
        frame = frame.where("is_final IS NULL OR is_final")
    if "numbers" not in there:
        frame = frame.withColumn("numbers", F.when(F.col("kind") == "session", F.array("n")))
        there.add("numbers")
    return frame.select(F.lit(name).alias("case"), *(_column(one, there) for one in SHOWN))


def _column(name: str, there: set[str]) -> Column:
    if name not in there:
        kind = SHOWN[name] if SHOWN[name] != "timestamp" else "bigint"
        return F.lit(None).cast(kind).alias(name)
    if SHOWN[name] == "timestamp":
        return F.unix_micros(name).alias(name)
    return F.col(name)


def by_case(frame: DataFrame) -> Found:
    """Return the rows by their cases, without that of the last event."""
    found: Found = {}
    for row in frame.where(F.col("user") != LAST["user"]).collect():
        found.setdefault(row["case"], []).append(tuple(row)[1:])
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def on_driver(name: str) -> list[tuple[Any, ...]]:
    """Return the rows that the driver returns."""
    spec = SPECS[name]
    driver = SessionDriver(spec, processing_time=END)
    for file in views():
        for row in file:
            driver.add_row(
                {key: row[key] for key in row if key != "offset" or spec.inputs.passthrough}
            )
        driver.run_until_idle()
    assert driver.counts.is_balanced
    rows = [
        *(row_of_session(one, spec) for one in driver.take_rows() if one.is_final),
        *map(row_of_event, driver.take_events()),
        *map(row_of_rejection, driver.take_rejections()),
    ]
    return sorted((row for row in rows if row[1] != LAST["user"]), key=repr)


def row_of_session(one: SessionRow[Any], spec: SessionSpec[Any, Any, Any]) -> tuple[Any, ...]:
    """Return a session, or a row for an event, as Spark shows it."""
    closed_by = None if spec.rules is None else one.closed_by
    is_event, row = isinstance(spec.logic, Events), one.result
    values = ([row.n], row.number) if is_event else (row.numbers, None)
    times = (one.session_start, one.session_end, one.last_event_time)
    bounds = (one.session_id, *map(micros_of, times))
    remembered = map(one.memory.get, REMEMBERED)
    return ("session", one.key.user, *bounds, closed_by, *values, None, None, None, *remembered)


def row_of_event(one: SessionEvent) -> tuple[Any, ...]:
    """Return an event of a closed session as Spark shows it."""
    times = (one.session_start, one.session_end, one.last_event_time)
    bounds = (one.session_id, *map(micros_of, times))
    rest = (one.number, micros_of(one.event_time), one.event_id, one.passthrough["offset"])
    return ("event", one.key.user, *bounds, None, None, *rest, *[None] * len(REMEMBERED))


def row_of_rejection(one: Rejection) -> tuple[Any, ...]:
    """Return a rejected row as Spark shows it."""
    times = (one.session_start, one.session_end, one.last_event_time, one.event_time)
    start, end, last, at = (None if time is None else micros_of(time) for time in times)
    bounds = (one.session_id, start, end, last)
    rest = (None, None, None, at, one.event_id, one.passthrough.get("offset"))
    return (one.kind, one.key.user, *bounds, *rest, *[None] * len(REMEMBERED))


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """
    Let many specs run in one query.

    Spark refuses a second `applyInPandasWithState`, wherever it is. Here none sees what another
    returns, so each has the state and the watermark that it would have alone.
    """
    with changed(spark, SETTINGS):
        yield spark


@pytest.fixture(scope="module")
def expected() -> Found:
    """The rows of all cases, from the driver."""
    return {name: on_driver(name) for name in SPECS}


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FileStream:
    """The events, in two files: sessions are open from the first to the second."""
    files = FileStream(spark, None, tmp_path_factory.mktemp("options"))
    files.put(*(pa.Table.from_pylist(rows, SCHEMA) for rows in views()))
    return files


def chosen(options: dict[str, Any]) -> list[str]:
    """Return the names of the options in groups that aren't as a spec has them by default."""
    return [
        field.name
        for group, cls in GROUPS.items()
        for field in attrs.fields(cls)
        if group in options and getattr(options[group], field.name) != getattr(cls(), field.name)
    ]


def test_every_option_has_a_case() -> None:
    """Here, or in a test of its own, which is there."""
    own = {
        field.alias
        for cls in (SessionSpec, SessionRules, *GROUPS.values())
        for field in attrs.fields(cls)
        if field.init
    }
    own = own - GROUPS.keys() - {"late_events"}  # It's for a StatefulSpec.
    here = {name for options in (*RULES.values(), *OPTIONS.values()) for name in options}
    here |= {name for options in OPTIONS.values() for name in chosen(options)}
    here = here - ALWAYS - LOGIC - GROUPS.keys() | {"state_gap"}
    assert own == here | ELSEWHERE.keys() | ALWAYS | {"logic", "gap"}
    assert not here & ELSEWHERE.keys()
    for path in ELSEWHERE.values():
        assert (Path(__file__).parents[2] / path).exists()


@pytest.mark.parametrize("name", RULES)
def test_functions_and_aggregates_give_equal_rows(name: str, expected: Found) -> None:
    """Rows, bounds, ids and reasons are the same; each rule alone ends a session of these."""
    by_functions = expected[f"{name} by functions"]
    assert by_functions
    assert by_functions == expected[f"{name} by aggregates"]
    reasons = {row[6] for row in by_functions if row[0] == "session"}
    assert reasons == {"gap", name} & set(CLOSED_BY) or name == "all"


@pytest.mark.parametrize("name", SPECS)
def test_an_event_from_the_future_makes_no_other_event_late(name: str, expected: Found) -> None:
    """Dated 2099 in the middle of a stream: it alone and the row with a null are quarantined."""
    kinds = [row[0] for row in expected[name]]
    assert 2 == kinds.count("quarantined")
    assert "late" not in kinds
    assert {
        "both": {"session", "event", "failed", "duplicate", "quarantined"},
        "per event": {"session", "duplicate", "quarantined"},
    }.get(name, {"session", "quarantined"}) == set(kinds) - {"outside"}
    if name not in {"both", "per event"}:
        honest = sorted(row["n"] for file in views() for row in file if row["n"] is not None)
        numbers = [row[7] for row in expected[name] if row[0] == "session"]
        inside = sorted(n for own in numbers for n in own)
        assert len(honest[1:-1]) == len(inside) + kinds.count("outside")
        assert kinds.count("outside") or honest[1:-1] == inside


def test_a_session_finds_what_is_remembered(expected: Found) -> None:
    """The views that came before it, session by session."""
    rows = [row for row in expected["gap of the state"] if row[0] == "session"]
    for user in "ab":
        own = sorted((row[-3], len(row[7]), row[-1]) for row in rows if row[1] == user)
        before = [0, *accumulate(size for _, size, _ in own)]
        assert [(n, told) for n, _, told in own] == [*enumerate(before[:-1], start=1)]


def test_a_sequence_parts_an_instant(expected: Found) -> None:
    """Sessions of one event, or two copies: some begin at one instant, each has its own id."""
    rows = [row for row in expected["in sequence"] if row[0] == "session"]
    assert {1} == {len(set(row[7])) for row in rows}
    assert len({row[2] for row in rows}) == len(rows) > len({(row[1], row[3]) for row in rows})


@pytest.mark.nightly
@some(FEW)
def test_a_batch_has_the_rows_of_the_driver(
    names: Sequence[str], quick: SparkSession, stream: FileStream, expected: Found
) -> None:
    """Cases as one batch."""
    found = by_case(together(stream.batch(), names))
    assert {name: expected[name] for name in names} == found


@some(FEWER)
def test_a_stream_has_the_rows_of_the_driver(
    names: Sequence[str], quick: SparkSession, stream: FileStream, expected: Found, tmp_path: Path
) -> None:
    """Cases as one stream over the files."""
    run_to_files(together(stream.events(), names), tmp_path)
    found = by_case(quick.read.parquet(str(tmp_path / "out")).select("case", *SHOWN))
    assert {name: expected[name] for name in names} == found
