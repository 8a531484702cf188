"""The sessions under each gap are those that SQL finds, and the advice lies in the valley."""

import gzip
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.trips.events import read_flights
from sessionkit import aggregates as agg
from sessionkit.__main__ import main
from sessionkit.addons import presets
from sessionkit.addons.gap import Gaps, gaps
from sessionkit.addons.gap.picture import MARKS
from sessionkit.addons.gap.tallies import FAR, GRID, Tally, cells_of, sorted_events
from sessionkit.addons.gap.valley import (
    Floats,
    Mixture,
    Valley,
    mixture_of,
    pauses_by_bin,
    valley_of,
)
from sessionkit.errors import SchemaError, SpecError
from sessionkit.spark import sessions
from tests.support.refusals import refusal, says

NOON, MINUTE = datetime(2026, 3, 8, 12, tzinfo=UTC), timedelta(minutes=1)
DATA: Final = Path(__file__).parents[3] / "shared" / "data"
LINE: Final = re.compile(r'(\S+).*?\[(.+?)\].*"([^"]*)"\s*$')

# ------------------------------------------------------------------------------- against SQL

SQL: Final = """
WITH events AS (SELECT k, epoch_us(ts) AS t FROM given WHERE k IS NOT NULL AND ts IS NOT NULL),
  pauses AS (SELECT k, t, t - lag(t) OVER (PARTITION BY k ORDER BY t) AS pause FROM events),
  starts AS (SELECT *, pause IS NULL OR pause {longer} {gap} AS starts FROM pauses),
  numbered AS (SELECT *, sum(starts::INT) OVER (PARTITION BY k ORDER BY t ROWS UNBOUNDED PRECEDING)
    AS session FROM starts),
  found AS (SELECT count(*) AS events, max(t) - min(t) AS length FROM numbered GROUP BY k, session)
SELECT count(*), sum(events) / count(*), count(*) FILTER (events = 1),
  median(length)::DOUBLE,
  (SELECT count(*) FROM pauses WHERE pause IS NULL OR pause {longer} 2 * {gap}::BIGINT),
  (SELECT count(*) FROM pauses WHERE pause IS NULL OR 2 * pause {longer} {gap}::BIGINT)
FROM found
"""


def told_by_sql(events: pa.Table, gap: timedelta, *, inclusive: bool = True) -> tuple[Any, ...]:
    with duckdb.connect() as database:
        database.register("given", events)
        text = SQL.format(longer=">" if inclusive else ">=", gap=gap // timedelta(microseconds=1))
        (found,) = database.sql(text).fetchall()
    return tuple(found)


def told_by_gaps(found: Gaps) -> dict[timedelta, tuple[Any, ...]]:
    return {
        row.gap: (
            row.sessions,
            pytest.approx(row.events_each),
            row.single,
            # A duration has whole microseconds; of two lengths in the middle it rounds the mean.
            pytest.approx(row.median / timedelta(microseconds=1), abs=0.51),
            row.with_twice,
            row.with_half,
        )
        for row in found.rows
    }


def table_of(keys: Any, times: Any) -> pa.Table:
    instants = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"k": pa.array(keys), "ts": instants})


