"""Start a query, with trigger, sink, output mode and checkpoint checked together."""

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit._arguments import check_flag, check_options, check_text, explains
from sessionkit._instants import Duration
from sessionkit.errors import SchemaError, SpecError, StateCorruptedError, StateError
from sessionkit.spark._columns import A_STREAM, check_frame
from sessionkit.spark._grouping import for_stream, with_buckets
from sessionkit.spark._logs import (
    Logs,
    check_logs,
    exists,
    folder_texts,
    logs_of,
    query_id_of,
    root_of,
)
from sessionkit.spark._other_runs import said_if_other_run
from sessionkit.spark._paths import check_path
from sessionkit.spark._pipelines import in_pipeline
from sessionkit.spark._plan import PlanNode, plan_of
from sessionkit.spark._refusals import (
    check_folders,
    check_mode,
    check_one_state,
    said_at_start,
)
from sessionkit.spark._settings import (
    SOURCE_EVOLUTION,
    has_source_evolution,
    is_connect,
    set_at_start,
)
from sessionkit.spark._started import StartedQuery
from sessionkit.spark.checkpoints.check_state import check_deep
from sessionkit.spark.checkpoints.state_reader import (
    check_operators,
    check_stored_buckets,
    check_stored_rules,
    other_buckets_error,
    reads_state,
)
from sessionkit.spark.sinks import OutputMode
from sessionkit.spark.sinks.batches import Start
from sessionkit.spark.sinks.values import (
    AtLeastOnce,
    AtLeastOncePerRow,
    BatchSink,
    Console,
    Files,
    Kafka,
    MemoryTable,
    StreamSink,
)
from sessionkit.spark.sinks.writers import check_start, checked_parts, to_sink
from sessionkit.spec.base import MILLISECOND, AnySpec, whole_milliseconds
from sessionkit.spec.calls import check_kind
from sessionkit.spec.options import buckets_for

Trigger: TypeAlias = Duration | Literal["availableNow"]
Option: TypeAlias = str | int | float | bool
Check: TypeAlias = Literal["rules", "deep"]

CHECKPOINT_HINT: Final = "pass checkpoint='/a/folder/of/its/own'"
OPTIONS_WITH_AN_ARGUMENT: Final = {
    "checkpointlocation": "checkpoint=",
    "kafka.bootstrap.servers": "Kafka(servers=...)",
    "outputmode": "mode=",
    "numrows": "Console(rows=...)",
    "path": "Files(path=...)",
    "queryname": "name=",
    "topic": "Kafka(topic=...)",
    "truncate": "Console(truncate=...)",
}

NAMES: Final = ("their numbers", "their names")


@attrs.frozen
class Temporary:
    """
    A checkpoint for one run: the next start of the query begins again with the first row.

    `start_query(..., checkpoint=Temporary())` takes it, for the sinks `AtLeastOnce` and
    `AtLeastOncePerRow`.
    """


