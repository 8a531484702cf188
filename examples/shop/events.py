"""What users of the shop did, from a log or made up, as files of JSON in order of arrival."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from examples.running import by_arrival, cut
from examples.shop.spec import VISITS

__all__ = ["made_up", "read_log", "write"]

INSTANT: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    {"user": pa.string(), "at": INSTANT, "event": pa.string(), "channel": pa.string()}
)
NAMES: Final = {
    "user_id": "user",
    "timestamp": "at",
    "event": "event",
    "acquisition_channel": "channel",
}
NEW_YEAR: Final = datetime(2026, 1, 1, tzinfo=UTC)
SPRING: Final = datetime(2026, 4, 1, tzinfo=UTC)
LONGEST_LIFE: Final = timedelta(days=120)
CHANNELS: Final = ("direct", "email", "organic", "social")
PROMOTED: Final = 0.2  # of visits
WAY: Final = ("home", "catalog", "product_view", "add_to_cart", "shipping_details", "purchase")


def read_log(path: Path) -> pa.Table:
    """Return the events of a CSV file with the columns of `NAMES`, in order of time."""
    options = pa.csv.ConvertOptions(include_columns=[*NAMES])
    rows = pa.csv.read_csv(path, convert_options=options).rename_columns([*NAMES.values()])
    return _with_sources(rows.set_column(1, "at", pc.assume_timezone(rows["at"], "UTC")))


def made_up(users: int = 400) -> pa.Table:
    """
    Return events of made-up users in three months, the same ones each time.

    Users come and go all the time: some began before, and others go on after the last day.
    """
    chance = Random(2026)  # noqa: S311 (nobody is to be surprised)
    lives = (row for user in range(users) for row in _life(f"user-{user:03}", chance))
    rows = [row for row in lives if NEW_YEAR <= row["at"] < SPRING]
    return _with_sources(pa.Table.from_pylist(rows))


def _life(user: str, chance: Random) -> Iterator[dict[str, Any]]:
    channel = chance.choice(CHANNELS)
    at = NEW_YEAR - LONGEST_LIFE + chance.random() * (SPRING - NEW_YEAR + LONGEST_LIFE)
    for _ in range(chance.randint(1, 6)):
        begins = ["promo_page"] if chance.random() < PROMOTED else []
        for event in [*begins, *WAY[: min(chance.randint(1, 9), chance.randint(1, 9))]]:
            yield {"user": user, "at": at, "event": event, "channel": channel}
            at += timedelta(seconds=chance.randint(5, 400))
        at += timedelta(hours=chance.randint(1, 24 * 20))


def _with_sources(rows: pa.Table) -> pa.Table:
    """
    Say what brought users to a page, as the addresses of a web shop do.

    The first event of a user came by the channel, unless that is `direct`, and a page of a
    promotion by the promotion.
    """
    rows = rows.cast(SCHEMA).sort_by("at")
    seen: set[str] = set()
    sources: list[str | None] = []
    for user, event, channel in zip(
        *(rows[name].to_pylist() for name in ("user", "event", "channel")), strict=True
    ):
        came_by = None if user in seen or channel == "direct" else channel
        sources.append("promotion" if event == "promo_page" else came_by)
        seen.add(user)
    return rows.append_column("source", pa.array(sources, pa.string()))


def write(events: pa.Table, folder: Path, *, files: int) -> None:
    """Write files of JSON, in which events arrive late by less than the delay of the spec."""
    folder.mkdir(parents=True)
    for place, part in enumerate(
        cut(by_arrival(events, events["at"], VISITS.watermark_delay), files)
    ):
        path = folder / f"{place:03}.json"
        lines = (json.dumps({**row, "at": row["at"].isoformat()}) for row in part.to_pylist())
        path.write_text("\n".join(lines), encoding="utf-8")
        os.utime(path, (place + 1, place + 1))