def random_events(seed: int) -> pa.Table:
    """Return visits of some keys; under some seeds one key has most, and times are whole units."""
    random = np.random.default_rng(seed)
    number = int(random.integers(500, 5_000))
    keys = random.integers(0, int(random.integers(1, 300)), number)
    if seed % 3 == 0:
        keys[: number // 2] = 0
    spans = random.lognormal(np.log(random.uniform(1, 5_000)), random.uniform(0.5, 4), number)
    unit = [1, 1_000_000, 60_000_000][seed % 3]
    twenty_years = 630_720_000_000_000  # none is in the future
    times = 946_684_800_000_000 + np.cumsum(spans * 1e6 / 20).astype(np.int64) % twenty_years
    times -= times % unit
    names = np.char.add("user", keys.astype(str)).astype(object)
    names[random.random(number) < 0.02] = None
    order = random.permutation(number)
    return table_of(names[order], times[order])


def shared(path: str) -> Path:
    if not (DATA / path).exists():
        pytest.skip("the data of third parties is kept outside of the project")
    return DATA / path


def readers() -> pa.Table:
    table = pq.read_table(shared("reconstructr/events.parquet"))
    return pa.table({"k": table["uuid"], "ts": table["timestamp"]})


def shop() -> pa.Table:
    frame = pd.read_csv(shared("ecom/ecom.csv.gz"))
    times = pd.to_datetime(frame["timestamp"], utc=True).astype("datetime64[us, UTC]")
    return table_of(frame["user_id"], times.astype("int64"))


def server() -> pa.Table:
    with gzip.open(shared("apache_logs/apache_logs.gz"), "rt", encoding="utf-8") as lines:
        found = [match for line in lines if (match := LINE.match(line))]
    times = [datetime.strptime(one[2], "%d/%b/%Y:%H:%M:%S %z").timestamp() for one in found]
    return table_of([one[1] + one[3] for one in found], [int(time) * 1_000_000 for time in times])


def flights() -> pa.Table:
    table = read_flights()
    return pa.table({"k": table["tailnum"], "ts": table["departure"]})


SETS: Final[dict[str, Callable[[], pa.Table]]] = {
    "readers": readers,
    "shop": shop,
    "server": server,
    "flights": flights,
    **{f"random {seed}": partial(random_events, seed) for seed in range(10)},
}


def frame_of(spark: SparkSession, events: pa.Table) -> DataFrame:
    frame = events.to_pandas()
    frame = frame.astype({"k": object}).where(frame.notna(), None)
    frame["ts"] = frame["ts"].astype("datetime64[us, UTC]")
    return spark.createDataFrame(frame, "k string, ts timestamp")


@cache
def gaps_of_set(spark: SparkSession, name: str) -> tuple[pa.Table, Gaps]:
    events = SETS[name]()
    return events, gaps(frame_of(spark, events), keys="k", event_time="ts", gaps=["17 seconds"])


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.nightly if one > "random 2" else ()) for one in SETS],
)
def test_each_number_is_that_of_sql(spark: SparkSession, name: str) -> None:
    """Of each gap: sessions, events in one, those of one event, median length, twice and half."""
    events, found = gaps_of_set(spark, name)

    expected = {row.gap: told_by_sql(events, row.gap) for row in found.rows}

    assert expected == told_by_gaps(found)
    assert timedelta(seconds=17) in expected
    valid = events.drop_null()
    assert (valid.num_rows, len(valid["k"].unique())) == (found.events, found.keys)
    assert events.num_rows - valid.num_rows == sum(found.rejected.values())


def test_each_count_has_its_rule_for_an_event_exactly_a_gap_later(spark: SparkSession) -> None:
    """It joins the session, or begins one, for each of the three counts of a gap."""
    minutes = [0, 1, 3, 7, 12, 22, 42, 43, 73, 103, 223]
    events = table_of(["a"] * len(minutes), [minute * 60_000_000 for minute in minutes])
    frame = frame_of(spark, events)
    for inclusive in (True, False):
        found = gaps(frame, keys="k", event_time="ts", gap_inclusive=inclusive)

        expected = {
            row.gap: told_by_sql(events, row.gap, inclusive=inclusive) for row in found.rows
        }
        assert expected == told_by_gaps(found)
    assert told_by_sql(events, 30 * MINUTE) != told_by_sql(events, 30 * MINUTE, inclusive=False)


def test_rows_that_are_no_events_are_counted(spark: SparkSession) -> None:
    """They're those that `sessions` rejects, and the sessions are as many as its."""
    rows = [("a", NOON), ("a", NOON + MINUTE), ("b", NOON), (None, NOON), ("a", None), (None, None)]
    rows += [("b", datetime(2099, 1, 1, tzinfo=UTC)), (None, datetime(2099, 1, 1, tzinfo=UTC))]
    frame = spark.createDataFrame(rows, "k string, ts timestamp")

    found = gaps(frame, keys="k", event_time="ts")

    assert {"time": 2, "future": 2, "key": 1} == found.rejected
    assert (3, 2, 1) == (found.events, found.keys, found.keys_of_one)
    assert "2 with no time, 2 with a time in the future, 1 with no key" in str(found)
    of_users = sessions(frame, keys="k", event_time="ts", gap="30 minutes", with_rejected=True)
    kinds = of_users.agg(n=agg.count()).groupBy("kind").count().collect()
    (row,) = (row for row in found.rows if row.gap == 30 * MINUTE)
    assert {"session": row.sessions, "quarantined": 5} == dict(map(tuple, kinds))
    every = gaps(frame, keys="k", event_time="ts", max_future_skew=None)
    assert {"time": 2, "future": 0, "key": 2} == every.rejected


