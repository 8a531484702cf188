"""The parts of the benchmark that need no Spark: its events, its comparison, its report."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.events import DELAY, FILES_A_BATCH, GAP, Load, batch_of_events, write_batches
from benchmarks.one_key import CASES, exponent, seconds_of_batch
from benchmarks.report import CaseResult, as_json, difference, table

SMALL = Load(events=200, keys=20, batches=3)


def result(runs: dict[str, list[list[float]]]) -> CaseResult:
    """A case in which the first of two contestants is divided by the second."""
    first, second = runs
    return CaseResult("small", SMALL, rows=7, runs=runs, divided=(first, second))


def sessions(seconds: float, users: tuple[str, ...] = ("ada", "bob")) -> pa.Table:
    """Rows as a contestant hands them out."""
    return pa.table({"user_id": users, "seconds": [seconds] * len(users)})


def times_us(batch: int) -> pa.Array:
    """The event times of one batch."""
    return batch_of_events(SMALL, batch)["ts"].cast(pa.int64()).to_numpy()


def test_the_same_batch_has_the_same_events_every_time() -> None:
    """Events depend on the seed and the number of the batch, and on nothing else."""
    assert batch_of_events(SMALL, 1).equals(batch_of_events(SMALL, 1))
    assert not batch_of_events(SMALL, 0).equals(batch_of_events(SMALL, 1))


def test_a_batch_has_as_many_events_as_it_says_over_the_users_it_says() -> None:
    """The load is what it is called."""
    events = batch_of_events(SMALL, 0)
    assert 200 == events.num_rows
    assert 20 == len(events["user_id"].unique())


def test_a_user_has_one_event_a_batch_where_the_load_says_so() -> None:
    """Every user comes once, in another order in every batch."""
    load = Load(events=20, keys=20, batches=2, one_each=True)
    first, second = (batch_of_events(load, batch)["user_id"].to_pylist() for batch in range(2))

    assert 20 == len(set(first))
    assert sorted(first) == sorted(second)
    assert first != second


def test_events_are_out_of_order_and_none_is_late() -> None:
    """Every event of a batch is ahead of the watermark that the batch before it has left."""
    before, after = times_us(0), times_us(1)
    assert bool((np.diff(after) < 0).any())
    assert int(after.min()) > int(before.max()) - DELAY.total_seconds() * 1_000_000


def test_a_batch_covers_more_time_than_the_gap() -> None:
    """So sessions of one batch are over in the next."""
    assert GAP.total_seconds() * 1_000_000 < int(np.ptp(times_us(0)))


def test_the_files_of_a_batch_hold_its_events_and_are_older_than_those_of_the_next(
    tmp_path: Path,
) -> None:
    """Spark reads files by age, so the age decides which of them make a batch."""
    write_batches(SMALL, tmp_path / "events")
    paths = sorted((tmp_path / "events").iterdir())
    ages = [path.stat().st_mtime for path in paths]
    first = pa.concat_tables([pq.read_table(path) for path in paths[:FILES_A_BATCH]])
    assert SMALL.batches * FILES_A_BATCH == len(paths)
    assert [age for age in sorted(set(ages)) for _ in range(FILES_A_BATCH)] == ages
    assert batch_of_events(SMALL, 0).equals(first)


@pytest.mark.parametrize(
    ("factor", "events", "keys"), [(0.1, 20, 2), (2.0, 400, 40), (0.001, 1, 1)]
)
def test_a_scaled_load_keeps_its_batches(factor: float, events: int, keys: int) -> None:
    """Events and keys are scaled alike, to at least one of each."""
    assert Load(events, keys, SMALL.batches) == SMALL.scaled(factor)


def test_the_median_leaves_out_the_first_batch_of_every_run() -> None:
    """The first batch of a run pays for what starts with it."""
    found = result({"slow": [[90.0, 3.0, 4.0], [80.0, 5.0, 6.0]], "fast": [[70.0, 1.0, 2.0]]})
    assert {"slow": 4.5, "fast": 1.5} == found.medians


def test_the_ratio_divides_the_first_median_by_the_second() -> None:
    """Ratios of one run compare, where seconds of two machines do not."""
    assert 3.0 == result({"slow": [[9.0, 4.5]], "fast": [[9.0, 1.5]]}).ratio


def test_equal_sessions_have_no_difference() -> None:
    """Sums may differ by rounding, and by no more."""
    assert difference(sessions(0.3), sessions(0.1 + 0.2)) is None
    assert "`seconds` in row 0: 0.3 and 0.31" == difference(sessions(0.3), sessions(0.31))


def test_a_difference_names_the_column_and_the_row() -> None:
    """Keys, times and counts must be equal exactly."""
    assert "`user_id` in row 1: bob and eve" == difference(
        sessions(1.0), sessions(1.0, ("ada", "eve"))
    )
    assert "2 rows and 1" == difference(sessions(1.0), sessions(1.0, ("ada",)))


def test_the_json_keeps_every_sample_beside_the_medians_and_the_ratio() -> None:
    """Whoever doubts a median can take another one."""
    runs = {"slow": [[9.0, 4.0]], "fast": [[8.0, 2.0]]}
    found = json.loads(json.dumps(as_json({"cores": 2}, [result(runs)])))
    assert {"cores": 2} == found["machine"]
    assert {
        "load": {"events": 200, "keys": 20, "batches": 3, "one_each": False},
        "equal_rows": 7,
        "median_seconds": {"slow": 4.0, "fast": 2.0},
        "ratio": {"slow / fast": 2.0},
        "seconds": runs,
    } == found["cases"]["small"]


def test_the_table_shows_medians_and_ratios() -> None:
    """A line a contestant, and below them a line a case."""
    text = table([result({"slow": [[9.0, 4.0]], "fast": [[8.0, 2.0]]})])
    assert "small             200    20        slow      4.00   4.00   4.00  1" in text
    assert text.endswith("\n\nsmall: slow / fast = 2.00")


def test_the_exponent_is_the_power_of_the_size() -> None:
    """Time that grows with the square of the size has the exponent 2, linear time has 1."""
    sizes = (1_000, 2_000, 4_000)

    assert 2 == pytest.approx(exponent(sizes, [size**2 / 7 for size in sizes]))
    assert 1 == pytest.approx(exponent(sizes, [size * 3.0 for size in sizes]))


@pytest.mark.parametrize("case", CASES)
def test_every_event_of_one_key_is_measured(case: str) -> None:
    """A case handles all its events: one is processed or has failed, and the session has closed."""
    driver = CASES[case]()
    seconds = seconds_of_batch(driver, 10)

    assert seconds > 0
    assert 10 == driver.counts.processed + driver.counts.failed
    assert ("fails" in case) == (driver.counts.failed == 5)
