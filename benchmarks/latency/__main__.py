"""The program: `python -m benchmarks.latency` measures every entrant at every rate."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import pyspark

from benchmarks import environments
from benchmarks.latency.child import Job
from benchmarks.latency.entrants import ENTRANTS, Kind
from benchmarks.results import RESULTS, keep_latencies
from tests.support.kafka import Kafka, java_with_kafka, running_kafka

__all__ = ["line_of", "main"]

ROOT: Final = Path(__file__).resolve().parents[2]
AGAINST: Final[Mapping[Kind, str]] = {"update": "window, update mode", "close": "session_window"}
FIRST: Final = [*AGAINST.values(), *(name for name in ENTRANTS if name not in AGAINST.values())]
SLOW: Final = {"transformWithState": 1000}
"""Entrants that can't keep up with more: their queue would be measured."""


def main() -> None:
    """Measure, and print a line for each run."""
    parser = argparse.ArgumentParser("python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--entrants", nargs="+", choices=ENTRANTS, default=FIRST)
    parser.add_argument("--rates", nargs="+", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--seconds", type=int, default=60, help="for how long events count")
    parser.add_argument("--warm-up", type=int, default=90, help="seconds before that")
    options = parser.parse_args()
    found: dict[tuple[str, int], Any] = {}
    for rate in options.rates:
        for name in options.entrants:
            if rate > SLOW.get(name, rate):
                continue
            load = os.getloadavg()[0]
            with TemporaryDirectory() as folder:
                answer = _measured(name, rate, options, Path(folder))
            found[name, rate] = answer
            kind = ENTRANTS[name].kind
            figures = {each: answer[each] for each in ("p50_s", "p99_s", "n")}
            about = {"rate": rate, "entrant": name, "against": AGAINST[kind], "load": load}
            keep_latencies(RESULTS, [{**about, **figures}])
            line = line_of(name, rate, answer, found.get((AGAINST[kind], rate)))
            print(f"{line}  load {load:.1f}", flush=True)


def line_of(name: str, rate: int, answer: Any, against: Any) -> str:
    """Return a run as a line, with what it is of Spark's own operator."""
    line = (
        f"{rate:6,} events/s  {name:22} p50 {answer['p50_s']:6.2f} s  p99 {answer['p99_s']:6.2f} s"
        f"  micro-batch {answer['batch_s']:.2f} s  n {answer['n']:,}"
    )
    if against is None or against is answer:
        return line
    ratios = [answer[each] / against[each] for each in ("p50_s", "p99_s")]
    return f"{line}  of Spark's {ratios[0]:.2f}, {ratios[1]:.2f}"


def _measured(name: str, rate: int, options: argparse.Namespace, folder: Path) -> Any:
    environment = ENTRANTS[name].environment
    extra = []
    if environment is not None:
        environments.made(environment)
        extra = [environments.packages_of(environment)]
    path = os.pathsep.join(map(str, [ROOT, *extra]))
    with running_kafka(folder, pyspark.__version__) as kafka:
        job = _job(name, rate, options, folder, kafka)
        command = [sys.executable, "-m", "benchmarks.latency.child", json.dumps(attrs.asdict(job))]
        with (folder / "log").open("w") as log:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
                check=False,
            )
        if done.returncode:
            raise SystemExit((folder / "log").read_text()[-3000:])
        return json.loads((folder / "answer.json").read_text())


def _job(name: str, rate: int, options: argparse.Namespace, folder: Path, kafka: Kafka) -> Job:
    return Job(
        entrant=name,
        rate=rate,
        seconds=options.seconds,
        warm_up=options.warm_up,
        servers=kafka.servers,
        jars=sorted(map(str, kafka.connector.glob("*.jar"))),
        java=java_with_kafka(),
        folder=str(folder),
    )


if __name__ == "__main__":
    main()