def test_a_median_is_exact_though_no_task_alone_has_it_in_its_middle(spark: SparkSession) -> None:
    """Where the keys of tasks differ much, the frame is read again, and the median is exact."""
    random = Random(3)
    rows = []
    for key in range(4):
        # Sessions of two events, of 1, 10, 100 and 1,000 seconds.
        for visit in range(2_000):
            start = visit * 10_000_000_000 + random.randrange(1_000_000)
            rows += [(key, start), (key, start + 10**key * 1_000_000 + random.randrange(1_000))]
    events = table_of([f"user{key}" for key, _ in rows], [time for _, time in rows])
    found = gaps(frame_of(spark, events).repartition(4), keys="k", event_time="ts")

    assert {row.gap: told_by_sql(events, row.gap) for row in found.rows} == told_by_gaps(found)


def test_each_value_of_a_column_may_have_a_gap_of_its_own(spark: SparkSession) -> None:
    """Nulls too; all together count each key and value as a key, with the median of all."""
    events = random_events(4).drop_null().to_pandas()
    kinds = events.index % 3
    events["kind"] = [["", "=phone", None][kind] for kind in kinds]
    frame = spark.createDataFrame(events.where(events.notna(), None))
    found = gaps(frame, keys="k", event_time="ts", by="kind")

    assert {"", "=phone", None} == set(found.by)
    for value, part in found.by.items():
        of_value = events[events["kind"].isna() if value is None else events["kind"] == value]
        table = pa.Table.from_pandas(of_value[["k", "ts"]], preserve_index=False)
        assert {row.gap: told_by_sql(table, row.gap) for row in part.rows} == told_by_gaps(part)
    both = events["k"] + "/" + events["kind"].fillna("null").astype(str)
    table = pa.Table.from_pandas(events.assign(k=both)[["k", "ts"]], preserve_index=False)
    assert {row.gap: told_by_sql(table, row.gap) for row in found.rows} == told_by_gaps(found)


def test_limits_count_what_they_would_cut(spark: SparkSession) -> None:
    """The longer sessions and those with more events, with the events in them."""
    minutes = {"a": range(0, 60, 10), "b": [0], "c": range(3)}
    rows = [(key, NOON + minute * MINUTE) for key, of_key in minutes.items() for minute in of_key]
    found = gaps(
        spark.createDataFrame(rows, "k string, ts timestamp"), keys="k", event_time="ts"
    ).limits("30 minutes", durations=["2 minutes", "50 minutes", "1 minute"], events=[2, 3, 6])

    cuts = {span // MINUTE: (cut.sessions, cut.events) for span, cut in found.by_duration.items()}
    assert {1: (2, 9), 2: (1, 6), 50: (0, 0)} == cuts
    assert {2: (2, 9), 3: (1, 6), 6: (0, 0)} == {
        most: (cut.sessions, cut.events) for most, cut in found.by_events.items()
    }
    assert (3, 10) == (found.sessions, found.events)
    assert "more than 2 events             2    66.667%          90.0%" in str(found)


# -------------------------------------------------------------------------------- the valley


def counted(pauses_s: Any) -> Floats:
    values = (np.clip(np.asarray(pauses_s), 1e-6, 3e9) * 1e6).astype(np.int64) - 1
    return pauses_by_bin(values, np.ones(len(values)), 1)


Truth: TypeAlias = tuple[Any, int, tuple[float, float]]


def with_valley(random: np.random.Generator) -> Truth:
    """Return pauses of two log-normals, a number of keys, and where the density is below half."""
    while True:
        share = random.uniform(0.05, 0.6)
        first = random.uniform(np.log(5), np.log(200))
        second = first + random.uniform(np.log(20), np.log(3_000))
        widths = random.uniform(0.5, 1.6, 2)
        places = np.linspace(first - 4 * widths[0], second + 4 * widths[1], 4_000)
        parts = ((1 - share, first, widths[0]), (share, second, widths[1]))
        density = sum(
            part / width * np.exp(-((places - middle) ** 2) / 2 / width**2)
            for part, middle, width in parts
        )
        between = np.flatnonzero((places > first) & (places < second))
        bottom = between[np.argmin(density[between])]
        is_low = density < min(density[:bottom].max(), density[bottom:].max()) / 2
        if is_low[bottom]:
            break
    low = bottom - np.argmin(is_low[bottom::-1])
    high = bottom + np.argmin(is_low[bottom:])
    number = int(np.exp(random.uniform(np.log(2_000), np.log(100_000))))
    is_between = random.random(number) < share
    pauses = np.where(
        is_between,
        random.lognormal(second, widths[1], number),
        random.lognormal(first, widths[0], number),
    )
    ends = float(np.exp(places[low])), float(np.exp(places[high]))
    return pauses, max(20, int(number / random.uniform(3, 50))), ends


def without_valley(random: np.random.Generator, kind: int) -> tuple[Any, int]:
    number = int(np.exp(random.uniform(np.log(2_000), np.log(100_000))))
    scale = np.exp(random.uniform(np.log(5), np.log(20_000)))
    near = np.where(random.random(number) < 0.5, 1, 3.3)  # two log-normals with one peak
    kinds: list[Callable[[], Any]] = [
        lambda: scale * random.lognormal(0, random.uniform(0.6, 2.5), number),
        lambda: random.exponential(scale, number),
        lambda: scale * random.weibull(random.uniform(0.4, 2), number),
        lambda: scale * (1 + random.pareto(random.uniform(0.4, 2), number)),
        lambda: np.exp(random.uniform(0, np.log(1e6), number)),
        lambda: scale * near * random.lognormal(0, 1, number),
    ]
    return kinds[kind % len(kinds)](), max(20, int(number / random.uniform(3, 50)))


def advised_s(pauses: Floats, keys: int) -> float | None:
    """Return the gap in seconds that the advice begins with, before it's rounded."""
    found, mixture = valley_of(pauses, keys), mixture_of(pauses)
    if found is None or mixture is None:
        return None
    crossing = mixture.crossing()
    is_in = crossing is not None and found.low <= crossing <= found.high
    return float(2.0 ** (crossing if crossing is not None and is_in else found.bottom))


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.long)])
def test_the_advice_lies_in_the_valley(number: int) -> None:
    """In 95 of a hundred sets with a known one."""
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(number):
        pauses, keys, (low, high) = with_valley(random)
        found = advised_s(counted(pauses), keys)
        hits += found is not None and low <= found <= high

    assert 0.95 * number <= hits


