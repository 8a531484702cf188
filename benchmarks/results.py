"""What was measured, as values and as JSON."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, TypeAlias

import attrs

from benchmarks.workloads import Workload

__all__ = [
    "LATENCIES",
    "RESULTS",
    "Figure",
    "Latency",
    "Result",
    "Run",
    "Sample",
    "latencies_in",
    "loaded",
    "save_latencies",
    "saved",
]

RESULTS: Final = Path(__file__).resolve().parents[1] / "out" / "bench.json"
LATENCIES: Final = RESULTS.with_name("latency.json")

SPANS: Final = frozenset({"gap", "disorder", "span"})

Figure: TypeAlias = Literal[
    "seconds", "cpu_s", "rest_s", "peak_rss_bytes", "checkpoint_bytes", "state_bytes"
]
"""
What can be asked of a result: seconds and CPU seconds a batch, CPU seconds outside the JVM, the
most memory at one time, bytes written to the checkpoint a batch, bytes in the checkpoint for an
open session.
"""


@attrs.frozen
class Sample:
    """
    One batch: how long it took, and the CPU seconds of the JVM and of all other processes.

    `whole_s` is how long all of it took; of a micro-batch, `seconds` leaves out planning and logs.
    """

    seconds: float
    jvm_s: float
    rest_s: float
    whole_s: float | None = None


@attrs.frozen
class Run:
    """One process: its batches, its memory, and what it wrote."""

    samples: Sequence[Sample]
    peak_rss_bytes: int
    checkpoint_bytes: float | None = None
    state_bytes: float | None = None


@attrs.frozen(kw_only=True)
class Result:
    """
    What was measured side by side.

    Attributes:
        workload: On what, as scaled.
        scale: By how much it was scaled.
        machine: Where and when.
        runs: By entrant.
        not_run: Why an entrant has no runs, by entrant.
    """

    workload: Workload
    scale: float
    machine: Mapping[str, Any]
    runs: Mapping[str, Sequence[Run]]
    not_run: Mapping[str, str]

    def figure(self, entrant: str, figure: Figure) -> float | None:
        """Return a figure of an entrant: a median over the batches that count, or over runs."""
        values = [
            value
            for run in self.runs.get(entrant, ())
            for value in _values(run, figure, self.workload.uncounted)
        ]
        return median(values) if values else None


@attrs.frozen(kw_only=True)
class Latency:
    """How long the rows of an entrant were under way, at some rate; `against` is Spark's own."""

    rate: int
    entrant: str
    against: str
    p50_s: float
    p99_s: float
    n: int
    load: float


def latencies_in(path: Path) -> list[Latency]:
    """Return what a file has; nothing if there's no file."""
    return [Latency(**latency) for latency in json.loads(path.read_text())] if path.exists() else []


def save_latencies(found: Sequence[Latency], path: Path) -> None:
    """Write what was measured in place of what the file has of the same entrants and rates."""
    places = {(latency.rate, latency.entrant): latency for latency in (*latencies_in(path), *found)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(list(map(attrs.asdict, places.values())), indent=1) + "\n")


def loaded(path: Path) -> dict[str, Result]:
    """Return the results of a file by workload; none if there's no file."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: _result(result) for name, result in found.items()}


def saved(results: Mapping[str, Result], path: Path) -> None:
    """Write the results to a file, with every sample and, for readers, the medians."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {name: _as_json(result) for name, result in results.items()}
    path.write_text(json.dumps(found, indent=1, default=str) + "\n")


def _values(run: Run, figure: Figure, uncounted: int) -> list[float]:
    counted = run.samples[uncounted:]
    match figure:
        case "seconds":
            return [sample.seconds for sample in counted]
        case "cpu_s":
            return [sample.jvm_s + sample.rest_s for sample in counted]
        case "rest_s":
            return [sample.rest_s for sample in counted]
    value: float | None = getattr(run, figure)
    return [] if value is None else [value]


def _as_json(result: Result) -> dict[str, Any]:
    workload = attrs.asdict(result.workload)
    spans = {name: workload[name].total_seconds() for name in SPANS}
    medians = {
        name: {figure: result.figure(name, figure) for figure in ("seconds", "cpu_s")}
        for name in result.runs
    }
    return {**attrs.asdict(result), "workload": {**workload, **spans}, "medians": medians}


def _result(found: Mapping[str, Any]) -> Result:
    workload = dict(found["workload"])
    for name in SPANS.intersection(workload):
        workload[name] = timedelta(seconds=workload[name])
    workload["entrants"] = tuple(workload["entrants"])
    runs = {name: [_run(each) for each in runs] for name, runs in found["runs"].items()}
    return Result(
        workload=Workload(**workload),
        scale=found["scale"],
        machine=found["machine"],
        runs=runs,
        not_run=found["not_run"],
    )


def _run(found: Mapping[str, Any]) -> Run:
    samples = [Sample(**sample) for sample in found["samples"]]
    return Run(**{**found, "samples": samples})