@explains
def start_query(
    frame: DataFrame,
    *,
    sink: StreamSink,
    trigger: Trigger,
    mode: OutputMode = "append",
    checkpoint: str | os.PathLike[str] | Temporary | None = None,
    name: str | None = None,
    spec: AnySpec | None = None,
    check: Check = "rules",
    options: Mapping[str, Option] | None = None,
    sink_since: int = 0,
    tune: bool = False,
) -> StreamingQuery:
    """
    Start a query on a stream, after every check that can be made before it runs.

    Spark alone finds some of these mistakes late or never; `writeStream` skips the checks.

    Example:
        from sessionkit.spark import Files, sessionize, start_query

        # stream: a stream with the columns user, ts and page
        # visits: the spec in the example of SessionSpec.of
        query = start_query(
            sessionize(stream, visits),
            sink=Files("parquet", "/data/visits"),
            trigger="1 minute",
            checkpoint="/checkpoints/visits",
            spec=visits,
        )

    Args:
        frame: A streaming DataFrame, such as `sessionize` returns.
        sink: Where the rows go: one of the sinks of `sessionkit.spark`, of an add-on, or your own.
        trigger: `"availableNow"` processes the available data and stops. A duration is the
            processing time from the start of one micro-batch to the start of the next.
        mode: The output mode. Rows of sessions have `append` alone.
        checkpoint: The checkpoint location, which every sink but `Console` and `MemoryTable`
            needs. Left out, it's the subfolder `name` of the setting
            `spark.sql.streaming.checkpointLocation`. With `Temporary()`, every start of a query to
            `AtLeastOnce` or `AtLeastOncePerRow` begins with the first row.
        name: The name of the query, unique among the active ones.
        spec: The spec that produced the frame; the checkpoint is then checked against it too.
        check: `"rules"` checks Spark's logs in the checkpoint, and the rules of the spec.
            `"deep"` also reads all stored state, as `check_checkpoint` does with `deep=True`: it
            needs `spec`, and Spark 4.0 or later.
        options: More options of the sink, under Spark's names; none for sinks that write whole
            micro-batches, such as `Routes` and `ExactlyOnce`.
        sink_since: For a table, folder or store that joins the query later: the number of the first
            micro-batch that it gets. If the last finished one is 41, pass 42, and keep the argument
            from then on. With 0, the default, a query that has finished a micro-batch is refused if
            the table, folder or store has nothing of it yet: earlier rows would be missing there.
        tune: Whether to apply, to this query alone, the recommended settings that it reads at its
            start.

    Returns:
        The running query.

    Raises:
        SchemaError: The frame is a batch, or isn't a DataFrame of Spark.
        SpecError: Sink, trigger, mode, checkpoint and frame don't fit together; a table or a folder
            belongs to another query, or has fewer or more micro-batches than the checkpoint; the
            sink or the checkpoint lies in a folder that the query reads, or the checkpoint in the
            folder of the sink; an aggregation, a join of streams or another spec reads the rows of
            a spec; a second watermark is declared; the code runs in a declarative pipeline.
        StateError: The checkpoint was written under a spec with other rules. With Spark
            3.5, the running query fails instead.
        StateCorruptedError: The checkpoint is damaged, as far as `check` reads it.
        UnsupportedError: `check="deep"` on Spark 3.5, which can't read state; or a stream on Sail.
    """
    check_frame(frame, "frame", A_STREAM)
    if not frame.isStreaming:
        found = "`frame` is a batch, and a query runs on a stream"
        raise SchemaError(found, "read it with readStream; write a batch with frame.write")
    if in_pipeline():
        found = "`start_query` is called in a declarative pipeline, which starts queries itself"
        raise SpecError(found, "return the frame from a function under `@pipelines.table`")
    if spec is not None:
        check_kind(spec)
    _check_depth(check, spec)
    _check_types(name, options, sink_since, tune=tune)
    parts = checked_parts(frame, sink, mode)
    _check_options(options or {}, sink)
    plan = plan_of(frame)
    check_mode(mode, plan)
    check_one_state(plan)
    by_spec = spec is not None and spec.clock == "processing_time"
    waits = by_spec or (plan is not None and plan.waits_for_clock)
    timing = _timing(trigger, always_due=waits)
    name = _query_name(sink, name)
    if name in [active.name for active in frame.sparkSession.streams.active if active.name]:
        found = f"a query with the name {name!r} runs already in this session of Spark"
        raise SpecError(found, "stop it first, or pass another name=...")
    location = _location(frame.sparkSession, sink, checkpoint, name)
    start = None
    if location is not None:
        with said_at_start():
            check_folders(plan, parts, sink, location, root_of(frame.sparkSession))
            query_id = _checked_query_id(frame.sparkSession, location)
            readings = () if plan is None else plan.readings
            logs = check_logs(location, frame.sparkSession, readings)
            _check_logs(logs, plan, spec, check, frame.sparkSession)
            start = Start(location, logs.planned, logs.written, sink_since, logs.finished)
            with said_if_other_run(frame.sparkSession, logs):
                check_start(frame, sink, parts, query_id, start)
    writer = to_sink(frame, mode, sink, parts, start).trigger(**timing).options(**(options or {}))
    if location is not None:
        writer = writer.option("checkpointLocation", location)
    with said_at_start(), set_at_start(frame.sparkSession, tune=tune):
        query = writer.start(queryName=name)
    return query if is_connect(frame) else StartedQuery(query._jsq)  # noqa: SLF001 (no other way)


