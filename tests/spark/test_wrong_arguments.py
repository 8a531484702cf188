"""What isn't an argument's type is refused in words of sessionkit, before Spark sees it."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SessionSpec, StatefulSpec
from sessionkit import aggregates as agg
from sessionkit.addons.delay import late_events
from sessionkit.addons.delta import Delta
from sessionkit.addons.iceberg import Iceberg
from sessionkit.addons.monitor import status, watch
from sessionkit.addons.postgres import Postgres
from sessionkit.addons.repair import repair, replay_rejected
from sessionkit.addons.report import Columns
from sessionkit.addons.sources import Avro, Json, JsonLines, KafkaTopics, read_batch
from sessionkit.spark import (
    AtLeastOnce,
    AtLeastOncePerRow,
    Console,
    ExactlyOnce,
    Files,
    Kafka,
    MemoryTable,
    Routes,
    apply_with_state,
    batch_counts,
    bootstrap,
    check_checkpoint,
    erase_key,
    migrate,
    read_erasures,
    read_seed,
    read_state,
    recommended_settings,
    reconcile,
    sessionize,
    sessions,
    start_query,
    state_changes,
    state_frame,
)
from sessionkit.spark.dedup import (
    drop_duplicates_by_key,
    drop_duplicates_by_key_and_time,
    drop_duplicates_within,
)
from sessionkit.spark.watermarks import (
    check_watermarks,
    declare_watermark,
    declared_watermarks,
    explain_watermark,
    guard_future,
)
from sessionkit.spark.windows import session, sliding, tumbling
from tests.support.misuses import WRONG, Call, places, raw_errors, right


@attrs.frozen
class View:
    page: str | None


@attrs.define
class Reader:
    pages: int = 0


def process(key: Any, events: list[View], state: Any, times: Any) -> Reader | None:
    return None


SPEC = SessionSpec.aggregate(
    View,
    {"pages": agg.count()},
    keys={"user": str},
    event_time="ts",
    gap="30 minutes",
    watermark_delay="10 minutes",
)
KEYED = StatefulSpec(
    keys={"user": str},
    event_time="ts",
    watermark_delay="10 minutes",
    process=process,
    timeout="1 day",
    state=Reader,
)
COLUMNS = "user string, ts timestamp, page string"
NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("ann", NOON, "/")], COLUMNS)


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(COLUMNS).json(str(tmp_path_factory.mktemp("views")))


def counted(frame: Any, **arguments: Any) -> DataFrame:
    """Return the sessions of a frame with a count."""
    return sessions(frame, **arguments).agg(n=agg.count())


def as_sink(sink: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that also shows the sink, as an error or a checkpoint does."""

    def made(*values: Any, **named: Any) -> str:
        return repr(sink(*values, **named))

    return made


SINKS: list[Call] = [
    (as_sink(AtLeastOnce), [lambda frame, number: None], {}),
    (as_sink(AtLeastOncePerRow), [print], {}),
    (as_sink(Console), [20, True], {}),
    (as_sink(ExactlyOnce), [lambda frame, query, number: None, lambda query: None], {}),
    (as_sink(Files), ["parquet", "/data/visits"], {"partition_by": "user"}),
    (as_sink(Kafka), ["host:9092"], {"topic": "visits", "options": {"acks": "all"}}),
    (as_sink(MemoryTable), ["visits"], {}),
    (as_sink(Routes), [], {"rejected": Console(), "session": MemoryTable("x"), "late": None}),
    (as_sink(Postgres), ["postgresql:///x", "visits"], {"key": "user", "retry_for": "1 minute"}),
    (as_sink(Delta), ["visits"], {"key": ["user"]}),
    (as_sink(Iceberg), ["lake.db.visits"], {"key": ["user"]}),
    (as_sink(KafkaTopics), ["host:9092", ["views"]], {"starting": "latest", "options": {}}),
    (as_sink(JsonLines), ["/data/views"], {"payload": Json(), "options": {}}),
    (as_sink(Json), [], {"options": {}, "max_bytes": 5}),
    (as_sink(Avro), ['{"type": "record", "name": "V", "fields": []}'], {"is_framed": True}),
    (
        as_sink(Columns),
        [],
        {
            "keys": "user",
            "events": "n",
            "dimensions": ["page"],
            "path_at_most": 5,
            "funnel": "far",
            "steps": ["viewed"],
        },
    ),
    (tumbling, ["1 hour"], {"event_time": "ts", "keys": "user", "watermark_delay": "1 hour"}),
    (sliding, ["1 hour"], {"event_time": "ts", "every": "1 minute"}),
    (session, ["1 hour"], {"event_time": "ts"}),
    (drop_duplicates_by_key, ["user"], {"event_time": "ts"}),
    (
        drop_duplicates_by_key_and_time,
        [["user"]],
        {"event_time": "ts", "watermark_delay": "1 hour"},
    ),
    (drop_duplicates_within, ["1 hour"], {"keys": ["user"], "event_time": "ts"}),
    (recommended_settings, [8], {"running": True}),
    (read_state, ["/nowhere", SPEC], {"key": "ann", "batch": 0}),
    (state_frame, ["/nowhere", SPEC], {"key": "ann", "batch": 0}),
    (state_changes, ["/nowhere", SPEC], {"since": 0, "until": 1, "key": "ann"}),
    (check_checkpoint, ["/nowhere", SPEC], {"deep": True}),
    (erase_key, ["/nowhere", SPEC, "ann"], {}),
    (read_erasures, ["/nowhere", SPEC], {}),
    (migrate, ["/nowhere", SPEC, SPEC, "/elsewhere"], {}),
    (read_seed, ["/nowhere"], {}),
    (reconcile, [None], {"so_far": None}),
    (batch_counts, [None], {}),
    (status, [None], {"so_far": None}),
    (watch, [None], {"every": "1 second"}),
    (explain_watermark, [None], {}),
]


