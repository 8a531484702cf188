"""
What the core lends to its add-ons: no promise, so a package of your own doesn't import it.

An add-on imports the public names that users have, and these. The list shows at a glance what an
add-on knows of the core beyond them. A name is loaded when it's first used, since most of them need
Spark, and a preset or a report doesn't.
"""

from typing import TYPE_CHECKING

from sessionkit._package import lazy_names

__all__ = [
    "AnySpec",
    "Condition",
    "Difference",
    "Duration",
    "DurationSketch",
    "FinishedBatch",
    "KnownBuckets",
    "Percentiles",
    "RepairableSink",
    "Span",
    "Spec",
    "at_least_one",
    "bucket_stats_text",
    "check_column",
    "check_extra",
    "check_key_and_time",
    "check_path",
    "check_plan",
    "check_query",
    "check_text",
    "dropped_in",
    "duration_of",
    "duration_text",
    "explained",
    "explains",
    "finished",
    "flag",
    "has_run",
    "hash_on_sail",
    "in_utc",
    "instant_in",
    "instant_of",
    "is_connect",
    "is_counted",
    "is_future",
    "is_sail",
    "literal_path",
    "micros_of",
    "names",
    "names_of",
    "newest_event_in",
    "other_run",
    "printable",
    "progress_value",
    "query_id_of",
    "quiet_session",
    "quoted",
    "span_us",
    "spark_options",
    "sql_type",
    "text",
    "total",
    "watermark_in",
]

if TYPE_CHECKING:
    from sessionkit._arguments import (
        at_least_one,
        check_column,
        check_text,
        explained,
        explains,
        flag,
        names,
        names_of,
        quoted,
        spark_options,
        sql_type,
        text,
    )
    from sessionkit._engine.counts import DurationSketch, Percentiles
    from sessionkit._engine.wire.inbound import in_utc
    from sessionkit._instants import (
        Duration,
        duration_of,
        duration_text,
        instant_of,
        micros_of,
        span_us,
    )
    from sessionkit._package import check_extra
    from sessionkit.aggregates._events import Condition
    from sessionkit.errors import printable
    from sessionkit.spark._columns import check_key_and_time, is_future
    from sessionkit.spark._logs import query_id_of
    from sessionkit.spark._paths import check_path, literal_path
    from sessionkit.spark._sail import hash_on_sail, is_sail
    from sessionkit.spark._settings import is_connect, quiet_session
    from sessionkit.spark.progress import (
        KnownBuckets,
        bucket_stats_text,
        check_query,
        dropped_in,
        has_run,
        instant_in,
        is_counted,
        newest_event_in,
        progress_value,
        total,
        watermark_in,
    )
    from sessionkit.spark.sinks import Difference, FinishedBatch, RepairableSink, Span, finished
    from sessionkit.spark.sinks.runs import check_plan, other_run
    from sessionkit.spec.base import AnySpec, Spec
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        "sessionkit._arguments",
        "sessionkit._instants",
        "sessionkit._package",
        "sessionkit.errors",
        "sessionkit.spec.base",
        "sessionkit.aggregates._events",
        "sessionkit._engine.counts",
        "sessionkit._engine.wire.inbound",
        "sessionkit.spark._columns",
        "sessionkit.spark._logs",
        "sessionkit.spark._paths",
        "sessionkit.spark._sail",
        "sessionkit.spark._settings",
        "sessionkit.spark.progress",
        "sessionkit.spark.sinks",
        "sessionkit.spark.sinks.runs",
    )
