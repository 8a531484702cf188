"""
Duty periods of aircraft: a spec, complete and as small as one gets.

An aircraft is on duty as long as no more than eight hours lie between two of its departures from
New York. Three classes say what is read, what is remembered of an open session, and what comes
out; four functions say how one leads to the next. Nothing here knows of Spark: the same spec runs
on a stream, on a batch and in a test.
"""

from datetime import datetime
from typing import Any

import attrs

from sessionkit import EventTimeGap, Session, SessionSpec

__all__ = ["DUTY_PERIODS", "GAP", "Duty", "DutyPeriod", "Flight"]

GAP = "8 hours"


@attrs.frozen
class Flight:
    """The event: its fields are the columns that are read."""

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
    """The result: its fields become columns, behind the key and the session's id, start and end."""

    flights: int
    miles: int
    origin: str
    dest: str


def create(key: Any, flight: Flight) -> Duty:
    """Begin a duty period with its first flight."""
    return Duty(
        flights=1,
        miles=flight.distance,
        first=(flight.departure, flight.origin),
        last=(flight.departure, flight.dest),
    )


def update(duty: Duty, flight: Flight) -> Duty:
    """
    Add a flight, which may have left before those that are in already.

    Flights arrive out of order, so the state holds the times by which to tell first from last.
    """
    duty.flights += 1
    duty.miles += flight.distance
    duty.first = min(duty.first, (flight.departure, flight.origin))
    duty.last = max(duty.last, (flight.departure, flight.dest))
    return duty


def merge(left: Duty, right: Duty) -> Duty:
    """Make one of two duty periods between which a flight turned up that links them."""
    return Duty(
        flights=left.flights + right.flights,
        miles=left.miles + right.miles,
        first=min(left.first, right.first),
        last=max(left.last, right.last),
    )


def finish(session: Session, duty: Duty) -> DutyPeriod:
    """Turn a duty period that is over into a result row."""
    return DutyPeriod(duty.flights, duty.miles, origin=duty.first[1], dest=duty.last[1])


DUTY_PERIODS = SessionSpec(
    keys={"tailnum": str},
    event_time="departure",
    event=Flight,
    state=Duty,
    result=DutyPeriod,
    create=create,
    update=update,
    merge=merge,
    finish=finish,
    timeout=EventTimeGap(GAP),
    watermark_delay="12 hours",
    bucket_count=16,  # the default, 64, is for more keys than 4,000 aircraft
)
