"""What the benchmark of executors reads from Spark's event log; it needs no Spark for that."""

import json

from benchmarks.executors import bytes_of, told
from benchmarks.results import Run, Sample
from benchmarks.workloads import WORKLOADS


def test_the_bytes_of_all_tasks_are_added_up() -> None:
    """By where they went; other events of the log say nothing, nor does a task that failed."""
    metrics = {
        "Shuffle Read Metrics": {"Remote Bytes Read": 10, "Local Bytes Read": 5},
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 15},
    }
    log = [
        {"Event": "start"},
        {"Task Metrics": metrics},
        {"Task Metrics": metrics},
        {"Task Metrics": None},
    ]

    found = bytes_of(map(json.dumps, log))

    assert {
        "over the network": 20,
        "within a machine": 10,
        "to local disks": 30,
    } == found


def test_a_run_is_told_for_a_million_events() -> None:
    """Without the first micro-batch, in which the JVM compiles."""
    workload = WORKLOADS["small"].shortened(3)
    run = Run([Sample(9, 9, 9), Sample(0.5, 1, 0.5), Sample(0.5, 1, 0.5)], 1, checkpoint_bytes=1e6)

    line = told("functions", 2, workload, run, {"over the network": 600_000})

    assert "2 executors: 0.50 s a micro-batch, 15.00 CPU s a million events" in line
    assert line.endswith("bytes an event: 2.0 over the network, 10.0 to the checkpoint; n 2")