def _check_types(name: object, options: object, sink_since: object, *, tune: object) -> None:
    if name is not None:
        check_text("name", name)
    if options is not None:
        check_options("options", options)
    if type(sink_since) is not int or sink_since < 0:
        found = f"`sink_since` must be the number of a micro-batch, found {sink_since!r}"
        raise SpecError(found, "leave it out for 0")
    check_flag("tune", tune)


def _check_options(options: Mapping[str, Option], sink: StreamSink) -> None:
    if options and isinstance(sink, BatchSink):
        first = next(iter(options))
        found = f"{type(sink).__name__} has no options of Spark's, and would ignore `{first}`"
        hint = "in Routes, pass Kafka(options=...); write others in an AtLeastOnce"
        raise SpecError(found, hint)
    for option in options:
        argument = OPTIONS_WITH_AN_ARGUMENT.get(option.lower())
        if argument is not None:
            found = f"the option `{option}` has an argument of its own, which is checked"
            raise SpecError(found, f"pass it as {argument}")


def _timing(trigger: Trigger, *, always_due: bool = False) -> dict[str, Any]:
    always = "with a processing-time timeout, Spark always has another batch to run"
    hint = "use a trigger such as '1 minute' and stop the query yourself, or an event-time timeout"
    if isinstance(trigger, str) and trigger == "availableNow":
        if always_due:
            raise SpecError(f"the query would never end, with availableNow: {always}", hint)
        return {"availableNow": True}
    if isinstance(trigger, str) and trigger.lower() in {"once", "available_now", "availablenow"}:
        found = f"`trigger` must be a duration or 'availableNow', found {trigger!r}"
        raise SpecError(found, "write trigger='availableNow'")
    pause = whole_milliseconds(trigger, "trigger", zero_allowed=True)
    if always_due and not pause:
        found = f"the query would never rest: {always}, and each batch reads all state again"
        raise SpecError(found, hint)
    return {"processingTime": f"{pause // MILLISECOND} milliseconds"}


def _query_name(sink: StreamSink, name: str | None) -> str | None:
    if not isinstance(sink, MemoryTable):
        return name
    if name not in {None, sink.table}:
        found = f"a memory sink's table has the name of its query: {sink.table!r}, not {name!r}"
        raise SpecError(found, "omit `name`")
    return sink.table


def _location(
    spark: SparkSession,
    sink: StreamSink,
    checkpoint: str | os.PathLike[str] | Temporary | None,
    name: str | None,
) -> str | None:
    """Return the checkpoint location; None if Spark should create one for this run."""
    if isinstance(checkpoint, Temporary):
        if isinstance(sink, Files | Kafka | BatchSink):
            found = f"{type(sink).__name__} can't use a temporary checkpoint"
            raise SpecError(f"{found}: it needs a lasting one", CHECKPOINT_HINT)
        return None
    if checkpoint is not None:
        check_path(checkpoint, "`checkpoint`")
        return os.fspath(checkpoint)
    root = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if root and name:
        return f"{root}/{name}"
    if isinstance(sink, Console | MemoryTable):
        return None
    found, hint = f"{type(sink).__name__} needs a checkpoint", CHECKPOINT_HINT
    if isinstance(sink, AtLeastOnce | AtLeastOncePerRow):
        hint += ", or checkpoint=Temporary() if every start should start over"
    raise SpecError(f"{found}: without one, a restart writes every row again", hint)


def _check_depth(check: Check, spec: AnySpec | None) -> None:
    asked: object = check
    if not isinstance(asked, str) or asked not in get_args(Check):
        found = f"`check` must be 'rules' or 'deep', found {check!r}"
        raise SpecError(found, "leave it out, or write check='deep'")
    if check == "deep" and spec is None:
        found = "check='deep' reads all stored state, for which it needs the spec"
        raise SpecError(found, "pass spec=... too")


def _checked_query_id(spark: SparkSession, location: str) -> str | None:
    """Refuse a checkpoint in use: Spark would silently stop the query that uses it."""
    try:
        query_id = query_id_of(spark, location)
    except StateCorruptedError:
        _check_first_start(logs_of(location, spark), spark)
        raise
    for query in spark.streams.active:
        if query.id == query_id:
            found = f"the query {query.name or query.id} is using the checkpoint {location}"
            raise SpecError(found, "stop that query first, or pass another checkpoint")
    return query_id


