"""
What was measured: one file, `benchmarks/results.json`, from which the pages have their figures.

A figure of an entrant is the median of the samples that count. The file is written after each
entrant, so a run that is stopped keeps what it has measured.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import attrs

__all__ = [
    "FRESH",
    "RESULTS",
    "Figures",
    "Run",
    "Sample",
    "figures_of",
    "is_fresh",
    "keep",
    "keep_latencies",
    "loaded",
    "seconds_of",
]

RESULTS: Final = Path(__file__).with_name("results.json")
FRESH: Final = timedelta(hours=6)
"""What is younger belongs to the same run."""

Figures: TypeAlias = dict[str, Any]
"""
Of an entrant: `seconds` and `cpu_s` of a batch, `outside_jvm_s` of the latter, `peak_bytes` of all
its processes; of a stream `checkpoint_bytes`, written in a batch; how many samples counted, `n`;
`when`, and the machine's `load` before it.
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


def figures_of(run: Run, uncounted: int, load: float) -> Figures:
    """Return what is kept of a run; some samples come before those that count."""
    counted = run.samples[uncounted:]
    found: Figures = {
        "seconds": median(sample.seconds for sample in counted),
        "cpu_s": median(sample.jvm_s + sample.rest_s for sample in counted),
        "outside_jvm_s": median(sample.rest_s for sample in counted),
        "peak_bytes": run.peak_rss_bytes,
        "checkpoint_bytes": run.checkpoint_bytes,
        "n": len(counted),
        "load": round(load, 2),
    }
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in found.items()
        if value is not None
    }
    return {**rounded, "when": datetime.now(UTC).isoformat(timespec="minutes")}


def loaded(path: Path = RESULTS) -> dict[str, Any]:
    """Return the `workloads` and the `latency` of a file; empty ones if there's no file."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {"workloads": {}, "latency": [], **found}


def seconds_of(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the seconds of a batch by workload and entrant."""
    return {
        name: {who: figures["seconds"] for who, figures in workload["entrants"].items()}
        for name, workload in results["workloads"].items()
    }


def is_fresh(path: Path, workload: str, entrant: str) -> bool:
    """Return whether a run of today has measured it already."""
    found = loaded(path)["workloads"].get(workload, {}).get("entrants", {}).get(entrant)
    return found is not None and (datetime.now(UTC) - datetime.fromisoformat(found["when"]) < FRESH)


def keep(
    path: Path,
    workload: str,
    machine: Mapping[str, Any],
    found: Mapping[str, Figures],
    entrants: Iterable[str],
) -> None:
    """Write the figures of some entrants; those that the workload no longer has go."""
    results = loaded(path)
    before = results["workloads"].get(workload, {}).get("entrants", {})
    after = {**before, **found}
    kept = {name: after[name] for name in entrants if name in after}
    results["workloads"][workload] = {"machine": machine, "entrants": kept}
    _write(results, path)


def keep_latencies(path: Path, found: Iterable[Mapping[str, Any]]) -> None:
    """Write latencies in place of what the file has of the same entrants and rates."""
    results = loaded(path)
    places = {(each["rate"], each["entrant"]): each for each in (*results["latency"], *found)}
    results["latency"] = [places[place] for place in sorted(places)]
    _write(results, path)


def _write(results: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # In place at once: whoever stops the run leaves one whole file.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    new.replace(path)
