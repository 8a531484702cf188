"""The parts of the benchmark that need no Spark: were they wrong, so would its figures be."""

from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from benchmarks import bases, sequences
from benchmarks.calls import CASES, prepared
from benchmarks.entrants import ENTRANTS
from benchmarks.entrants.intervals import merged
from benchmarks.events import batch_of_events
from benchmarks.phases import PHASES, Stopwatch
from benchmarks.report import page, summary
from benchmarks.results import Result, Run, Sample
from benchmarks.rows import difference, expected
from benchmarks.targets import TARGETS, Ratio
from benchmarks.workloads import WORKLOADS, Workload
from tests.support.pages import ROOT

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


def test_every_target_is_about_a_workload_and_its_entrants() -> None:
    """A target of another name would always say `not run`."""
    entrants = {each.family: each.entrants for each in WORKLOADS.values()}
    for target in TARGETS:
        assert target.entrant in entrants[target.workload]
        others = target.others if isinstance(target, Ratio) else ()
        assert {*others} <= {*entrants[target.workload]}


def test_the_page_has_the_targets_and_a_table_for_each_workload() -> None:
    """It's made of the results alone, so no figure is copied by hand."""
    seconds = {"functions": [9.0, 1.0], "by hand": [9.0, 20.0]}
    runs = {
        name: [Run([Sample(each, each / 2, each / 4) for each in batches], peak_rss_bytes=10**9)]
        for name, batches in seconds.items()
    }
    found = Result(workload=SMALL, runs=runs, scale=0.5, machine={"cores": 2}, not_run={})
    text = page({"small": found})

    assert "| small | functions | time / by hand | 1/20 | 1/18 | yes |" in text
    assert "| functions | 1.00 | 0.75 | 0.25 | 1.00 | - | - | 1 |" in text


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


def test_the_page_of_the_site_is_the_summary_of_all_results() -> None:
    """Its seconds, targets and entrants are those of the whole page, which no visitor needs."""
    whole = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    shown = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert shown == summary(whole)
    assert "| dense | 1,000,000 events of 200,000 keys in a batch | aggregates 1." in shown