def _with_buckets_of_frame(
    logs: Logs, plan: PlanNode | None, spec: AnySpec | None, spark: SparkSession
) -> AnySpec | None:
    """Return a spec with the bucket count of the frame; without a spec, check that count here."""
    if spec is not None and plan is None:
        return for_stream(spec, spark)
    count = None if plan is None else plan.default_buckets
    if count is None:  # the spec says it, or a seed
        return spec
    if spec is not None and reads_state(spark):
        return with_buckets(spec, count)
    by_default = buckets_for(logs.partitions(logs.planned))
    if by_default == count and not any(map(logs.is_repartition, logs.offsets)):
        return spec
    if not reads_state(spark):
        raise other_buckets_error(logs.path, by_default, count)
    check_stored_buckets(logs.path, count, spark)
    return spec


def _check_first_start(logs: Logs, spark: SparkSession) -> None:
    """Refuse a first start that was cut off, where Spark would stop without the name of a file."""
    rest = None if logs.commits else _rest_of_first_start(logs, spark)
    if rest is not None:
        found = f"the first start of the query was cut off: {rest} has the rest of a file"
        raise StateCorruptedError(found, f"delete {rest}")  # no micro-batch has finished


def _rest_of_first_start(logs: Logs, spark: SparkSession) -> str | None:
    if logs.offsets:
        schema = folder_texts(spark, f"{logs.path}/state/0/0/_metadata")
        return f"{logs.path}/state" if "" in schema.values() else None
    if exists(spark, f"{logs.path}/offsets", ".*"):
        return f"{logs.path}/offsets"
    try:
        query_id_of(spark, logs.path)
    except StateCorruptedError:
        return f"{logs.path}/metadata"
    return None


def _check_logs(
    logs: Logs, plan: PlanNode | None, spec: AnySpec | None, check: Check, spark: SparkSession
) -> None:
    _check_first_start(logs, spark)
    last = logs.planned
    if last > logs.finished and logs.is_repartition(last):
        # Some releases of Spark would lose state.
        found = (
            f"the checkpoint {logs.path} was to be repartitioned from {logs.partitions(last - 1)} "
            f"to {logs.partitions(last)} partitions, and micro-batch {last} didn't finish; Spark "
            "can do that with RocksDB only"
        )
        hint = f"repartition it again; on another state store, delete {logs.path}/offsets/{last}"
        raise StateCorruptedError(found, hint)
    if logs.commits:
        check_operators(logs.path, spark)
        spec = _with_buckets_of_frame(logs, plan, spec, spark)
        if spec is not None and check == "deep":
            check_deep(logs, spec, spark)
        # Otherwise the first micro-batch compares the spec with the checkpoint.
        elif spec is not None and reads_state(spark):
            check_stored_rules(logs.path, spec, spark)
    if plan is None or not logs.offsets:
        return
    sources = logs.sources(last)
    before, most = len(sources), len(plan.readings)
    has_names = not all(map(str.isdecimal, sources))
    if has_names != has_source_evolution(spark):
        # Spark itself ends with a bare assertion, or with `batch 1 doesn't exist`.
        found = f"the checkpoint {logs.path} knows its sources by {NAMES[has_names]}, and with "
        found += f"{SOURCE_EVOLUTION}={str(not has_names).lower()} a query knows them by "
        hint = f"set it to {str(has_names).lower()}, or start with a new checkpoint"
        raise StateError(f"{found}{NAMES[not has_names]}", hint)
    near = {*sources, *(logs.sources(last - 1) if last - 1 in logs.offsets else ())}
    for name in sorted((plan.source_names & logs.source_names) - near):
        found = f"the last micro-batches of the checkpoint {logs.path} were without the source "
        found += f"{name}, so Spark would read it from its start again, and its rows count twice"
        hint = "leave it out, or let another query read it"
        raise StateError(found, hint)
    if not has_names and not len({*plan.readings}) <= before <= most:
        # Spark itself gives only the numbers, and in format 2 it takes some sources for others.
        found = f"the checkpoint {logs.path} is of a query with {before} sources"
        hint = "a seed, a clock and erasures are sources too: pass the same ones at each start; "
        hint += "a query with other sources needs a checkpoint of its own, or one with names, as "
        hint += "docs/how-to/restart.md shows"
        raise StateError(f"{found}, and the frame has {most}", hint)
