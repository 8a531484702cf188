"""
Duty periods of aircraft: a complete spec, with nothing left out.

A duty period lasts as long as there are at most eight hours between two departures of an aircraft
from New York. Three classes define the event, the state of an open session, and the result; four
functions connect them. Nothing here knows about Spark: the same spec runs on a stream, on a batch
and in a test. `DUTY_DAYS` also cuts duty periods at midnight, and after 14 hours.
"""

from datetime import datetime
from typing import Any

import attrs

from sessionkit import EventTimeGap, Functions, Session, SessionRules, SessionSpec, Storage

__all__ = ["DUTY_DAYS", "DUTY_PERIODS", "GAP", "Duty", "DutyPeriod", "Flight"]

GAP = "8 hours"


@attrs.frozen
class Flight:
    """The event: its fields are the columns to read."""

    departure: datetime
    origin: str
    dest: str
    distance: int


@attrs.define
class Duty:
    """The state of an open session."""

    flights: int
    miles: int
    first: tuple[datetime, str]  # when and where from
    last: tuple[datetime, str]  # when and where to


@attrs.frozen
class DutyPeriod:
    """The result: its fields become columns, after the key and the session's id, start and end."""

    flights: int
    miles: int
    origin: str
    dest: str


def create(key: Any, flight: Flight) -> Duty:
    """Start a duty period with its first flight."""
    return Duty(
        flights=1,
        miles=flight.distance,
        first=(flight.departure, flight.origin),
        last=(flight.departure, flight.dest),
    )


def update(duty: Duty, flight: Flight) -> Duty:
    """
    Add a flight, which may have departed before the ones already added.

    Reports arrive out of order, so the state holds the times of the first and the last flight.
    """
    duty.flights += 1
    duty.miles += flight.distance
    duty.first = min(duty.first, (flight.departure, flight.origin))
    duty.last = max(duty.last, (flight.departure, flight.dest))
    return duty


def merge(left: Duty, right: Duty) -> Duty:
    """Merge two duty periods that a late flight connects."""
    return Duty(
        flights=left.flights + right.flights,
        miles=left.miles + right.miles,
        first=min(left.first, right.first),
        last=max(left.last, right.last),
    )


def finish(session: Session, duty: Duty) -> DutyPeriod:
    """Return the result row of a duty period that has ended."""
    return DutyPeriod(duty.flights, duty.miles, origin=duty.first[1], dest=duty.last[1])


DUTY_PERIODS = SessionSpec(
    keys={"tailnum": str},
    event_time="departure",
    logic=Functions(
        event=Flight,
        state=Duty,
        result=DutyPeriod,
        create=create,
        update=update,
        merge=merge,
        finish=finish,
    ),
    timeout=EventTimeGap(GAP),
    watermark_delay="12 hours",
    storage=Storage(bucket_count=16),
)

DUTY_DAYS = attrs.evolve(
    DUTY_PERIODS,
    timeout=SessionRules(GAP, max_duration="14 hours", midnight="America/New_York"),
    order="event_time",
)
"""Its rules depend on the order of flights, so a flight waits until no earlier one can come."""
