"""
The bids of NEXMark, after the generator that Apache Beam and Flink's suite share.

Events have numbers. Of every 50 in a row, the first is a new person, the next three are new
auctions, and the others are bids; only the bids are made here. Three of four bids are by a hot
bidder, who is another one after every 100 new people; the others are by anyone of the people who
came last, or of a few who are still to come. So a bidder's bids come together, and then no more.

Left out is `extra`, a text that nobody reads. https://github.com/nexmark/nexmark
"""

from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.workloads import Workload

__all__ = ["BIDS_AN_EPOCH", "COLUMNS", "EPOCH", "NOBODY", "bids", "closing_bid"]

EPOCH: Final = 50
"""So many events in a row have the proportions of the whole."""
PERSONS: Final = 1
AUCTIONS: Final = 3
BIDS_AN_EPOCH: Final = EPOCH - PERSONS - AUCTIONS
FIRST_ID: Final = 1_000
HOT_EVERY: Final = 100
"""One person, or auction, of this many is hot."""
COLD_BIDDERS: Final = 4
COLD_AUCTIONS: Final = 2
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
"""One bid of this many is for an auction, or by a bidder, that isn't hot."""
IN_FLIGHT: Final = 100
AHEAD: Final = 10
"""This many people and auctions that don't exist yet can be chosen."""
CHANNELS: Final = 10_000
NOBODY: Final = 0
"""The bidder of the bid that moves the watermark past the end of every session."""
COLUMNS: Final = (
    "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp"
)


def bids(workload: Workload, batch: int, first_us: int, dice: np.random.Generator) -> pa.Table:
    """Return the bids of a batch in their order; `workload.keys` people are active at a time."""
    number = batch * workload.events + np.arange(workload.events)
    epoch, offset = np.divmod(number, BIDS_AN_EPOCH)
    event = epoch * EPOCH + PERSONS + AUCTIONS + offset
    events_a_batch = workload.events * EPOCH / BIDS_AN_EPOCH
    us_an_event = workload.span / timedelta(microseconds=1) / events_a_batch
    # Whole milliseconds, as in the published generator.
    times_us = (first_us + event * us_an_event).astype(np.int64) // 1000 * 1000
    return _table(
        auctions=_auctions(epoch, dice),
        bidders=_bidders(epoch, workload.keys, dice),
        times_us=times_us,
        dice=dice,
    )


def closing_bid(at_us: int) -> pa.Table:
    """Return a bid of nobody."""
    nobody = np.array([NOBODY])
    return _table(nobody, nobody, np.array([at_us]), np.random.default_rng(0))


def _bidders(epoch: Any, active: int, dice: np.random.Generator) -> Any:
    people = epoch + 1
    recent = np.minimum(people, active)
    anyone = people - recent + dice.integers(0, recent + AHEAD)
    hot = epoch // HOT_EVERY * HOT_EVERY + 1
    is_hot = dice.integers(0, COLD_BIDDERS, len(epoch)) > 0
    return FIRST_ID + np.where(is_hot, hot, anyone)


def _auctions(epoch: Any, dice: np.random.Generator) -> Any:
    last = epoch * AUCTIONS + AUCTIONS - 1
    first = np.maximum(last - IN_FLIGHT, 0)
    anyone = dice.integers(first, last + 1 + AHEAD)
    hot = last // HOT_EVERY * HOT_EVERY
    is_hot = dice.integers(0, COLD_AUCTIONS, len(epoch)) > 0
    return FIRST_ID + np.where(is_hot, hot, anyone)


def _table(auctions: Any, bidders: Any, times_us: Any, dice: np.random.Generator) -> pa.Table:
    count = len(bidders)
    is_hot = dice.integers(0, 2, count) > 0
    few = dice.integers(0, len(HOT_CHANNELS), count)
    channel = pa.array(np.where(is_hot, few, len(HOT_CHANNELS) + dice.integers(0, CHANNELS, count)))
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = [f"https://www.nexmark.com/{name}/item.htm?query=1" for name in names]
    return pa.table(
        {
            "auction": auctions,
            "bidder": bidders,
            "price": np.round(10 ** (6 * dice.random(count)) * 100).astype(np.int64),
            "channel": pa.array(names).take(channel),
            "url": pa.array(urls).take(channel),
            "dateTime": pa.array(times_us).cast(pa.timestamp("us", tz="UTC")),
        }
    )
