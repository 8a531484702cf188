"""Read the counts of a micro-batch from the progress of its query."""

from collections.abc import Mapping
from typing import Any, Final

from sessionkit._engine.counts import COUNTED, DECLARED, Counts
from sessionkit.errors import SessionkitError, with_hint
from sessionkit.spark.jobs.standings import BUCKETS

__all__ = ["OBSERVATION", "batch_counts", "entry", "has_run", "is_counted", "said_by_buckets"]

OBSERVATION: Final = "sessionkit"
"""The name of the counts among a query's observed metrics."""


def batch_counts(progress: Any) -> Counts:
    """
    Read the counts of one micro-batch from the progress of its query.

    All counts are zero if no micro-batch ran: Spark also reports that a query is idle. Spark 3.5
    reports no metrics of micro-batches without data, in which sessions close; then `unknown` names
    the counts that nobody knows, and they are zero.

    Args:
        progress: An entry of `query.recentProgress`, `query.lastProgress`, or `event.progress` in a
            `StreamingQueryListener`. Their shapes differ between releases of Spark and on Spark
            Connect.

    Raises:
        SessionkitError: The progress is from a query that sessionkit didn't build.
    """
    if not has_run(progress):
        return Counts()
    values = _observed(progress)
    if values is not None:
        counted: dict[str, Any] = {name: int(values[name] or 0) for name in COUNTED}
        return Counts(**counted)
    if _input_rows(progress):
        found = f"the progress has no observed metrics named {OBSERVATION!r}"
        hint = "pass the progress of a query over the frame that sessionize returned"
        raise SessionkitError(with_hint(found, hint))
    return Counts(unknown=frozenset(count.name for count in DECLARED if not count.needs_input))


def is_counted(progress: Any) -> bool:
    """Return whether a progress has counts of sessionkit."""
    return _observed(progress) is not None


def said_by_buckets(progress: Any) -> str | None:
    """Return what the buckets said in one micro-batch; None if Spark reported nothing of it."""
    found = (_observed(progress) or {}).get(BUCKETS)
    return None if found is None else str(found)


def has_run(progress: Any) -> bool:
    """Return whether a progress is of a micro-batch; Spark also reports that a query is idle."""
    return progress is not None and "addBatch" in (entry(progress, "durationMs") or {})


def entry(progress: Any, name: str) -> Any:
    """Return a part of a progress, which is a dict or, in a listener of Spark 3.5, an object."""
    if isinstance(progress, Mapping):
        return progress.get(name)
    return getattr(progress, name, None)


def _input_rows(progress: Any) -> int:
    sources = entry(progress, "sources") or []
    return sum(int(entry(source, "numInputRows") or 0) for source in sources)


def _observed(progress: Any) -> Mapping[str, Any] | None:
    """Return the observed metrics by name; on Connect they come beside their schema."""
    observed = (entry(progress, "observedMetrics") or {}).get(OBSERVATION)
    if observed is None:
        return None
    found: Mapping[str, Any] = observed.asDict() if hasattr(observed, "asDict") else observed
    if "values" in found and "schema" in found:
        names = (*COUNTED, BUCKETS)[: len(found["values"])]
        return dict(zip(names, found["values"], strict=True))
    return found