@pytest.mark.parametrize("number", range(len(SINKS)))
def test_what_needs_no_frame_refuses_in_words(spark: SparkSession, number: int) -> None:
    """Sinks, sources, windows and what reads a checkpoint, each argument in turn."""
    call = SINKS[number]
    wrong = [one for one in WRONG if not isinstance(one, str) or not one]  # a text is a folder
    assert [] == [error for place in places(call) for error in raw_errors(call, place, wrong)]


def test_what_takes_a_batch_refuses_in_words(views: DataFrame, tmp_path: Path) -> None:
    """Each argument in turn has a value of another kind; nothing is computed."""
    calls: list[Call] = [
        (
            sessionize,
            [views, SPEC],
            {"with_rejected": True, "observation": None, "until": NOON, "erase": None},
        ),
        (apply_with_state, [views, KEYED], {"with_rejected": True, "until": NOON}),
        (
            counted,
            [views],
            {
                "keys": "user",
                "event_time": "ts",
                "gap": "1 hour",
                "watermark_delay": "1 hour",
                "order": None,
                "sequence": None,
                "on_error": None,
                "lateness": None,
                "results": None,
                "inputs": None,
                "storage": None,
                "memory": None,
                "with_rejected": True,
                "observation": None,
            },
        ),
        (
            counted,
            [views],
            {"keys": "user", "event_time": "ts", "timeout": "1 hour"},
        ),
        (declared_watermarks, [views], {}),
        (guard_future, [views, "ts", "1 day"], {"into": "later"}),
    ]
    for call in calls:
        right(call)
        for place in places(call):
            assert [] == raw_errors(call, place), (call[0].__name__, place)
    refusing: list[Call] = [
        (bootstrap, [views, SPEC, NOON], {"to": str(tmp_path / "seed")}),
        (late_events, [views, SPEC], {"arrived": "ts", "trigger": "1 minute"}),
        (
            repair,
            [Delta("visits"), SPEC, views],
            {"checkpoint": "/nowhere", "between": (None, None)},
        ),
        (replay_rejected, [Delta("visits"), SPEC, views, views], {"checkpoint": "/nowhere"}),
        (read_batch, [views.sparkSession, JsonLines(str(tmp_path)), SPEC], {}),
    ]
    for call in refusing:
        for place in places(call):
            wrong = [one for one in WRONG if not isinstance(one, str | None)]
            assert [] == raw_errors(call, place, wrong)


def test_what_takes_a_stream_refuses_in_words(stream: DataFrame, tmp_path: Path) -> None:
    """What a query needs is checked before it starts."""
    found = sessionize(stream, SPEC)
    calls: list[Call] = [
        (sessionize, [stream, SPEC], {"seed": None, "clock": None, "erase": None}),
        (apply_with_state, [stream, KEYED], {"seed": None, "clock": None, "erase": None}),
        (declare_watermark, [stream, "ts", "1 hour"], {"zero_delay": "refused"}),
        (check_watermarks, [found], {"policy": "min"}),
        (
            start_query,
            [found],
            {
                "sink": Files("parquet", str(tmp_path / "out")),
                "trigger": "availableNow",
                "mode": "append",
                "checkpoint": str(tmp_path / "checkpoint"),
                "name": "visits",
                "spec": SPEC,
                "check": "rules",
                "options": {},
                "sink_since": 0,
                "tune": True,
            },
        ),
    ]
    for call in calls:
        for place in places(call):
            # A text would be a folder next to the tests.
            wrong = [one for one in WRONG if not isinstance(one, str)]
            assert [] == raw_errors(call, place, wrong), (call[0].__name__, place)
    for query in stream.sparkSession.streams.active:
        query.stop()
