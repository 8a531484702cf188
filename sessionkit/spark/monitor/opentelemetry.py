"""The metrics of queries, for OpenTelemetry."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sessionkit.spark.monitor.listener import Receiver
from sessionkit.spark.monitor.metrics import METRICS, Metric, samples
from sessionkit.spark.monitor.query_status import QueryStatus

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["to_opentelemetry"]


def to_opentelemetry(meter: "Meter") -> Receiver:
    """
    Return what keeps the metrics of queries for a meter, which reads them when it exports.

    They have the names that Prometheus has for them, without `_total`, and the attribute `query`;
    `sessionkit_batch_part_seconds` also has `part`.

    Args:
        meter: A meter of the `opentelemetry` that the process has set up.
    """
    statuses: dict[str, QueryStatus] = {}
    for metric in METRICS:
        make: Any = meter.create_observable_gauge
        if metric.kind == "counter":
            make = meter.create_observable_counter
        name = metric.full_name.removesuffix("_total")
        make(name, callbacks=[_reader(metric, statuses)], description=metric.meaning)

    def keep(status: QueryStatus) -> None:
        statuses[status.name] = status

    return keep


def _reader(metric: Metric, statuses: dict[str, QueryStatus]) -> Callable[[Any], Iterable[Any]]:
    from opentelemetry.metrics import Observation  # noqa: PLC0415 (only who calls this has it)

    def read(options: Any) -> Iterable[Any]:
        del options
        for name, status in list(statuses.items()):
            for _, part, value in samples(status, [metric]):
                yield Observation(value, {"query": name, **({"part": part} if part else {})})

    return read
