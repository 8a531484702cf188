"""The parts of the benchmark that need no Spark: its events, its comparison, its report."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import sequences
from benchmarks.calls import CASES, prepared
from benchmarks.entrants import ENTRANTS
from benchmarks.entrants.intervals import merged
from benchmarks.events import (
    CLOSING,
    FIRST_US,
    batch_of_events,
    linked,
    write_batches,
)
from benchmarks.phases import PHASES, Stopwatch
from benchmarks.processes import Usage, cpu_between, usage_of
from benchmarks.report import aligned, page, targets_of
from benchmarks.results import Result, Run, Sample
from benchmarks.rows import difference, expected
from benchmarks.targets import TARGETS, Ratio, exponent
from benchmarks.workloads import WORKLOADS, Workload

SMALL = Workload(
    name="small", about="some events", entrants=("functions",), events=200, keys=20, batches=3
)
BIDS = attrs.evolve(
    WORKLOADS["nexmark-q11"], events=46 * 200, span=timedelta(seconds=1), keys=50, batches=3
)


def result(
    seconds: Mapping[str, Sequence[float]], workload: Workload = SMALL, **facts: Any
) -> Result:
    """A result with one run of each entrant, which took so many seconds in its batches."""
    runs = {
        name: [Run([Sample(each, each / 2, each / 4) for each in batches], peak_rss_bytes=10**9)]
        for name, batches in seconds.items()
    }
    settings: dict[str, Any] = {"scale": 1.0, "machine": {"cores": 2}, "not_run": {}, **facts}
    return Result(workload=workload, runs=runs, **settings)


def sessions(seconds: float, users: tuple[str, ...] = ("ada", "bob")) -> pa.Table:
    return pa.table({"user_id": users, "seconds": [seconds] * len(users)})


def times_us(batch: int, workload: Workload = SMALL) -> Any:
    return batch_of_events(workload, batch)["ts"].cast(pa.int64()).to_numpy()


# ------------------------------------------------------------------------------------------ events


@pytest.mark.parametrize("seconds", [0, 90])
def test_no_event_is_late(seconds: int) -> None:
    """Every event of a batch is ahead of the watermark that the batches before it have left."""
    disorder = timedelta(seconds=seconds)
    workload = attrs.evolve(SMALL, disorder=disorder)
    before, after = times_us(0, workload), times_us(1, workload)

    assert bool((np.diff(after) < 0).any())
    assert int(after.min()) >= int(before.max()) - disorder // timedelta(microseconds=1)
    assert bool(seconds) == (int(after.min()) < int(before.max()))


def test_the_files_of_a_batch_hold_its_events_and_are_older_than_those_of_the_next(
    tmp_path: Path,
) -> None:
    """Spark reads files by age, so the age decides which of them make a batch."""
    write_batches(SMALL, tmp_path / "events")
    folder = linked(tmp_path / "events", [0, 2, SMALL.batches], tmp_path / "some")
    paths = sorted(folder.iterdir())
    ages = [path.stat().st_mtime for path in paths]

    assert [age for age in sorted(set(ages)) for _ in range(2)] == ages
    assert 3 == len(set(ages))
    tables = [pq.read_table(path) for path in paths]
    assert batch_of_events(SMALL, 0).equals(pa.concat_tables(tables[:2]).combine_chunks())
    assert [CLOSING] == pa.concat_tables(tables[-2:])["user_id"].to_pylist()


def test_bids_are_those_of_the_published_generator() -> None:
    """Of 50 events 46 are bids, one each 100 microseconds; three of four are by a hot bidder."""
    bids = pa.concat_tables(batch_of_events(BIDS, batch) for batch in range(2))
    bidders = bids["bidder"].to_numpy()
    event = np.arange(2 * BIDS.events) // 46 * 50 + 4 + np.arange(2 * BIDS.events) % 46
    person, hot = event // 50, event // 5000 * 100 + 1

    assert (FIRST_US + event // 10 * 1000 == bids["dateTime"].cast(pa.int64()).to_numpy()).all()
    assert 0.74 < (bidders == 1000 + hot).mean() < 0.76
    behind = (person + 1000 - bidders)[bidders != 1000 + hot]
    assert -10 <= behind.min() < behind.max() < BIDS.keys


def test_the_expected_bids_are_those_of_merged_intervals() -> None:
    """What NumPy finds for query 11 is what plain Python finds bidder by bidder."""
    workload = attrs.evolve(BIDS, events=5_000, span=timedelta(minutes=5), keys=20)
    batches = [batch_of_events(workload, batch) for batch in range(2)]
    windows: dict[int, list[Any]] = {}
    for bid in pa.concat_tables(batches).to_pylist():
        start_us = round(bid["dateTime"].timestamp() * 1_000_000)
        windows.setdefault(bid["bidder"], []).append((start_us, start_us + 10_000_000, 1, 0.0))
    rows = [(key, *each[:3]) for key in sorted(windows) for each in merged(windows[key])]
    names = ["bidder", "start_us", "end_us", "bids"]
    right = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))

    assert difference(right, expected(workload, batches)) is None
    assert right.num_rows > 1.2 * len(windows)


# ------------------------------------------------------------------------------- entrants and rows


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


def test_the_expected_counts_are_running_totals() -> None:
    """A user with an event in a batch has a row, with all its events until then."""
    workload = attrs.evolve(SMALL, task="counts", one_each=True)
    rows = expected(workload, [batch_of_events(workload, batch) for batch in range(3)])

    assert [1] * 20 + [2] * 20 + [3] * 20 == sorted(rows["events"].to_pylist())


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


# ----------------------------------------------------------------------------------------- measure


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it reads /proc")
def test_the_time_of_a_child_counts_while_it_runs_and_after_it_has_ended() -> None:
    """CPU seconds of a tree only grow; that of the tests has processes that end meanwhile."""
    spin = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    parent = (
        "import subprocess, sys\n"
        "def wait(): print(flush=True); input()\n"
        "wait()\n"
        f"command = [sys.executable, '-c', {spin!r}]\n"
        "child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); wait()\n"
        "child.communicate(b'\\n'); wait()\n"
    )
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for _ in range(3):
            process.stdout.readline()
            found.append(usage_of(process.pid))
            process.stdin.write(b"\n")
            process.stdin.flush()
    before, during, after = found

    assert during.cpu_s >= before.cpu_s + 0.35
    assert after.cpu_s >= during.cpu_s
    assert during.rss_bytes > before.rss_bytes / 2


def test_what_a_child_has_used_is_the_same_after_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To the last bit, though 1.3 + 0.4 isn't 1.7."""
    monkeypatch.setattr("benchmarks.processes.PROC", tmp_path)
    write_stat(tmp_path, 10, parent=1, own=130)
    write_stat(tmp_path, 11, parent=10, own=40)
    during = usage_of(10)
    (tmp_path / "11" / "stat").unlink()
    write_stat(tmp_path, 10, parent=1, own=130, of_children=40)

    assert during == usage_of(10)


