"""
Two queries that live several times: each life is a process on another machine, so to speak.

`python -m tests.support.faults.lives FOLDER CLOCK ZONE CORES LANGUAGE` reads the files that are
there, and ends. After each micro-batch, the clock that the file CLOCK says goes back by an hour.
"""

import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sessionkit import EventTimeGap, Inputs, SessionRules, SessionSpec, Storage
from sessionkit.spark import Files
from tests.support.clocks import faked_by
from tests.support.session_specs import collecting
from tests.support.spark_settings import IN_PARTITIONS, quick_settings
from tests.support.streams import FileStream, with_gap

RULES: Final = SessionRules(gap="10 minutes", midnight="America/New_York")
OPTIONS: Final[dict[str, Any]] = {
    "watermark_delay": timedelta(hours=2),
    "storage": Storage(bucket_count=8),
    "inputs": Inputs(max_future_skew=None),
}
SPECS: Final[dict[str, SessionSpec[Any, Any, Any]]] = {
    "gap": collecting(EventTimeGap("10 minutes"), **OPTIONS),
    "rules": collecting(RULES, **OPTIONS),
}
JAVA: Final = "spark.driver.extraJavaOptions"
HOUR_S: Final = 3600
LOOK_S: Final = 0.02


def main(folder: Path, clock: Path, zone: str, cores: str, language: str) -> None:
    """Run the queries over all files, in a session with a zone."""
    settings: dict[str, Any] = {
        **quick_settings(),
        **IN_PARTITIONS,
        "spark.sql.session.timeZone": zone,
        "spark.ui.enabled": "false",
    }
    os.environ.update(faked_by(clock))  # for the JVM, and for its workers
    settings[JAVA] += f" -Duser.language={language}"
    spark = SparkSession.builder.master(f"local[{cores}]").config(map=settings).getOrCreate()
    threading.Thread(target=turn_back, args=(clock, folder), daemon=True).start()
    for name, spec in SPECS.items():
        stream = FileStream(
            spark, spec, folder / name, with_rejected=True, shape=with_gap, files=folder / "in"
        )
        stream.run_to(Files("json", folder / name / "out"))
    spark.stop()


def turn_back(clock: Path, folder: Path) -> None:
    """Turn a clock back by an hour after each micro-batch."""
    seen, never = finished(folder), threading.Event()
    while not never.wait(LOOK_S):
        if (now := finished(folder)) > seen:
            seen = now
            clock.write_text(f"{int(clock.read_text()) - HOUR_S:+}")


def finished(folder: Path) -> int:
    """Return how many micro-batches have finished."""
    return sum(path.name.isdigit() for path in folder.glob("*/checkpoint/commits/[0-9]*"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
