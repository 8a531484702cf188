"""
Each rule alone, and all at once: the driver, a batch and a stream come to the same sessions.

All specs run in one query: each starts as many jobs for a micro-batch as it would alone, but shares
what a query costs.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit._instants import micros_of
from sessionkit.spark import sessionize
from sessionkit.spark.jobs import public_rows
from sessionkit.testing import SessionDriver
from sessionkit.timeouts import CLOSED_BY
from tests.support.streams import FileStream

# Half an hour before midnight in New York, on the day that has 23 hours.
START: Final = datetime(2026, 3, 9, 3, 30, tzinfo=UTC)
END: Final = START + timedelta(days=1)
GAP: Final = timedelta(minutes=5)
VALUES: Final = ("closed_by", "numbers")
SHOWN: Final = ("user", "session_id", "session_start", "session_end", *VALUES)
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.unsupportedOperationCheck": "false",
}
SCHEMA: Final = pa.schema(
    {
        "user": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
        "number": pa.int64(),
        "page": pa.string(),
        "is_last": pa.bool_(),
        "campaign": pa.string(),
    }
)


@attrs.frozen
class View:
    """An event."""

    number: int
    page: str
    is_last: bool
    campaign: str | None


@attrs.define
class Visit:
    """The numbers of the views of a session."""

    numbers: list[int] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        """Add a number, so that the order of arrival doesn't show."""
        self.numbers = sorted([*self.numbers, event.number])

    def merge(self, other: "Visit") -> None:
        """Add those of another part."""
        self.numbers = sorted([*self.numbers, *other.numbers])


def short_at_login(view: View) -> timedelta:
    """Return the gap that a view asks for."""
    return GAP / 2 if view.page == "/login" else GAP


def is_seen(view: View) -> bool:
    """Tell whether a view keeps a session open."""
    return view.page != "/beat"


ALONE: Final[dict[str, dict[str, Any]]] = {
    "gap_inclusive": {"gap_inclusive": False},
    "gap of the event": {"gap": short_at_login, "at_most": GAP},
    "max_duration": {"max_duration": "10 minutes"},
    "max_events": {"max_events": 5},
    "until": {"until": "is_last"},
    "starts_with": {"starts_with": pc.field("page") == "/login"},
    "changes_of": {"changes_of": "campaign"},
    "midnight": {"midnight": "America/New_York"},
    "extends": {"extends": is_seen},
}
CASES: Final = {**ALONE, "all": reduce(lambda one, other: one | other, ALONE.values())}


def spec_of(options: dict[str, Any], *, aggregated: bool) -> SessionSpec[Any, Any, Any]:
    """Return the spec of a case."""
    rules = SessionRules(**{"gap": GAP, **options})
    settings: dict[str, Any] = {
        "keys": {"user": str},
        "event_time": "ts",
        "timeout": rules,
        "watermark_delay": "2 minutes",
        "bucket_count": 1,
        "order": "event_time" if rules.in_order else "arrival",
    }
    if aggregated:
        return SessionSpec.aggregate(View, {"numbers": agg.collect("number")}, **settings)
    return SessionSpec.of(Visit, **settings)


SPECS: Final = {
    f"{name} by {way}": spec_of(options, aggregated=way == "aggregates")
    for name, options in CASES.items()
    for way in ("functions", "aggregates")
}


# Where the long tests don't run: each rule by functions, and all at once by aggregates.
FEW: Final = [name for name in SPECS if name.endswith("functions")] + ["all by aggregates"]
REST: Final = [name for name in SPECS if name not in FEW]
some = pytest.mark.parametrize(
    "names", [pytest.param(FEW, id="few"), pytest.param(REST, id="rest", marks=pytest.mark.long)]
)


def views() -> list[dict[str, Any]]:
    """Make views of two users within an hour, by time, some of them at one instant."""
    random = Random(7)
    minutes = sorted(random.choices(range(60), k=60))
    return [
        {
            "user": random.choice("ab"),
            "ts": START + timedelta(minutes=minute),
            "number": number,
            "page": random.choice(["/", "/", "/beat", "/login"]),
            "is_last": random.random() < 0.15,
            "campaign": random.choice([None, None, None, "x", "y"]),
        }
        for number, minute in enumerate(minutes)
    ]


LAST: Final = {"user": "z", "ts": END, "number": -1, "page": "/", "is_last": False}


Found = dict[str, list[tuple[Any, ...]]]


def together(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the sessions of several specs, each with the name of its case."""
    frames = []
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            # In one query, no two metrics have one name.
            patch.setattr(public_rows, "OBSERVATION", name)
            found = sessionize(events, SPECS[name])
        times = [F.unix_micros(time).alias(time) for time in ("session_start", "session_end")]
        frames.append(
            found.select(F.lit(name).alias("case"), "user", "session_id", *times, *VALUES)
        )
    return reduce(DataFrame.unionByName, frames)


def by_case(frame: DataFrame) -> Found:
    """Return the sessions by their cases, without that of the last event."""
    found: Found = {}
    for row in frame.where(F.col("user") != LAST["user"]).collect():
        found.setdefault(row["case"], []).append(tuple(row)[1:])
    return {name: sorted(sessions) for name, sessions in found.items()}


def on_driver(spec: SessionSpec[Any, Any, Any]) -> list[tuple[Any, ...]]:
    """Return the sessions that the driver comes to."""
    driver = SessionDriver(spec)
    for row in views():
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(END)
    driver.run_until_idle()
    return sorted(
        (
            row.key.user,
            row.id,
            micros_of(row.start),
            micros_of(row.end),
            row.closed_by,
            row.result.numbers,
        )
        for row in driver.take_rows()
    )


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """
    Let many specs run in one query, each in one partition.

    Spark refuses a second `applyInPandasWithState`, wherever it is. Here none sees what another
    returns, so each has the state and the watermark that it would have alone.
    """
    before = {name: str(spark.conf.get(name)) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def expected() -> Found:
    """The sessions of all cases, from the driver."""
    return {name: on_driver(spec) for name, spec in SPECS.items()}


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FileStream:
    """The events, in two files: sessions are open from the first to the second."""
    rows = views()
    files = FileStream(spark, None, tmp_path_factory.mktemp("rules"))
    files.put(*(pa.Table.from_pylist(part, SCHEMA) for part in (rows[:30], [*rows[30:], LAST])))
    return files


@pytest.mark.parametrize("name", CASES)
def test_functions_and_aggregates_agree(name: str, expected: Found) -> None:
    """Rows, bounds, ids and reasons are the same; each rule alone ends a session of these."""
    by_functions = expected[f"{name} by functions"]
    assert by_functions
    assert by_functions == expected[f"{name} by aggregates"]
    reasons = {closed_by for *_, closed_by, _ in by_functions}
    assert reasons == {"gap", name} & set(CLOSED_BY) or name == "all"


@some
def test_a_batch_agrees(
    names: Sequence[str], quick: SparkSession, stream: FileStream, expected: Found
) -> None:
    """Cases as one batch."""
    events = quick.read.parquet(str(stream.source))
    found = by_case(together(events, names))
    assert {name: expected[name] for name in names} == found


@some
def test_a_stream_agrees(
    names: Sequence[str], quick: SparkSession, stream: FileStream, expected: Found, tmp_path: Path
) -> None:
    """Cases as one stream over the files."""
    query = (
        together(stream.events(), names)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = by_case(quick.read.parquet(str(tmp_path / "out")).select("case", *SHOWN))
    assert {name: expected[name] for name in names} == found
