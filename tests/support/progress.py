"""Spark's report of a micro-batch of a query over a spec, made up."""

from typing import Any

from sessionkit._engine.counts import COUNTED


def progress_of(batch: int, said: str, *, rows: int = 4, second: int = 0) -> dict[str, Any]:
    """Return the progress of a micro-batch of two seconds."""
    counts = {**dict.fromkeys(COUNTED, 0), "events": rows, "processed": rows}
    return {
        "id": "7f",
        "name": "visits",
        "batchId": batch,
        "timestamp": f"2026-03-08T12:00:{second:02}.000Z",
        "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
        "observedMetrics": {"sessionkit": {**counts, "buckets": said}},
        "sources": [{"numInputRows": rows}],
        "stateOperators": [],
    }
