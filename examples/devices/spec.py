"""
Report when a sensor goes silent, and when it recovers: a timer in processing time.

Silence is the absence of events, so no event and no watermark can show it; only the engine's own
clock can. Each reading resets the timer; if none arrives in time, the timer fires, once. A
sensor that stays silent for a week is given up, and its state is deleted. It needs no Spark.
"""

from datetime import datetime, timedelta
from typing import Any

import attrs

from sessionkit import KeyState, KeyTimes, ProcessingTimeGap, StatefulSpec
from sessionkit.spec import by_processing_time

__all__ = ["GIVEN_UP", "Alert", "Reading", "Sensor", "sensors"]

GIVEN_UP = timedelta(days=7)


@attrs.frozen
class Reading:
    """A reading: the column to read besides sensor and time."""

    celsius: float


@attrs.frozen
class Sensor:
    """What is known about a sensor."""

    heard: datetime  # the processing time of its last readings
    celsius: float
    is_silent: bool = False


@attrs.frozen
class Alert:
    """One result row: the new status of a sensor, and its last reading before that."""

    status: str
    heard: datetime
    celsius: float


def sensors(*, silence: timedelta) -> StatefulSpec[Reading, Sensor, Alert]:
    """Return a spec in which a sensor is silent after this long without readings."""

    def process(
        key: Any, readings: list[Reading], state: KeyState[Sensor], times: KeyTimes
    ) -> Alert | None:
        before = state.get(None)
        now = times.processing_time
        state.set(Sensor(now, readings[-1].celsius))
        times.set_processing_timer("silence", now + silence)
        if before is not None and before.is_silent:
            return Alert("recovered", before.heard, before.celsius)
        return None

    def on_timer(key: Any, name: str, state: KeyState[Sensor], times: KeyTimes) -> Alert:
        sensor = state.get()
        if name == "silence":
            state.set(attrs.evolve(sensor, is_silent=True))
            return Alert("silent", sensor.heard, sensor.celsius)
        return Alert("given up", sensor.heard, sensor.celsius)

    return StatefulSpec(
        keys={"sensor": str},
        event_time="read_at",  # sorts the readings; there's no watermark
        process=process,
        on_timer=by_processing_time(on_timer),
        timeout=ProcessingTimeGap(GIVEN_UP),
    )
