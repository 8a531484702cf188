"""Medians and ratios of the samples, as a table to read and as JSON to keep."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from benchmarks.events import Load

__all__ = ["CaseResult", "as_json", "difference", "machine", "table"]

Runs: TypeAlias = Sequence[Sequence[float]]
"""For each run its micro-batches, in seconds."""

PACKAGES: Final = ("pyspark", "pandas", "pyarrow", "numpy", "attrs")
ROUNDING: Final = 1e-9
"""Sums of floats differ by the order of their parts, relative to their size."""


@attrs.frozen
class CaseResult:
    """
    What was measured side by side.

    Attributes:
        name: The name of the case.
        load: How much came in.
        rows: How many rows every contestant emitted, equal ones.
        runs: The samples, by contestant.
        divided: The names of the two whose medians are divided.
    """

    name: str
    load: Load
    rows: int
    runs: Mapping[str, Runs]
    divided: tuple[str, str]

    @property
    def medians(self) -> dict[str, float]:
        """The median micro-batch of each contestant, without the first one of every run."""
        return {
            name: median(seconds for run in runs for seconds in run[1:])
            for name, runs in self.runs.items()
        }

    @property
    def ratio(self) -> float:
        """The first of the two medians divided by the second."""
        first, second = self.divided
        return self.medians[first] / self.medians[second]


def difference(left: pa.Table, right: pa.Table) -> str | None:
    """Say where two tables of rows differ, both sorted; floats may, within rounding."""
    if left.num_rows != right.num_rows:
        return f"{left.num_rows:,} rows and {right.num_rows:,}"
    for name in left.column_names:
        one, other = left[name].to_numpy(), right[name].to_numpy()
        is_float = np.issubdtype(one.dtype, np.floating)
        equal = np.isclose(one, other, rtol=ROUNDING, atol=0) if is_float else one == other
        if not equal.all():
            row = int(np.argmin(equal))
            return f"`{name}` in row {row}: {one[row]} and {other[row]}"
    return None


def machine(load_before: float) -> dict[str, Any]:
    """Return what the times depend on; the load is that of the minute before the run."""
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "load_before": round(load_before, 2),
    }


def as_json(facts: Mapping[str, Any], results: Iterable[CaseResult]) -> dict[str, Any]:
    """Return all that was found, every sample included."""
    return {
        "machine": dict(facts),
        "cases": {
            result.name: {
                "load": attrs.asdict(result.load),
                "equal_rows": result.rows,
                "median_seconds": result.medians,
                "ratio": {" / ".join(result.divided): result.ratio},
                "seconds": {
                    name: [list(run) for run in runs] for name, runs in result.runs.items()
                },
            }
            for result in results
        },
    }


def table(results: Iterable[CaseResult]) -> str:
    """Return the medians and ratios as a table."""
    rows: list[tuple[str, ...]] = [
        ("case", "events a batch", "keys", "contestant", "median s", "min s", "max s", "n")
    ]
    ratios = []
    for result in results:
        load = (result.name, f"{result.load.events:,}", f"{result.load.keys:,}")
        rows += [(*load, *_cells(name, result.runs[name])) for name in result.runs]
        ratios.append(f"{result.name}: {' / '.join(result.divided)} = {result.ratio:.2f}")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    return "\n".join([*lines, "", *ratios])


def _cells(name: str, runs: Runs) -> tuple[str, ...]:
    samples = [seconds for run in runs for seconds in run[1:]]
    times = (median(samples), min(samples), max(samples))
    return (name, *(f"{seconds:.2f}" for seconds in times), str(len(samples)))
