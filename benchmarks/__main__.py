"""
The program: `python -m benchmarks` measures, `python -m benchmarks report` writes the page.

`python -m benchmarks setup` makes the environments of all entrants; a run makes those it needs.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import environments
from benchmarks.child import LOCAL
from benchmarks.earlier import Earlier
from benchmarks.entrants import ENTRANTS, Entrant
from benchmarks.environments import MissingToolError
from benchmarks.measure import Place, RunError, place, timed, wrong_rows
from benchmarks.report import aligned, page, summary, targets_of, text_of
from benchmarks.results import LATENCIES, RESULTS, Result, Run, latencies_in, loaded, saved
from benchmarks.workloads import WORKLOADS, Workload, families

__all__ = ["main"]

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGE: Final = Path(__file__).with_name("RESULTS.md")
PLOT: Final = Path(__file__).with_name("plot.py")
FAILURES: Final = (RunError, OSError, ValueError, TypeError, LookupError)
"""What a run or its rows may end with; the others go on."""
PACKAGES: Final = ("pyspark", "pandas", "pyarrow", "numpy", "attrs")


def main() -> None:
    """Do what the command line says."""
    # An end from outside is an exit as any other: it ends the runs, and removes their files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    options = _options()
    match options.command:
        case "setup":
            _set_up(environments.NAMES)
        case "report":
            _write_page(options.output)
        case _:
            _run(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure sessionkit side by side with every other way to get the same rows.",
        epilog="Results of workloads that this run leaves out stay in the file.",
    )
    parser.add_argument(
        "command", nargs="?", choices=("run", "setup", "report"), default="run", help="default: run"
    )
    parser.add_argument("--only", nargs="+", choices=families(), metavar="WORKLOAD", help=_listed())
    parser.add_argument(
        "--entrants", nargs="+", choices=ENTRANTS, metavar="ENTRANT", help="run these alone"
    )
    parser.add_argument("--batches", type=int, help="the most batches of a run")
    parser.add_argument("--repetitions", type=int, help="how often to read a batch, at most")
    parser.add_argument("--scale", type=float, default=1.0, help="times the events and keys")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each entrant")
    parser.add_argument("--patience", type=float, default=1200, help="seconds that a run may take")
    parser.add_argument("--master", default=LOCAL, help="where Spark runs; default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file for the results")
    return parser.parse_args()


def _listed() -> str:
    return "run these alone: " + ", ".join(families())


def _run(options: argparse.Namespace) -> None:
    chosen = [each for each in WORKLOADS.values() if each.family in (options.only or families())]
    unable = _set_up(_needed(chosen, options.entrants))
    for workload in chosen:
        scaled = workload.scaled(options.scale).shortened(options.batches)
        scaled = scaled.repeated(options.repetitions)
        with tempfile.TemporaryDirectory(prefix="sessionkit-bench-") as folder:
            _say(f"\n{scaled.name}: writing {scaled.batches} batches")
            at = place(scaled, Path(folder), options.patience, options.master)
            result = _measured(at, options, unable)
        # Kept after every workload: what comes later may fail.
        saved({**loaded(options.output), workload.name: result}, options.output)
        _say(f"\n{text_of(result)}")
    results = {name: each for name, each in loaded(options.output).items() if name in WORKLOADS}
    _say(f"\n{aligned(targets_of(results))}\n\nEvery sample: {os.path.relpath(options.output)}")


def _needed(workloads: Iterable[Workload], only: Sequence[str] | None) -> list[str]:
    names = {name for workload in workloads for name in _chosen(workload, only)}
    found = {ENTRANTS[name].environment for name in names}
    return sorted(name for name in found if name is not None)


def _chosen(workload: Workload, only: Sequence[str] | None) -> list[str]:
    return [name for name in workload.entrants if only is None or name in only]


def _set_up(names: Iterable[str]) -> dict[str, str]:
    """Make these environments; return those that can't be made, with the reason."""
    unable = {}
    for name in names:
        _say(f"environment {name}")
        try:
            environments.made(name)
        except MissingToolError as error:
            unable[name] = str(error)
            _say(f"  {error}")
    return unable


def _measured(at: Place, options: argparse.Namespace, unable: dict[str, str]) -> Result:
    not_run: dict[str, str] = {}
    able: list[Entrant] = []
    load = os.getloadavg()[0]
    for name in _chosen(at.workload, options.entrants):
        reason = _reason(name, at, unable)
        if reason is None:
            able.append(ENTRANTS[name])
        else:
            not_run[name] = reason
            _say(f"  {name}: not run: {reason}")
    runs: dict[str, list[Run]] = {}
    for turn in range(options.rounds):
        # The order changes each turn, so that none always profits from what comes before it.
        for entrant in able[:: -1 if turn % 2 else 1]:
            try:
                runs.setdefault(entrant.name, []).append(_one_run(entrant, at))
            except FAILURES as error:
                not_run[entrant.name] = str(error)
                _say(f"  {entrant.name}: failed: {error}")
    return Result(
        workload=at.workload,
        scale=options.scale,
        machine={**_machine(load), "master": options.master},
        runs={name: each for name, each in runs.items() if each},
        not_run=not_run,
    )


def _reason(name: str, at: Place, unable: dict[str, str]) -> str | None:
    """Return why an entrant can't be measured; its rows are compared here."""
    entrant = ENTRANTS[name]
    if entrant.environment in unable:
        return unable[entrant.environment]
    if not entrant.returns_rows:
        return None
    try:
        found = wrong_rows(entrant, at)
    except FAILURES as error:
        return str(error)
    if found is None:
        _say(f"  {name}: the rows are right")
        return None
    return f"its rows are wrong: {found}"


def _one_run(entrant: Entrant, at: Place) -> Run:
    run = timed(entrant, at)
    shown = " ".join(f"{sample.seconds:.2f}" for sample in run.samples)
    _say(f"  {entrant.name}: {shown}")
    return run


def _machine(load: float) -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
        "load": round(load, 2),
    }


def _write_page(source: Path) -> None:
    found = loaded(source)
    results = {name: found[name] for name in WORKLOADS if name in found}
    earlier = Earlier.of(PAGE.read_text()) if PAGE.exists() else None
    written = page(results, earlier, latencies_in(source.with_name(LATENCIES.name)))
    PAGE.write_text(written)
    (DOCS / "benchmarks.md").write_text(summary(written))
    python = environments.made("tables") / "bin" / "python"
    plot = [str(python), str(PLOT), str(source.resolve()), str(DOCS / "benchmarks.svg")]
    subprocess.run(plot, check=True)
    _say(f"written: {os.path.relpath(DOCS / 'benchmarks.md')} and .svg, {os.path.relpath(PAGE)}")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
