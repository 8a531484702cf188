"""Rows that a report may get: 200 days with gaps, and values that would like to break the page."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa

from sessionkit.addons.report import Columns

FIRST: Final = datetime(2026, 5, 13, tzinfo=UTC)  # a Wednesday
DAYS: Final = 200
EMPTY: Final = {21, 22, 40, 199 - 30}
"""Days without a session: June 3 and 4, and others."""
HOSTILE: Final = "<!--<script>"
CHANNELS: Final = ("search", "mail", "other", "(none)", HOSTILE, "</script><b>", "=1+1", "", None)
RARE: Final = tuple(f"rare {n}" for n in range(30))
DEVICES: Final = ("phone", "desktop", "tablet", None)
COUNTRIES: Final = ("DE", "FR", None)
PAGES: Final = (
    "/",
    "/catalog",
    "/cart",
    "/thanks",
    "other",
    "<img src=x onerror=alert(1)>",
)
FUNNEL: Final = ("viewed", "carted", "bought")
COLUMNS: Final = Columns(dimensions=("channel", "device", "country"), funnel=FUNNEL)
SCHEMA: Final = pa.schema(
    {
        "kind": pa.string(),
        "site": pa.string(),
        "user": pa.string(),
        "session_id": pa.string(),
        "session_start": pa.timestamp("us", tz="UTC"),
        "session_end": pa.timestamp("us", tz="UTC"),
        "last_event_time": pa.timestamp("us", tz="UTC"),
        "closed_by": pa.string(),
        "path": pa.list_(pa.string()),
        "events": pa.int64(),
        "engaged": pa.bool_(),
        "engaged_time": pa.duration("us"),
        "value": pa.float64(),
        "views": pa.map_(pa.string(), pa.int64()),
        "channel": pa.string(),
        "device": pa.string(),
        "country": pa.string(),
        **dict.fromkeys(FUNNEL, pa.bool_()),
        "reason": pa.string(),
    }
)


def visits(count: int = 3_000, days: int = DAYS) -> list[dict[str, Any]]:
    """Return sessions of users with two keys, `a b`, `c` and `a`, `b c` among them."""
    random = Random(7)
    users = [("a b", "c"), ("a", "b c"), *((f"s{n % 3}", f"u{n}") for n in range(400))]
    made = []
    for number in range(count):
        day = random.choice([day for day in range(days) if day not in EMPTY])
        begin = FIRST + timedelta(days=day, milliseconds=random.randrange(86_400_000))
        path = [random.choice(PAGES) for _ in range(random.choice([0, 1, 1, 2, 3, 4, 5, 6]))]
        lasted = timedelta(milliseconds=random.choice([0, 1_500, 20_000, random.randrange(9**7)]))
        site, user = random.choice(users)
        far = random.choice([0, 0, 1, 1, 2, 3])
        made.append(
            {
                "kind": "session",
                "site": site,
                "user": user,
                "session_id": f"id{number}",
                "session_start": begin,
                "session_end": begin + lasted + timedelta(minutes=30),
                "last_event_time": begin + lasted,
                "closed_by": random.choice(["gap", "max_duration"]),
                "path": path,
                "events": len(path) or None,
                "engaged": random.random() < 0.4,
                "engaged_time": lasted / 2 if random.random() < 0.9 else None,
                "value": random.choice([0, 0, 0.25, 12.5, random.randrange(4_000) / 4]),
                "views": [(one, 1 + number % 3) for one in sorted({*path})] or None,
                "channel": random.choice([*CHANNELS * 6, *RARE]),
                "device": random.choice(DEVICES),
                "country": random.choice(COUNTRIES),
                **{name: n < far for n, name in enumerate(FUNNEL)},
                "reason": None,
            }
        )
    return made


def rejected(reasons: int = 3) -> list[dict[str, Any]]:
    """Return rows that aren't sessions: three of each reason, on three days, one long before."""
    none = dict.fromkeys(SCHEMA.names)
    return [
        {**none, "kind": "late", "reason": f"reason {n}", "session_start": FIRST + after}
        for n in range(reasons)
        for after in (timedelta(days=20), timedelta(days=60), timedelta(days=-9_000))
    ]


def table_of(*rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([row for part in rows for row in part], SCHEMA)


def database_of(rows: pa.Table) -> Any:
    """Return a database with the table `rows`."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", rows)
    connection.execute("CREATE TABLE rows AS FROM given")
    return connection


def asked(rows: pa.Table, query: str) -> list[tuple[Any, ...]]:
    """Return what plain SQL says of the table `rows`."""
    found: list[tuple[Any, ...]] = database_of(rows).sql(query).fetchall()
    return found