def write_stat(proc: Path, pid: int, *, parent: int, own: int, of_children: int = 0) -> None:
    """Write what Linux says of a process; times are in ticks."""
    fields = ["S", parent, *[0] * 9, own, 0, of_children, *[0] * 8]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(" ".join(map(str, [pid, "(python)", *fields])))


def test_cpu_between_two_looks_is_interpolated() -> None:
    """Half of the way from one look to the next is half of what was used between them."""
    looks = [(10.0, Usage(1.0, 2.0, 5)), (12.0, Usage(3.0, 2.5, 5)), (14.0, Usage(3.0, 4.5, 5))]

    assert (1.0, 1.25) == cpu_between(looks, 11.0, 13.0)
    assert (0.0, 0.0) == cpu_between([], 11.0, 13.0)


# ------------------------------------------------------------------------------ results and report


def test_a_ratio_divides_the_medians_of_one_run() -> None:
    """Ratios compare, where seconds of two machines don't."""
    ratio = Ratio("small", "functions", "java", at_most=1.15)
    found = {"small": result({"functions": [9.0, 3.0], "java": [9.0, 2.0]})}

    assert 1.5 == ratio.measured(found)
    assert ratio.measured({"small": result({"functions": [9.0, 3.0]})}) is None
    assert ratio.measured({}) is None


def test_every_target_is_about_a_workload_and_its_entrants() -> None:
    """A target of another name would always say `not run`."""
    entrants = {each.family: each.entrants for each in WORKLOADS.values()}
    for target in TARGETS:
        assert target.entrant in entrants[target.workload]
        others = target.others if isinstance(target, Ratio) else ()
        assert {*others} <= {*entrants[target.workload]}


def test_the_table_of_targets_says_what_is_met() -> None:
    """A row for each target of a workload that has run."""
    seconds = {"functions": [9.0, 1.0], "declarative": [9.0, 2.0], "by hand": [9.0, 20.0]}
    found = {"small": result(seconds)}

    assert [
        ("workload", "entrant", "measured", "is", "at most", "met"),
        ("small", "functions", "time / by hand", "1/20", "1/18", "yes"),
        ("small", "declarative", "time / by hand", "1/10", "1/20", "**no**"),
    ] == [row for row in targets_of(found) if "session_window" not in row[2]]
    assert "not run" in aligned(targets_of({"small": result({"functions": [9.0, 1.0]})}))


def test_the_page_has_the_targets_and_a_table_for_each_workload() -> None:
    """It's made of the results alone, so no figure is copied by hand."""
    text = page({"small": result({"functions": [9.0, 1.0], "by hand": [9.0, 20.0]}, scale=0.5)})

    assert "| small | functions | time / by hand | 1/20 | 1/18 | yes |" in text
    assert "## small\n\nSome events (times 0.5).\n" in text
    assert "| functions | 1.00 | 0.75 | 0.25 | 1.00 | - | - | 1 |" in text


# ------------------------------------------------------------------------------------- one hot key


def test_the_exponent_is_the_power_of_the_size() -> None:
    """Time that grows with the square of the size has the exponent 2, linear time has 1."""
    sizes = (1_000, 2_000, 4_000)

    assert 2 == pytest.approx(exponent(sizes, [size**2 / 7 for size in sizes]))
    assert 1 == pytest.approx(exponent(sizes, [size * 3.0 for size in sizes]))


# ---------------------------------------------------------------------------------- one call


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
