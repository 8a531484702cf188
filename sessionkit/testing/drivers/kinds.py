"""The drivers of sessions and of keys."""

from operator import attrgetter
from typing import ClassVar, Generic

import attrs

from sessionkit._arguments import explained, explained_methods
from sessionkit._engine.keys.program import StoredKey
from sessionkit._engine.sessions.view import OpenSession
from sessionkit._shown import Listed
from sessionkit.spec.base import E, R, S
from sessionkit.spec.session import SessionSpec
from sessionkit.spec.stateful import StatefulSpec
from sessionkit.testing.drivers import watch
from sessionkit.testing.drivers.driver import Driver
from sessionkit.testing.drivers.query import open_sessions_in, stored_keys_in
from sessionkit.testing.drivers.results import KeyRow, SessionEvent, SessionRow


@explained_methods
@explained()
@attrs.define(init=False, repr=False)
class SessionDriver(
    Driver[SessionSpec[E, S, R], E, SessionRow[R], R, OpenSession[S]], Generic[E, S, R]
):
    """
    Run a `SessionSpec` as a streaming query does, micro-batch by micro-batch, without Spark.

    It calls the same code as Spark; only the stored state and the source of the rows differ. `add`
    adds events to the source, and `run_batch` runs one micro-batch over all waiting events. A
    micro-batch sees the watermark of its start; its events move the watermark of the next one. Then
    `take_results` returns what `finish` returned, `take_rows` whole result rows (`SessionRow`),
    `take_rejections` rejected events (`Rejection`), and `open_sessions` what is still open. Nothing
    happens in the background, and no clock goes back.

    Not simulated, because it can't change a result: triggers, partitions and the order of rows,
    output modes (a session stream has `append` only), chunks of frames, the retries of a task.
    Not simulated, so test it on Spark: the check of the input's columns, several watermarks in one
    query, sinks. `max_future_skew` needs a processing time: without it, no event is too far ahead.

    Example:
        from sessionkit.testing import SessionDriver, at

        # View, Visit and visits: as in the example of SessionSpec.of
        driver = SessionDriver(visits)
        driver.add("ann", at("10:00"), View("/shoes"))
        driver.add("ann", at("10:20"), View("/thanks"))
        driver.run_batch()
        driver.advance_watermark_to(at("10:50"))
        driver.run_batch()
        assert driver.take_results() == [Visit(pages=2)]

    Args:
        spec: The definition of the sessions.
        state: The sessions that are open before the first batch, as `open_sessions` of a driver or
            `read_state` of a checkpoint returns them. There is no watermark yet.
        processing_time: The processing time of the first batch, with a time zone.

    Raises:
        DriverError: The processing time has no time zone; or `state` is given, and the spec stores
            more of a session than its state.
        StateValueError: A key or a state in `state` has a value of another type.
    """

    _spec_class: ClassVar = SessionSpec
    _other_driver: ClassVar = "StatefulDriver"

    def take_events(self) -> list[SessionEvent]:
        """
        Return the events of the sessions that have closed since the last call, by session.

        Only under `Results(with_events=True)`; `sessionize` returns them as rows of kind `event`.
        """
        events, self._events = self._events, []
        return Listed(sorted(events, key=attrgetter("key", "session_start", "number")))

    def open_sessions(self) -> list[OpenSession[S]]:
        """
        Return the open sessions, sorted by key and start.

        Under `order="event_time"`, they include the events that still wait for the watermark.
        """
        watch.check_returned(self._unreturned)
        return Listed(open_sessions_in(self.spec, self._left))


@explained_methods
@explained()
@attrs.define(init=False, repr=False)
class StatefulDriver(
    Driver[StatefulSpec[E, S, R], E, KeyRow[R], R, StoredKey[S]], Generic[E, S, R]
):
    """
    Run a `StatefulSpec` as a streaming query does, micro-batch by micro-batch, without Spark.

    `add`, `run_batch` and the clocks work as in a `SessionDriver`. The processing time moves only
    when you call `advance_processing_time`. Then `take_results` returns what the functions
    returned, `take_rows` the same with keys (`KeyRow`), and `stored_keys` what is stored.

    Not simulated: triggers, partitions and the order of rows, sinks, several watermarks in one
    query, and the check of the input's columns.

    Example:
        from sessionkit.testing import StatefulDriver, at

        # View, Reader and readers: as in the examples of SessionSpec.of and StatefulSpec
        driver = StatefulDriver(readers)
        driver.add("ann", at("10:00"), View("/shoes"))
        driver.add("ann", at("10:20"), View("/thanks"))
        driver.run_batch()
        assert driver.take_results() == [Reader(pages=2)]

    Args:
        spec: The definition.
        state: The keys that are stored before the first batch, as `stored_keys` of a driver or
            `read_state` of a checkpoint returns them. A timeout in event time counts from the
            `last_event_time` of each; a span in processing time begins now.
        processing_time: The processing time of the first batch, with a time zone. A spec with a
            clock in processing time needs it. Without it, functions see 1970-01-01, and no event
            time is too far in the future.

    Raises:
        DriverError: The processing time has no time zone, or the spec needs one; or a key has no
            `last_event_time`, and the timeout needs it.
        StateValueError: A key or a state has a value of another type.
    """

    _spec_class: ClassVar = StatefulSpec
    _other_driver: ClassVar = "SessionDriver"

    def stored_keys(self) -> list[StoredKey[S]]:
        """Return the keys that have a state or a timer, sorted by key."""
        return Listed(stored_keys_in(self.spec, self._left))
