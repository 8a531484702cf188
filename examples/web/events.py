"""Requests to a web site, from a log of Apache or made up."""

import gzip
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

__all__ = ["made_up", "read_log"]

SCHEMA: Final = pa.schema(
    {
        "address": pa.string(),
        "agent": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "path": pa.string(),
        "is_page": pa.bool_(),
        "is_named": pa.bool_(),
    }
)
LINE: Final = re.compile(
    r'(?P<address>\S+) \S+ \S+ \[(?P<at>[^]]+)\] "\S+ (?P<path>[^\s?"]*)[^"]*" \d+ \S+ '
    r'"(?:[^"\\]|\\.)*" "(?P<agent>(?:[^"\\]|\\.)*)"'
)
CLOCK: Final = "%d/%b/%Y:%H:%M:%S %z"
PART_OF_A_PAGE: Final = re.compile(r"\.(css|gif|ico|jpe?g|js|png|svg|swf|ttf|woff)$", re.IGNORECASE)
PROGRAM: Final = re.compile(
    r"bot|crawl|curl|feed|java/|python|ruby|rss|slurp|spider|wget|\+?http", re.IGNORECASE
)
MONDAY: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)
PATHS: Final = ("/", "/blog", "/blog/wings", "/blog/sails", "/about", "/shop", "/jobs")
BROWSERS: Final = ("Mozilla/5.0 (X11; Linux)", "Mozilla/5.0 (Windows NT 10.0)")


def read_log(path: Path) -> pa.Table:
    """Return the requests of a log in Apache's combined format, in the order of its lines."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
        found = (LINE.match(line) for line in lines)
        return _table(
            {**match.groupdict(), "at": datetime.strptime(match["at"], CLOCK)}  # noqa: DTZ007 (it has %z)
            for match in found
            if match is not None
        )


def made_up(visitors: int = 300) -> pa.Table:
    """Return requests of people and of three programs on one day, the same ones each time."""
    chance = Random(2026)  # noqa: S311 (nobody is to be surprised)
    hits = [hit for number in range(visitors) for hit in _person(f"10.0.0.{number}", chance)]
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    hits += _program("10.1.0.1", "Nosy-bot/1.0", 5, 40 * second)
    hits += _program("10.1.0.2", BROWSERS[0], 60, second)  # it claims to be a browser
    hits += _program("10.1.0.3", BROWSERS[1], 50, 10 * minute)  # it checks whether the site is up
    return _table(sorted(hits, key=lambda hit: hit["at"]))


def _person(address: str, chance: Random) -> Iterator[dict[str, Any]]:
    at = MONDAY + timedelta(seconds=chance.randrange(14 * 60 * 60))
    agent = chance.choice(BROWSERS)
    for _ in range(min(chance.randint(1, 8), chance.randint(1, 8))):
        yield {"address": address, "agent": agent, "at": at, "path": chance.choice(PATHS)}
        picture = at + timedelta(seconds=1)
        yield {"address": address, "agent": agent, "at": picture, "path": "/logo.png"}
        at += timedelta(seconds=chance.randint(3, 300))


def _program(address: str, agent: str, pages: int, pause: timedelta) -> Iterator[dict[str, Any]]:
    for number in range(pages):
        path = PATHS[number % len(PATHS)]
        yield {"address": address, "agent": agent, "at": MONDAY + number * pause, "path": path}


def _table(hits: Iterable[dict[str, Any]]) -> pa.Table:
    rows = [
        {
            **hit,
            "is_page": not PART_OF_A_PAGE.search(hit["path"]),
            "is_named": bool(PROGRAM.search(hit["agent"])),
        }
        for hit in hits
    ]
    return pa.Table.from_pylist(rows, SCHEMA)
