"""Runs one entrant on one workload, in processes of its own, and looks at them from outside."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.child import LOCAL, Batch, Job
from benchmarks.entrants import Entrant
from benchmarks.environments import packages_of, python_of
from benchmarks.events import FILES_A_BATCH, closing_event, linked, write_batches
from benchmarks.processes import Sampler
from benchmarks.results import Run, Sample
from benchmarks.rows import COLUMNS, difference, expected, in_order, with_one_key
from benchmarks.workloads import Workload

__all__ = ["Place", "RunError", "measured", "place", "timed", "wrong_rows"]

ROOT: Final = Path(__file__).resolve().parents[1]
COMPARED_BATCHES: Final = 2
COMPARED_SHARE: Final = 0.05
"""How much of the events and keys of a stream each entrant gets to show its rows."""
ANY_ORDER: Final = timedelta(hours=1)
"""Longer than the events of a workload: they aren't in order within a batch."""
NUMBERS: Final = count()


class RunError(Exception):
    """Raised when a run fails or takes too long; the message says why."""


@attrs.frozen
class Place:
    """
    Where the files of a workload are.

    Attributes:
        workload: The workload, as scaled.
        files: The folder with all its events.
        few: The same for a small part of it, by which rows of streams are compared.
        folder: Where runs may write.
        patience_s: How long a run may take.
        master: Where Spark runs.
        settings: Settings of Spark that go before all others.
        python: The interpreter that runs Spark's entrants.
    """

    workload: Workload
    files: Path
    few: Path
    folder: Path
    patience_s: float
    master: str = LOCAL
    settings: Mapping[str, str] = attrs.field(factory=dict)
    python: str = sys.executable

    def new_folder(self) -> Path:
        """Make a folder that nobody has used."""
        folder = self.folder / f"run-{next(NUMBERS)}"
        folder.mkdir()
        return folder


def place(workload: Workload, folder: Path, patience_s: float, master: str = LOCAL) -> Place:
    """Write the events of a workload."""
    found = Place(workload, folder / "files", folder / "few", folder, patience_s, master)
    write_batches(workload, found.files)
    if workload.mode != "batch":
        write_batches(_part(workload), found.few)
    return found


def measured(entrant: Entrant, at: Place) -> Run:
    """
    Compare the rows of an entrant with those that NumPy finds, and time it.

    An entrant of Spark does both in one process: Spark starts once, and its JVM is warm. But where
    a family grows, only the rows of its smallest are compared, and each of them gets a cold JVM.

    Raises:
        RunError: When its rows are wrong, or it fails.
    """
    if entrant.script is None and at.workload.mode != "job" and not at.workload.is_growth:
        comparing, timing = _comparing(entrant, at), _timing(entrant, at)
        usage = _finished(entrant, at, comparing, timing)
        _refuse(_wrong(comparing, at))
        return _run_of(entrant, at, timing, usage)
    _refuse(wrong_rows(entrant, at))
    return timed(entrant, at)


def wrong_rows(entrant: Entrant, at: Place) -> str | None:
    """Say where the rows of an entrant differ from those that NumPy finds, on the same files."""
    job = _comparing(entrant, at)
    _finished(entrant, at, job)
    return _wrong(job, at)


def timed(entrant: Entrant, at: Place) -> Run:
    """Run an entrant without looking at its rows."""
    job = _timing(entrant, at)
    return _run_of(entrant, at, job, _finished(entrant, at, job))


def _comparing(entrant: Entrant, at: Place) -> Job:
    workload, files = _compared(at)
    # A batch and another engine close every session at the end of their input.
    needs_closing = workload.mode != "batch" and entrant.script is None
    closing = [workload.batches] if needs_closing else []
    rows = "rows" if entrant.script is None else "rows.parquet"
    return _job(entrant, at, files, [*range(workload.batches), *closing], rows)


def _compared(at: Place) -> tuple[Workload, Path]:
    """Return the part of the events by which rows are compared, and the folder that has it."""
    if at.workload.mode == "batch":
        # With all its keys: only with many events, more than one process takes part.
        return at.workload.shortened(COMPARED_BATCHES), at.files
    return _part(at.workload), at.few


def _timing(entrant: Entrant, at: Place) -> Job:
    closes = at.workload.mode == "job" and entrant.script is None
    closing = [at.workload.batches] if closes else []
    batches = at.workload.batches_of(entrant.name)
    return _job(entrant, at, at.files, [*range(batches), *closing])


def _job(
    entrant: Entrant, at: Place, files: Path, batches: Sequence[int], rows: str | None = None
) -> Job:
    folder = at.new_folder()
    job = Job(
        entrant=entrant.name,
        workload=at.workload.name,
        files=linked(files, batches, folder / "files"),
        checkpoint=folder / "checkpoint",
        answer=folder / "answer.json",
        rows=folder / rows if rows else None,
        master=at.master,
        settings=at.settings,
        repetitions=at.workload.repetitions,
    )
    if entrant.reads == "csv":
        _as_csv(job.files)
    return job


def _wrong(job: Job, at: Place) -> str | None:
    """Say where the rows of a job that has run differ; its folder goes."""
    workload, files = _compared(at)
    right = _right_rows(workload, files)
    found = with_one_key(pq.read_table(job.rows), workload)
    found = found.select(COLUMNS[workload.task]).cast(right.schema)
    # Spark would push this filter below the watermark, which the event then couldn't move.
    key = found.column_names[0]
    found = found.filter(pc.field(key) != closing_event(workload)[key][0])
    shutil.rmtree(job.folder)
    return difference(in_order(found), right)


