"""
What a user's first program does, in a session that sets nothing: streams, sinks, and a restart.

`python job.py first` starts a query of each kind on three events, `python job.py second` starts one
of them again on three more. Each prints the rows that are there by then, and the open sessions.

That one has Spark's 200 shuffle partitions, of which each micro-batch takes several seconds; the
other kinds have two, as the pages advise.
"""

import sys
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit import KeyState, KeyTimes, StatefulSpec, TimeToLive
from sessionkit import aggregates as agg
from sessionkit.errors import UnsupportedError
from sessionkit.spark import Files, Sessions, apply_with_state, open_sessions, sessions, start_query
from sessionkit.spark.dedup import drop_duplicates_within
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
    return sessions(stream, by="user", time="ts", gap="30 minutes", delay="10 minutes")


def other_kinds(stream: DataFrame) -> dict[str, DataFrame]:
    """Return a query of each other kind, which the pages before this program don't have."""
    unique = drop_duplicates_within("10 minutes", by=["user", "page"], on="ts")
    hourly = tumbling("1 hour", on="ts").by("user").watermark("10 minutes").agg(n="count(*)")
    return {
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


def main(part: str) -> None:
    """Write the events of a part, run queries until they have read them, and print their rows."""
    spark = SparkSession.builder.getOrCreate()
    rows = ", ".join(
        f"('{user}', timestamp '2026-03-02 {at}:00Z', '{page}')" for user, at, page in EVENTS[part]
    )
    events = spark.sql(f"SELECT * FROM VALUES {rows} AS (user, ts, page)")  # noqa: S608 (our own)
    events.coalesce(1).write.mode("append").parquet("events")
    stream = spark.readStream.schema(events.schema).parquet("events")
    spec = visits_of(stream).spec(**VISIT)

    def start(name: str, frame: DataFrame, **options: Any) -> StreamingQuery:
        sink, checkpoint = Files("parquet", f"rows/{name}"), f"checkpoints/{name}"
        return start_query(
            frame, sink=sink, trigger="availableNow", checkpoint=checkpoint, **options
        )

    frames = {"aggregates": visits_of(stream).agg(**VISIT)}
    started = {"aggregates": start("aggregates", frames["aggregates"], spec=spec)}
    if part == "first":
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        frames |= (others := other_kinds(stream))
        started |= {name: start(name, frame) for name, frame in others.items()}
    for name, query in started.items():
        query.awaitTermination()
        rows_of_query = spark.read.schema(frames[name].schema).parquet(f"rows/{name}")
        print(f"{name}: {shown(rows_of_query)}")
    try:
        left = open_sessions("checkpoints/aggregates", spec)
        print(f"open: {sorted((session.key, session.events) for session in left)}")
    except UnsupportedError:
        print("open: none are read on Spark 3.5")


if __name__ == "__main__":
    main(sys.argv[1])
