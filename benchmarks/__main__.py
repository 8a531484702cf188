"""The program: compares the rows of the contestants, then their times, and writes the samples."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.contestants import CASES, Case
from benchmarks.events import write_batches
from benchmarks.report import CaseResult, as_json, difference, machine, table
from benchmarks.streams import rows_of, seconds_of_batches, spark_session

__all__ = ["main"]

RESULTS: Final = Path(__file__).resolve().parent.parent / "out" / "bench.json"


def main() -> None:
    """Measure, print a table, and write JSON."""
    options = _options()
    facts = machine(os.getloadavg()[0])
    with tempfile.TemporaryDirectory(prefix="sessionkit-bench-") as name:
        folder = Path(name)
        with spark_session(folder) as spark:
            results = [
                _measure(spark, case, options, folder / case)
                for case in CASES
                if options.only in {None, case}
            ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(as_json(facts, results), indent=2) + "\n")
    print(f"\nSeconds a micro-batch, without the first of every run:\n\n{table(results)}")
    print(f"\nEvery sample: {os.path.relpath(RESULTS)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each contestant")
    parser.add_argument("--scale", type=float, default=1.0, help="times the events and keys")
    parser.add_argument("--only", choices=CASES, help="measure one case")
    return parser.parse_args()


def _measure(
    spark: SparkSession, name: str, options: argparse.Namespace, folder: Path
) -> CaseResult:
    case, files = CASES[name], folder / "events"
    load = case.load.scaled(options.scale)
    _say(f"{name}: {load.batches} batches of {load.events:,} events over {load.keys:,} users")
    write_batches(load, files)
    rows = _compare(spark, case, files, folder)
    runs: dict[str, list[list[float]]] = {contestant: [] for contestant in case.contestants}
    for turn in range(min(options.rounds, case.rounds or options.rounds)):
        # The order changes each turn, so that neither always profits from a warm machine.
        for contestant in list(runs)[:: -1 if turn % 2 else 1]:
            checkpoint = folder / f"checkpoint-{contestant}-{turn}"
            run = case.contestants[contestant]
            seconds = seconds_of_batches(spark, run, files, checkpoint)
            runs[contestant].append(seconds)
            _say(f"  {contestant}: {' '.join(f'{each:.2f}' for each in seconds)}")
    return CaseResult(name, load, rows, runs, case.ratio)


def _compare(spark: SparkSession, case: Case, files: Path, folder: Path) -> int:
    """Return how many rows the contestants emit; exit if they differ."""
    (first, one), (second, other) = [
        (name, rows_of(spark, contestant, case.columns, files, folder / f"compared-{name}"))
        for name, contestant in case.contestants.items()
    ]
    found = difference(one, other)
    if found is not None:
        sys.exit(f"{first} and {second} give different rows: {found}")
    rows: int = one.num_rows
    _say(f"  {rows:,} rows, equal in {first} and {second}")
    return rows


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