def _refuse(wrong: str | None) -> None:
    if wrong is not None:
        message = f"its rows are wrong: {wrong}"
        raise RunError(message)


def _run_of(entrant: Entrant, at: Place, job: Job, usage: Sampler) -> Run:
    """Return what a job took that has run; its folder goes."""
    workload = at.workload
    found = [Batch(**each) for each in json.loads(job.answer.read_text())]
    if workload.mode == "job":
        took_s = job.answer.stat().st_mtime - usage.begun
        found = [Batch(usage.begun, took_s, took_s)]
    share = workload.batches_of(entrant.name) if workload.mode == "job" else 1
    counted = found[workload.uncounted_of(entrant.name) :]
    run = Run(
        samples=[_sample(batch, usage, share) for batch in found],
        peak_rss_bytes=usage.peak_rss_bytes,
        checkpoint_bytes=_written(job.checkpoint, counted) if workload.mode == "stream" else None,
    )
    shutil.rmtree(job.folder)
    return run


def _right_rows(workload: Workload, files: Path) -> pa.Table:
    """Return the rows that NumPy finds; it looks for them once."""
    kept = files.with_suffix(".right")
    if not kept.exists():
        batches = [_events(files, batch) for batch in range(workload.batches)]
        pq.write_table(expected(workload, batches), kept)
    return pq.read_table(kept)


def _part(workload: Workload) -> Workload:
    return workload.scaled(COMPARED_SHARE).shortened(COMPARED_BATCHES)


def _events(files: Path, batch: int) -> pa.Table:
    return pa.concat_tables(map(pq.read_table, sorted(files.glob(f"batch-{batch:02d}-*.parquet"))))


def _sample(batch: Batch, usage: Sampler, share: int) -> Sample:
    jvm_s, rest_s = usage.cpu_between(batch.begun, batch.begun + batch.took_s)
    return Sample(batch.seconds / share, jvm_s / share, rest_s / share, batch.took_s / share)


def _written(checkpoint: Path, counted: Sequence[Batch]) -> float:
    """Return how many bytes a micro-batch wrote to the checkpoint."""
    stats = [
        path.stat() for path in checkpoint.rglob("*") if path.is_file() and path.name[0] != "."
    ]
    since = counted[0].begun
    return sum(each.st_size for each in stats if each.st_mtime >= since) / len(counted)


def _finished(entrant: Entrant, at: Place, *jobs: Job) -> Sampler:
    """Do jobs in one process; return what it used."""
    folder = jobs[-1].folder
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            _command(entrant, at, *jobs),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=_environment(entrant),
            cwd=folder,
            start_new_session=True,
        )
        with Sampler(process.pid) as usage:
            code = _waited(process, at.patience_s)
    if code != 0 or not all(job.answer.exists() for job in jobs):
        raise RunError(_last_words(folder / "log") or f"it ended with code {code}")
    return usage


def _command(entrant: Entrant, at: Place, *jobs: Job) -> list[str]:
    if entrant.script is None or entrant.environment is None:
        return [at.python, "-m", "benchmarks.child", *(job.as_json() for job in jobs)]
    workload = at.workload
    (job,) = jobs
    task = {
        "files": sorted(map(str, job.files.iterdir())),
        "keys": workload.key_columns,
        "settings": dict(entrant.settings),
        "workload": workload.name,
        "logic": entrant.logic,
        "gap_us": workload.gap // timedelta(microseconds=1),
        "delay_s": ANY_ORDER // timedelta(seconds=1),
        "repetitions": workload.repetitions if job.rows is None else 1,
        "rows": job.rows and str(job.rows),
        "answer": str(job.answer),
    }
    script = ROOT / "benchmarks" / "engines" / entrant.script
    return [str(python_of(entrant.environment)), str(script), json.dumps(task)]


def _environment(entrant: Entrant) -> Mapping[str, str]:
    if entrant.script is not None:
        # What isn't sessionkit finds its own packages alone.
        return {**os.environ, "PYTHONPATH": str(ROOT) if entrant.logic else ""}
    extra = [packages_of(entrant.environment)] if entrant.environment == "protobuf" else []
    # Python workers import the functions of the entrants by name.
    path = os.pathsep.join(map(str, [ROOT, *extra]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


def _as_csv(files: Path) -> None:
    """Make one file for each reader of what all batches have for it, so that it reads in order."""
    columns = ["user_id", "ts", "seconds"]
    paths = sorted(files.glob("*.parquet"))
    options = pyarrow.csv.WriteOptions(include_header=False)
    for part in range(FILES_A_BATCH):
        chosen = [path for path in paths if path.stem.endswith(f"-{part}")]
        events = pa.concat_tables(pq.read_table(path, columns=columns) for path in chosen)
        events = events.set_column(1, columns[1], events[1].cast(pa.int64()))
        pyarrow.csv.write_csv(events, files / f"part-{part}.csv", options)
    for path in paths:
        path.unlink()


def _waited(process: "subprocess.Popen[Any]", patience_s: float) -> int:
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired as error:
        message = f"it took more than {patience_s:,.0f} s"
        raise RunError(message) from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or [""])[-1][:300]
