"""
What a user's first program does, in a session that sets nothing: streams, sinks, and a restart.

`python job.py first` starts a query of each kind on three events, `python job.py second` starts one
of them again on three more. Each prints the rows that are there by then, and the open sessions. A
number after that is how many shuffle partitions there are, in place of Spark's 200.
"""

import sys

import attrs
from pyspark.sql import DataFrame, SparkSession

from sessionkit import KeyState, KeyTimes, StatefulSpec, TimeToLive
from sessionkit import aggregates as agg
from sessionkit.errors import UnsupportedError
from sessionkit.spark import Files, apply_with_state, read_state, sessions, start_query
from sessionkit.spark.dedup import drop_duplicates_within
from sessionkit.spark.shorthand import Sessions
from sessionkit.spark.windows import tumbling

EVENTS = {
    "first": [("ann", "10:00", "/"), ("ann", "10:20", "/buy"), ("bob", "10:05", "/")],
    "second": [("ann", "10:20", "/buy"), ("bob", "10:20", "/help"), ("cid", "15:00", "/")],
}
VISIT = {"pages": agg.count(), "landing": agg.first("page")}


@attrs.frozen
class View:
    page: str


@attrs.define
class Total:
    views: int = 0


@attrs.frozen
class Counted:
    views: int


def count(key: str, views: list[View], state: KeyState[Total], times: KeyTimes) -> Counted:
    total = state.get(Total()).views + len(views)
    state.set(Total(total))
    return Counted(total)


COUNTS = StatefulSpec(
    keys={"user": str},
    process=count,
    event_time="ts",
    timeout=TimeToLive("90 days", since="last_update", clock="event_time"),
    watermark_delay="1 hour",
)


def visits_of(stream: DataFrame) -> Sessions:
    return sessions(
        stream, keys="user", event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
    )


def queries(stream: DataFrame) -> dict[str, DataFrame]:
    """Return a query of each kind that the pages before this program don't have."""
    unique = drop_duplicates_within("10 minutes", keys=["user", "page"], event_time="ts")
    hourly = tumbling("1 hour", event_time="ts", keys="user", watermark_delay="10 minutes").agg(
        n="count(*)"
    )
    return {
        "aggregates": visits_of(stream).agg(**VISIT),
        "state": apply_with_state(stream, COUNTS),
        "unique": unique.apply(stream),
        "windows": hourly.output_mode("append").apply(stream),
    }


def shown(frame: DataFrame) -> str:
    """Return the rows of a result, without the ids and times that a spec adds."""
    own = [
        name
        for name in frame.columns
        if not name.startswith(("session_", "last_event_", "window_", "ts"))
    ]
    return str(sorted(tuple(row) for row in frame.select(*own).collect()))


def main(part: str, partitions: str | None = None) -> None:
    """Write the events of a part, run queries until they have read them, and print their rows."""
    spark = SparkSession.builder.getOrCreate()
    if partitions is not None:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    rows = ", ".join(
        f"('{user}', timestamp '2026-03-02 {at}:00Z', '{page}')" for user, at, page in EVENTS[part]
    )
    events = spark.sql(f"SELECT * FROM VALUES {rows} AS (user, ts, page)")  # noqa: S608 (our own)
    events.coalesce(1).write.mode("append").parquet("events")
    stream = spark.readStream.schema(events.schema).parquet("events")
    frames, spec = queries(stream), visits_of(stream).spec(**VISIT)
    started = {
        name: start_query(
            frames[name],
            sink=Files("parquet", f"rows/{name}"),
            trigger="availableNow",
            checkpoint=f"checkpoints/{name}",
            spec=spec if name == "aggregates" else None,
        )
        for name in (frames if part == "first" else ["aggregates"])
    }
    for name, query in started.items():
        query.awaitTermination()
        rows_of_query = spark.read.schema(frames[name].schema).parquet(f"rows/{name}")
        print(f"{name}: {shown(rows_of_query)}")
    try:
        left = read_state("checkpoints/aggregates", spec)
        print(f"open: {sorted((session.key, session.events) for session in left)}")
    except UnsupportedError:
        print("open: none are read on Spark 3.5")


if __name__ == "__main__":
    main(*sys.argv[1:])