def test_no_gap_is_advised_without_a_valley() -> None:
    """Of one log-normal, exponential, Weibull, Pareto, even, or two that make one peak."""
    random = np.random.default_rng(6)
    sets = [without_valley(random, kind) for kind in range(50)]

    assert [] == [
        place for place, (of, keys) in enumerate(sets) if valley_of(counted(of), keys) is not None
    ]


def test_whole_seconds_have_no_valley_of_their_own() -> None:
    """Though there's no pause between one and two seconds."""
    random = np.random.default_rng(7)
    seconds = np.round(random.lognormal(np.log(2), 0.8, 20_000)).astype(np.int64)
    values, counts = np.unique(seconds[seconds > 0] * 1_000_000, return_counts=True)

    assert valley_of(pauses_by_bin(values - 1, counts, 1_000_000), 1_000) is None
    assert counts.sum() == pytest.approx(pauses_by_bin(values - 1, counts, 1_000_000).sum())


def test_the_mixture_crosses_where_an_independent_fit_does() -> None:
    """That of SciPy, which searches for the likeliest mixture of the pauses themselves."""
    optimize = pytest.importorskip("scipy.optimize", reason="SciPy, of the group dev")
    random = np.random.default_rng(8)
    for _ in range(5):
        pauses, *_ = with_valley(random)
        octaves = np.log2(pauses[:20_000])
        found = mixture_of(counted(pauses[:20_000]))
        assert found is not None

        def unlikely(guess: Any, octaves: Any = octaves) -> float:
            share = 1 / (1 + np.exp(-guess[0]))
            widths = np.exp(guess[3:])
            mixture = Mixture((1 - share, share), tuple(guess[1:3]), tuple(widths))
            return -float(np.log(mixture.density(octaves).sum(axis=1) + 1e-300).mean())

        start = [0, np.quantile(octaves, 0.3), np.quantile(octaves, 0.95), 0.5, 0.5]
        options = {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-7, "fatol": 1e-10}
        best = optimize.minimize(unlikely, start, method="Nelder-Mead", options=options).x
        share = 1 / (1 + np.exp(-best[0]))
        theirs = Mixture((1 - share, share), tuple(best[1:3]), tuple(np.exp(best[3:])))
        # Twelfths of an octave are 6 %; bins are eighths.
        assert theirs.crossing() == pytest.approx(found.crossing(), abs=1 / 24)


