"""
The program: `python -m benchmarks` measures, and writes `benchmarks/results.json`.

    python -m benchmarks                     all workloads but those of growth
    python -m benchmarks growth              how the cost grows with events and open sessions
    python -m benchmarks --only batch dense  some of them
    python -m benchmarks --resume            what a run that was stopped has left
    python -m benchmarks --scale 0.04        all in small, to try it; writes nothing

`python -m scripts.fill_pages` and `python -m scripts.draw_pictures` take the figures to the pages.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import environments
from benchmarks.child import LOCAL
from benchmarks.entrants import ENTRANTS
from benchmarks.environments import MissingToolError
from benchmarks.measure import Place, RunError, measured, place, timed
from benchmarks.report import line_of
from benchmarks.results import RESULTS, Figures, figures_of, is_fresh, keep
from benchmarks.workloads import WORKLOADS, Workload, families

__all__ = ["main"]

FAILURES: Final = (RunError, OSError, ValueError, TypeError, LookupError, NotImplementedError)
"""What a run or its rows may end with; the others go on."""
PACKAGES: Final = ("pyspark", "pandas", "pyarrow", "numpy", "attrs")


def main() -> None:
    """Do what the command line says."""
    # An end from outside is an exit as any other: it ends the runs, and removes their files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = _options()
    chosen = [
        workload
        for workload in WORKLOADS.values()
        if workload.family in (options.only or [workload.family])
        if options.only or workload.is_growth == (options.command == "growth")
    ]
    begun = time.time()
    failed: list[str] = []
    unable = _set_up({name for each in chosen for name in _names(each, options)})
    for workload in chosen:
        failed += _measured(workload, options, unable)
    _say(f"\n{(time.time() - begun) / 60:.1f} minutes")
    if failed:
        sys.exit("\n".join(["Not measured:", *failed]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure sessionkit side by side with every other way to get the same rows.",
        epilog="What this run leaves out stays in the file.",
    )
    parser.add_argument("command", nargs="?", choices=("run", "growth"), default="run")
    listed = "run these alone: " + ", ".join(families())
    parser.add_argument("--only", nargs="+", choices=families(), metavar="WORKLOAD", help=listed)
    parser.add_argument(
        "--entrants", nargs="+", choices=ENTRANTS, metavar="ENTRANT", help="run these alone"
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out what was measured within six hours"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="times the events and keys")
    parser.add_argument("--patience", type=float, default=1200, help="seconds that a run may take")
    parser.add_argument("--output", type=Path, help=f"default: {os.path.relpath(RESULTS)}")
    return parser.parse_args()


def _names(workload: Workload, options: argparse.Namespace) -> list[str]:
    """Return whom to measure."""
    return [
        name
        for name in workload.entrants
        if name in (options.entrants or workload.entrants)
        if not (options.resume and is_fresh(_output(options) or RESULTS, workload.name, name))
    ]


def _output(options: argparse.Namespace) -> Path | None:
    """Return the file to write; figures of less than all events go nowhere else."""
    given: Path | None = options.output
    return given or (RESULTS if options.scale == 1 else None)


def _set_up(entrants: Iterable[str]) -> dict[str, str]:
    """Make the environments of entrants; return those that can't be made, with the reason."""
    unable = {}
    for name in sorted({ENTRANTS[each].environment or "" for each in entrants} - {""}):
        _say(f"environment {name}")
        try:
            environments.made(name)
        except MissingToolError as error:
            unable[name] = str(error)
    return unable


def _measured(
    workload: Workload, options: argparse.Namespace, unable: Mapping[str, str]
) -> list[str]:
    """Measure a workload; return whom it couldn't measure, and why."""
    names = _names(workload, options)
    if not names:
        return []
    scaled, output = workload.scaled(options.scale), _output(options)
    failed = []
    with tempfile.TemporaryDirectory(prefix="sessionkit-bench-") as folder:
        _say(f"\n{scaled.name}: {scaled.events:,} events in each of {scaled.batches} batches")
        at = place(scaled, Path(folder), options.patience)
        for name in names:
            begun = time.time()
            try:
                found = _figures(name, at, unable)
            except FAILURES as error:
                failed.append(f"{workload.name}, {name}: {error}")
                _say(f"  {name}: {error}")
                continue
            if output is not None:
                keep(output, workload.name, _machine(), {name: found}, workload.entrants)
            _say(f"  {line_of(name, found)}; took {time.time() - begun:.0f} s")
    return failed


def _figures(name: str, at: Place, unable: Mapping[str, str]) -> Figures:
    """Compare the rows of an entrant, and then measure it."""
    entrant = ENTRANTS[name]
    reason = unable.get(entrant.environment or "")
    if reason is not None:
        raise RunError(reason)
    load = os.getloadavg()[0]
    run = (measured if at.workload.is_compared else timed)(entrant, at)
    return figures_of(run, at.workload.uncounted_of(name), load)


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "spark": LOCAL,
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
