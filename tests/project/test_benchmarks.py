"""The parts of the benchmark that need no Spark: were they wrong, so would its figures be."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from benchmarks import bases, report, sequences
from benchmarks.calls import CASES, prepared
from benchmarks.entrants import ENTRANTS
from benchmarks.entrants.intervals import merged
from benchmarks.events import batch_of_events
from benchmarks.phases import PHASES, Stopwatch
from benchmarks.results import FRESH, Run, Sample, figures_of, keep, loaded
from benchmarks.rows import difference, expected, with_one_key
from benchmarks.workloads import WORKLOADS, Workload

SMALL = Workload(
    name="small", about="some events", entrants=("functions",), events=200, keys=20, batches=3
)


@pytest.mark.parametrize("seconds", [0, 90])
def test_no_event_of_a_workload_is_late(seconds: int) -> None:
    """Every event of a batch is ahead of the watermark that the batches before it have left."""
    disorder = timedelta(seconds=seconds)
    workload = attrs.evolve(SMALL, disorder=disorder)
    before, after = (
        batch_of_events(workload, batch)["ts"].cast(pa.int64()).to_numpy() for batch in range(2)
    )

    assert bool((np.diff(after) < 0).any())
    assert int(after.min()) >= int(before.max()) - disorder // timedelta(microseconds=1)
    assert bool(seconds) == (int(after.min()) < int(before.max()))


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_every_entrant_of_a_workload_can_do_its_task(workload: Workload) -> None:
    """A name is that of an entrant, and one of Spark has a way to the rows."""
    for name in workload.entrants:
        assert ENTRANTS[name].script or workload.task in ENTRANTS[name].ways
    assert set(workload.few) <= set(workload.entrants)


def test_the_expected_sessions_are_those_of_merged_intervals() -> None:
    """What NumPy finds on all events at once is what plain Python finds user by user."""
    batches = [batch_of_events(SMALL, batch) for batch in range(3)]
    gap_us = SMALL.gap // timedelta(microseconds=1)
    windows: dict[str, list[Any]] = {}
    for event in pa.concat_tables(batches).to_pylist():
        start_us = round(event["ts"].timestamp() * 1_000_000)
        windows.setdefault(event["user_id"], []).append(
            (start_us, start_us + gap_us, 1, event["seconds"])
        )
    rows = [(user, *each) for user in sorted(windows) for each in merged(windows[user])]
    names = ["user_id", "start_us", "end_us", "events", "seconds"]
    right = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))

    assert difference(right, expected(SMALL, batches)) is None
    assert right.num_rows > 20


def test_a_key_of_three_columns_is_as_many_users_as_it_has_values() -> None:
    """Users that share a name aren't one where their site or device differs."""
    keys = ("site", "device", "user_id")
    events = batch_of_events(attrs.evolve(SMALL, key_columns=keys), 0)
    assert 20 == len({tuple(event[name] for name in keys) for event in events.to_pylist()})
    assert 4 == len(set(events["user_id"].to_pylist()))
    assert 20 == len(
        set(with_one_key(events, attrs.evolve(SMALL, key_columns=keys))["user_id"].to_pylist())
    )


def test_what_is_kept_of_a_run_is_the_median_of_the_samples_that_count() -> None:
    """The first is left out, and what comes later replaces only what it has measured again."""
    run = Run([Sample(9.0, 9, 9), Sample(1.0, 0.5, 0.25), Sample(3.0, 1, 0.75)], 10**9)
    found = figures_of(run, 1, load=0.5)
    assert (2.0, 1.25, 0.5, 2) == tuple(
        found[name] for name in ("seconds", "cpu_s", "outside_jvm_s", "n")
    )


def test_a_run_that_is_stopped_keeps_what_it_has_measured(tmp_path: Path) -> None:
    """Each entrant is written when it's done; one that has left the workload goes."""
    path = tmp_path / "results.json"
    for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 4.0)):
        keep(path, "small", {"cores": 2}, {name: {"seconds": seconds}}, ["c", "a"])
    workloads = loaded(path)["workloads"]
    assert {"c": {"seconds": 4.0}, "a": {"seconds": 3.0}} == workloads["small"]["entrants"]


def test_where_the_memory_of_sail_ends_goes_by_the_two_largest_batches() -> None:
    """By what each further event took."""
    entrants = ({"Sail, aggregates": {"peak_bytes": each * 1e9}} for each in (9, 2, 6))
    names = (f"growth-batch-{size}" for size in (1_000_000, 20_000_000, 100_000_000))
    found = {name: {"entrants": each} for name, each in zip(names, entrants, strict=True)}
    assert (
        "Sail holds the batch in memory, here 50 bytes of an event: 100,000,000 events took 6.0 GB,"
        " so 16 GB end at about 300,000,000 events.\n"
    ) == report.growth({"workloads": found})


def test_all_entrants_of_a_workload_are_of_one_run() -> None:
    """Figures of two days, or of two machines, can't be compared."""
    for name, workload in loaded()["workloads"].items():
        when = [datetime.fromisoformat(each["when"]) for each in workload["entrants"].values()]
        assert max(when) - min(when) < FRESH, name


@pytest.mark.parametrize("case", ["small", "keys"])
def test_the_phases_of_a_call_are_found_in_the_engine(case: str) -> None:
    """Every function of a phase exists, and most of the time lies in named phases."""
    run, watch = prepared(CASES[case]), Stopwatch()
    with watch.running():
        run()
    found = watch.take()

    assert list(PHASES) == list(found)
    assert found["all else"] < sum(found.values()) / 2
    run()
    assert {0.0} == set(watch.take().values())


@pytest.mark.parametrize("prepare", [sequences.batch, sequences.micro_batch])
def test_a_funnel_and_a_path_are_the_same_as_aggregates_and_as_functions(prepare: Any) -> None:
    """So their times can be compared."""
    events = sequences.arrived(2_000)
    by_aggregates, by_functions = (
        prepare(spec, events)().rows.sort_by(
            [("user", "ascending"), ("session_start", "ascending")]
        )
        for spec in (sequences.BY_AGGREGATES, sequences.BY_FUNCTIONS)
    )

    assert by_functions.num_rows
    assert by_functions.equals(by_aggregates)


def test_only_the_second_half_of_a_run_is_compared() -> None:
    """Before, the JVM still compiles; latencies are those of whole micro-batches."""
    samples = [Sample(9.0, 9.0, 9.0, 9.0), Sample(0.5, 0.3, 0.1, 0.6)]
    runs = [Run(samples, peak_rss_bytes=0)] * 2

    assert "chained | 0.500 | 600 ms | 600 ms | 0.300 | 0.100 | 2" == bases.line_of("chained", runs)