def test_real_events_have_the_valley_that_is_known_of_them(spark: SparkSession) -> None:
    """The readers' mixture crosses before an hour; the aircraft have no valley."""
    _, of_readers = gaps_of_set(spark, "readers")
    assert of_readers.crossing is not None
    assert 45 * MINUTE <= of_readers.crossing <= 55 * MINUTE
    assert 9 <= of_readers.agreeing
    assert of_readers.suggested in (60 * MINUTE, 120 * MINUTE)
    _, of_shop = gaps_of_set(spark, "shop")
    assert of_shop.valley is not None
    low, high = of_shop.valley
    assert low <= 30 * MINUTE < timedelta(hours=6) <= high
    _, of_server = gaps_of_set(spark, "server")
    assert of_server.suggested is not None
    assert MINUTE <= of_server.suggested < 60 * MINUTE
    assert says(of_server.advice(), "Look at the times first: no pause is between 1 minute and")


def test_a_search_without_a_valley_says_so_and_what_to_do(spark: SparkSession) -> None:
    """With what to do instead, and on how many keys it rests; no limits without a gap."""
    _, found = gaps_of_set(spark, "flights")

    assert (None, None, None) == (found.suggested, found.valley, found.crossing)
    assert says(found.advice(), "There is no valley", "`changes_of`", "3,870 keys")
    assert "no valley" in found.svg()
    assert "the valley" not in found.picture()
    with pytest.raises(SpecError, match="no valley"):
        found.limits()


# ------------------------------------------------------------------------ what a reader sees


@pytest.fixture(name="visits", scope="module")
def _visits(spark: SparkSession) -> DataFrame:
    """Return visits of 300 keys: half a minute between events, a day between visits."""
    random = np.random.default_rng(9)
    keys = np.repeat(np.arange(300), 40)
    is_new = np.arange(len(keys)) % 8 == 0
    spans = np.where(
        is_new,
        random.lognormal(np.log(86_400), 0.5, len(keys)),
        random.lognormal(np.log(30), 0.8, len(keys)),
    )
    times = 1_700_000_000_000_000 + (np.cumsum(spans) * 1e6 / 10).astype(np.int64)
    return frame_of(spark, table_of([f"user{key}" for key in keys], times))


def test_times_without_their_minutes_are_doubted(spark: SparkSession) -> None:
    """Each event is in the first minute of an hour, so no pause is from a minute to an hour."""
    draw = np.random.default_rng(1)
    hours, seconds = draw.integers(0, 100, 3_000), draw.integers(0, 60, 3_000)
    keys = [f"user{key}" for key in draw.integers(0, 60, 3_000)]
    times = 1_700_000_000_000_000 + (hours * 3_600 + seconds) * 1_000_000
    found = gaps(frame_of(spark, table_of(keys, times)), keys="k", event_time="ts")

    assert found.suggested is not None
    start = "Look at the times first: no pause is between 1 minute and"
    assert found.advice().startswith(start)
    assert says(found.advice(), "have lost digits", "It's sure")


def test_a_picture_shows_the_valley(visits: DataFrame) -> None:
    """As text and as SVG, with the gaps of known products and the suggested one."""
    found = gaps(visits, keys="k", event_time="ts")

    assert found.valley is not None
    assert found.suggested is not None
    assert 10 == found.agreeing
    assert says(found.advice(), "It's sure: 10 of 10 groups", "rests on 300 keys")
    assert "│" in found.picture()
    (marked,) = (line for line in str(found).splitlines() if line.endswith("<- suggested"))
    assert marked
    svg = found.svg()
    assert says(svg, "suggested", "GA4, PostHog, Snowplow", "within a visit", "the valley")
    assert found._repr_html_().startswith("<svg")


def test_known_gaps_are_those_of_the_presets() -> None:
    """So the picture marks what the products do."""
    rules = {
        "Amplitude, mobile": {presets.amplitude("mobile").gap},
        "GA4, PostHog, Snowplow": {
            each.gap for each in (presets.ga4(), presets.posthog(), presets.snowplow())
        },
    }

    assert rules == {name: {timedelta(seconds=gap)} for name, gap in MARKS.items()}


