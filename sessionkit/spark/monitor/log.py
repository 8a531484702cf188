"""How queries stand, in the log."""

import logging
from typing import Final

from sessionkit._printable import printable
from sessionkit.spark.monitor.listener import Receiver
from sessionkit.spark.monitor.metrics import samples
from sessionkit.spark.monitor.query_status import QueryStatus

__all__ = ["to_log"]

LOG: Final = logging.getLogger("sessionkit.monitor")


def to_log(logger: logging.Logger = LOG, level: int = logging.INFO) -> Receiver:
    """
    Return what writes a line a report: `visits batch=12 events_total=1000 late_total=3 ..`.

    Spark reports each micro-batch and, some seconds apart, that there was nothing to do. All known
    metrics are in the line, by the names that Prometheus has for them. A query that fails is an
    error, and a micro-batch that doesn't balance a warning.

    Args:
        logger: Where to.
        level: At which level, where nothing is wrong.
    """
    unbalanced: dict[str, int] = {}

    def write(status: QueryStatus) -> None:
        name = printable(status.name)
        if status.failure is not None:
            logger.error("%s failed: %s", name, printable(status.failure, keep="\n\t"))
            return
        grew = status.unbalanced > unbalanced.get(status.name, 0)
        unbalanced[status.name] = status.unbalanced
        severity = max(level, logging.WARNING) if grew else level
        if logger.isEnabledFor(severity):
            logger.log(severity, "%s batch=%s %s", name, status.batch, _fields(status))

    return write


def _fields(status: QueryStatus) -> str:
    return " ".join(
        f"{metric.full_name.removeprefix('sessionkit_')}{f'.{part}' if part else ''}={value:.10g}"
        for metric, part, value in samples(status)
    )
