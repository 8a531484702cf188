"""
How long users were logged in, and which log-ins look like fraud. It needs no Spark.

`LOGINS` are sessions with an explicit end, so a gap between events isn't enough: a record says that
a session started, is alive, or ended, and may arrive out of order, or never. A session ends when
the watermark has passed its log-out, because no earlier record can follow. If the log-out is lost,
it ends after half an hour without a sign of life.

`FRAUD` looks at all log-ins of a user: five wrong passwords in ten minutes, or log-ins from two
countries within an hour, are an alert.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import attrs

from sessionkit import EventTimeGap, KeyState, KeyTimes, StatefulSpec

__all__ = ["FRAUD", "LOGINS", "Action", "Alert", "Attempt", "Login", "Period", "Record"]

WRONG, WITHIN = 5, timedelta(minutes=10)
TRAVEL = timedelta(hours=1)
MOST = 100


class Action(Enum):
    """What a record says."""

    LOG_IN = "log in"
    ALIVE = "alive"
    LOG_OUT = "log out"
    WRONG = "wrong password"


@attrs.frozen
class Record:
    """A record of the access log: the columns to read besides user and session."""

    at: datetime
    action: Action


@attrs.frozen
class Login:
    """What is known about a session so far."""

    began: datetime | None
    last: datetime
    ended: datetime | None


@attrs.frozen
class Period:
    """One result row: how long a user was logged in, as far as the records show."""

    began: datetime | None  # None if the log-in was lost
    ended: datetime  # the last sign of life if the log-out was lost
    duration: timedelta | None
    outcome: str


def added(login: Login | None, record: Record) -> Login:
    """Add a record. The final result is the same for any order of records."""
    if login is None:
        login = Login(began=None, last=record.at, ended=None)
    login = attrs.evolve(login, last=max(login.last, record.at))
    if record.action is Action.LOG_IN:
        return attrs.evolve(login, began=record.at)
    if record.action is Action.LOG_OUT:
        return attrs.evolve(login, ended=record.at)
    return login


def process(key: Any, records: list[Record], state: KeyState[Login], times: KeyTimes) -> None:
    """Add the records of a session, and wait until the watermark has passed its log-out."""
    login = state.get(None)
    for record in records:
        login = added(login, record)
        state.set(login)
        if login.ended is not None:
            times.set_event_timer("log-out", login.ended)


def on_timer(key: Any, name: str, state: KeyState[Login], times: KeyTimes) -> Period:
    """Report a session that has ended, and delete its state."""
    login = state.get()
    state.remove()
    ended = login.last if login.ended is None else login.ended
    duration = None if login.began is None else ended - login.began
    return Period(login.began, ended, duration, "lost" if login.ended is None else "logged out")


LOGINS = StatefulSpec(
    keys={"user": str, "session": int},
    event_time="at",
    process=process,
    on_timer=on_timer,
    timeout=EventTimeGap("30 minutes"),
    watermark_delay="10 minutes",
)


@attrs.frozen
class Attempt:
    """The same record, as the fraud rule reads it."""

    action: Action
    country: str


@attrs.frozen
class Seen:
    """An attempt, and when it was."""

    at: datetime
    attempt: Attempt


@attrs.frozen
class Recent:
    """The state: the attempts of the last hour, the oldest first."""

    attempts: list[Seen]


@attrs.frozen
class Alert:
    """One result row: something for a person to look at."""

    at: datetime
    why: str


def judge(
    key: Any, attempts: list[Attempt], state: KeyState[Recent], times: KeyTimes
) -> list[Alert]:
    """Compare each attempt with the attempts of the hour before it."""
    seen = state.get(Recent([])).attempts
    alerts = []
    for attempt, time in zip(attempts, times.event_times, strict=True):
        seen = [old for old in seen if time - old.at <= TRAVEL][-MOST:]
        if attempt.action is Action.LOG_IN:
            countries = {old.attempt.country for old in seen if old.attempt.action is Action.LOG_IN}
            alerts += [
                Alert(time, f"{attempt.country} after {country}")
                for country in sorted(countries - {attempt.country})
            ]
        seen = [*seen, Seen(time, attempt)]
        wrong = [old for old in seen if old.attempt.action is Action.WRONG]
        if attempt.action is Action.WRONG:
            burst = sum(time - old.at <= WITHIN for old in wrong)
            alerts += [Alert(time, f"{WRONG} wrong passwords")] if burst == WRONG else []
    state.set(Recent(seen))
    return alerts


FRAUD = StatefulSpec(
    keys={"user": str},
    event_time="at",
    process=judge,
    timeout=EventTimeGap(TRAVEL),
    watermark_delay="10 minutes",
    order="event_time",
)