def test_the_command_prints_table_picture_and_advice(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], visits: DataFrame
) -> None:
    """Of a file of any format, with texts as times; of each value of a column, and the limits."""
    found = gaps(visits, keys="k", event_time="ts")
    rows = visits.select("k", F.unix_micros("ts").alias("ts")).toPandas()
    rows["kind"] = "phone"
    rows["ts"] = pd.to_datetime(rows["ts"], unit="us", utc=True).dt.strftime(
        "%Y-%m-%dT%H:%M:%S.%fZ"
    )
    rows.to_csv(tmp_path / "events.csv", index=False)
    given = ["gap", str(tmp_path / "events.csv"), "--format", "csv", "--keys", "k"]

    assert 0 == main([*given, "--event-time", "ts"])
    printed = capsys.readouterr().out
    assert f"{found}\n\n{found.picture()}\n\n{found.advice()}\n" == printed
    assert 0 == main([*given, "--event-time", "ts", "--by", "kind", "--limits"])
    assert says(capsys.readouterr().out, f"kind = phone: {found.advice()[:10]}", "longer than")


@pytest.mark.parametrize(
    ("options", "facts", "error"),
    [
        ({"keys": "who"}, ["`who`"], SchemaError),
        ({"event_time": "k"}, ["`k`", "timestamp"], SchemaError),
        ({"by": "device"}, ["`device`"], SchemaError),
        ({"gaps": ["soon"]}, ["`gaps`", "'soon'"], SpecError),
        ({"max_future_skew": "x"}, ["`max_future_skew`"], SpecError),
        ({"by": "number"}, ["`by`", "101 values", "`number`"], SpecError),
    ],
)
def test_what_cannot_be_counted_is_refused(
    spark: SparkSession, options: dict[str, Any], facts: list[str], error: type[Exception]
) -> None:
    """With what was found, before or after it was counted."""
    frame = spark.range(101).select(
        F.lit("a").alias("k"), F.timestamp_seconds("id").alias("ts"), F.col("id").alias("number")
    )
    given = {"keys": "k", "event_time": "ts", **options}

    with pytest.raises(error):
        gaps(frame, **given)
    assert says(refusal(gaps, frame, **given), *facts)


def test_a_frame_without_events_is_refused(spark: SparkSession) -> None:
    """It says how many of its rows lack what."""
    frame = spark.createDataFrame([(None, NOON), ("a", None)], "k string, ts timestamp")

    assert says(refusal(gaps, frame, keys="k", event_time="ts"), "no events", "1 without time")


def test_a_pause_is_between_the_edges_that_a_search_finds() -> None:
    """At each edge, right next to it, and where a float has no more digits."""
    random = np.random.default_rng(5)
    far = 2**60 + np.cumsum(random.integers(1, 300, 50))
    edges = np.unique(np.concatenate([[0, 1, 2, 3, *GRID], random.integers(0, 10**9, 300), far]))
    pauses = np.concatenate([edges, edges + 1, edges - 1, random.integers(0, 2**61, 999), [FAR]])
    pauses = pauses[pauses >= 0]

    assert np.searchsorted(edges, pauses).tolist() == cells_of(edges, pauses).tolist()


@pytest.mark.parametrize("years", [1, 9_000])
def test_a_task_sorts_events_whether_they_fit_into_a_number_or_not(years: int) -> None:
    """Of 300,000 keys, the events of 9,000 years don't."""
    random = np.random.default_rng(6)
    keys = random.integers(0, 300_000, 900_000, np.int32)
    at = random.integers(0, years * 31_556_952_000_000, len(keys)) - 10**15
    order = np.lexsort((at, keys))
    expected = keys[order], at[order]

    found = sorted_events(keys, at)

    assert all(map(np.array_equal, expected, found))


def test_a_task_without_rows_counts_nothing() -> None:
    """As where an engine has more tasks than keys."""
    (rows,) = Tally([1], [0, 1])([])

    assert 0 == rows.num_rows


def test_pauses_of_one_length_have_no_valley() -> None:
    """None, or all of one length, have no valley and no mixture."""
    assert valley_of(counted([]), 1) is None
    assert mixture_of(counted([60.0] * 100)) is None
    assert isinstance(valley_of(counted([2.0] * 500 + [2_000.0] * 500), 100), Valley)
