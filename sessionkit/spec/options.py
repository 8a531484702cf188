"""The optional settings of a spec: lateness, results and `Every`, inputs and storage."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit._arguments import at_least_one, choice, columns, explained, flag, names, names_of
from sessionkit._instants import Duration, duration_of, duration_text
from sessionkit.errors import SpecError
from sessionkit.timeouts._policies import Clock

Upgrade: TypeAlias = Mapping[int, Callable[[Any], Any]]
LARGEST_BUCKET_COUNT: Final = 65_536
BUCKETS: Final = 64
"""The number of buckets where neither spec nor stream sets it."""
BUCKETS_A_PARTITION: Final = 4
TEXT: Final = re.compile(
    r"every\s+(?:(?P<events>\d+)\s+events?|(?P<span>.+?)(?:\s+of\s+(?P<clock>event|processing)"
    r"\s+time)?)",
    re.ASCII,
)
HINT: Final = (
    'write "on_close", "on_update", "every 100 events", "every 5 minutes" or '
    '"every 5 minutes of processing time"'
)
CLOCKS: Final[dict[str, Clock]] = {"event": "event_time", "processing": "processing_time"}


def copied(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a dict: a spec never changes."""
    argument: object = value  # the validator `columns` refuses anything but a dict
    return dict(value) if isinstance(argument, Mapping) else value


def _read_skew(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "max_future_skew")


def _read_jump(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "max_jump")


def _read_repeats(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "drop_duplicates_for", zero_allowed=True)


def _read_span(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "duration")


def _read_allowed(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "allowed")


def _read_reopening(value: Duration | None) -> timedelta | None:
    return None if value is None else duration_of(value, "reopen_within")


def _read_upgrade(value: object) -> dict[int, Callable[[Any], Any]]:
    if isinstance(value, Mapping) and all(
        type(version) is int and version >= 1 and callable(function)
        for version, function in value.items()
    ):
        return dict(sorted(value.items()))
    found = f"`upgrade` must be a dict of versions from 1 and functions, found {value!r}"
    raise SpecError(found, "write upgrade={1: from_v1}")


def buckets_for(partitions: int) -> int:
    """
    Return the default number of buckets of a stream, by its shuffle partitions.

    Four buckets a partition balance the tasks and keep rows small. Every bucket costs time in every
    micro-batch, so beyond 64 there is one a partition.
    """
    most = min(BUCKETS_A_PARTITION * partitions, max(BUCKETS, partitions))
    return min(most, LARGEST_BUCKET_COUNT)


@explained()
@attrs.frozen(kw_only=True)
class Lateness:
    """
    Say what counts as late, and what happens then: `lateness=Lateness(allowed="1 hour")`.

    By default, an event is late if it comes after the watermark has reached its event time plus the
    gap; under `order="event_time"`, after the watermark has reached its event time. A late event is
    counted and left out.

    Attributes:
        allowed: How long after its close a session still takes late events, in event time. Each
            micro-batch that adds some gives another revision of the session's row. None for no
            time. For a `SessionSpec`.
        reopen_within: How long after its close, in event time, a session continues with an event
            that isn't late, as in Kafka Streams. Take a gap of 30 minutes and an event at 10:00:
            the session closes once the watermark reaches 10:30. At a watermark of 10:35, an event
            of 10:20 isn't late, since its own gap ends at 10:50. It continues the session; under
            None, it begins a new one. Refused with `allowed`, which does this too, and with
            `order="event_time"`. For a `SessionSpec`.
        judged_by: Which end the watermark is compared with. `"event"`: the end of a session of this
            event alone, its time plus the gap, as in Spark. `"session"`: the end of the session
            that the event would join, as in Flink; refused with `order="event_time"`, where it
            would have no effect. For a `SessionSpec`.
        late_events: How a late event is handled. `"reject"`: it's counted as late and left out.
            `"process"`: it's passed to `process` like any other. For a `StatefulSpec`.
        measured: Whether a stream measures how much older its events are than the latest event
            before them, as `Counts.behind`, to [choose a watermark
            delay](docs/how-to/choose-a-delay.md). You may change it and keep the checkpoint.
    """

    allowed: timedelta | None = attrs.field(default=None, converter=_read_allowed)
    reopen_within: timedelta | None = attrs.field(default=None, converter=_read_reopening)
    judged_by: Literal["event", "session"] = attrs.field(default="event", validator=choice)
    late_events: Literal["reject", "process"] = attrs.field(default="reject", validator=choice)
    measured: bool = attrs.field(default=True, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.allowed is not None and self.reopen_within is not None:
            found = "`Lateness(allowed=...)` and `reopen_within` are both given"
            raise SpecError(found, "leave out `reopen_within`: `allowed` reopens sessions too")


@explained()
@attrs.frozen
class Every:
    """
    Let an open session give a row now and then: `Every("5 minutes")`, or `Every(events=100)`.

    It's the value of `Results(emit=...)`. The row comes at the end of a micro-batch, and only if
    the session has taken an event since its last row. A micro-batch gives at most one such row for
    each session.

    Attributes:
        duration: How much time must pass from the start of the session to its first row, and from
            then to each further one. In event time, the start is the first event's time; in
            processing time, the micro-batch that opens the session.
        events: How many events the session must take before its first row, and after each row;
            events of a session that is merged into it count.
        clock: The clock of `duration`: `"event_time"`, where the watermark must reach the time of
            the row; or `"processing_time"`.

    Raises:
        SpecError: Neither or both of `duration` and `events` are given, `duration` isn't positive,
            `events` isn't a whole number from 1, or `events` comes with the clock
            `"processing_time"`.
    """

    duration: timedelta | None = attrs.field(default=None, converter=_read_span)
    events: int | None = attrs.field(default=None, kw_only=True, validator=at_least_one)
    clock: Clock = attrs.field(default="event_time", kw_only=True, validator=choice)

    def __attrs_post_init__(self) -> None:
        if (self.duration is None) == (self.events is None):
            found = "`Every` takes a duration or a number of events, one of the two"
            raise SpecError(found, 'write Every("5 minutes") or Every(events=100)')
        if self.duration is None and self.clock != "event_time":
            found = "`Every` has a clock, and counts events"
            raise SpecError(found, "leave `clock` out, or write a duration")

    def __str__(self) -> str:
        if self.duration is None:
            return f"every {self.events} event{'' if self.events == 1 else 's'}"
        of = " of processing time" if self.clock == "processing_time" else ""
        return f"every {duration_text(self.duration)}{of}"


Emit: TypeAlias = Every | str
"""
When a session gives rows, in `Results(emit=...)`.

`"on_close"`: once, when it is over. `"on_update"`: also after each micro-batch that gave it events.
An `Every`, or text such as `"every 5 minutes"`: also at this interval.
"""


def _read_emit(value: object) -> Any:
    if isinstance(value, Every):
        return value
    text = value if isinstance(value, str) else ""
    if text in {"on_close", "on_update"}:
        return text
    match = TEXT.fullmatch(text)
    if match is None:
        raise SpecError(f"`emit` can't be {value!r}", HINT)
    if match["events"] is not None:
        return Every(events=int(match["events"]))
    span = duration_of(match["span"], "emit")
    return Every(span, clock=CLOCKS[match["clock"] or "event"])


@explained()
@attrs.frozen(kw_only=True)
class Results:
    """
    Choose when sessions give rows, and which rows: `results=Results(emit="on_update")`.

    Attributes:
        emit: When a session gives a row: `"on_close"`; or at the end of micro-batches before, too:
            `"on_update"`, after each one that adds an event to the session, `"every 100 events"`,
            `"every 5 minutes"` or `"every 5 minutes of processing time"`; see `Every`, which it
            also takes. Result rows then have `revision`, the number of the row among the session's
            rows from 1; `is_final`, false while the session is open; and `supersedes`, the ids of
            other sessions whose rows this row replaces. A batch gives only the last row of each
            session.
        with_events: Whether each event of a closed session is returned too, as a row of kind
            `event`; see `Events` for its columns. Until then, the events are stored. Needs
            `sessionize(..., with_rejected=True)`, since that adds the column `kind`.
        carries_watermark: Whether the rows carry a watermark on `session_end`, so that stateful
            operators of Spark, such as a window, can read them in the same query; see [what works
            after sessions](docs/how-to/after-sessions.md#a-window-in-the-same-query). For streams
            on Spark 4.0.2 or later, 4.1 on Connect, with RocksDB. It's fixed for the life of a
            checkpoint.
    """

    emit: Literal["on_close", "on_update"] | Every = attrs.field(
        default="on_close", converter=_read_emit
    )
    with_events: bool = attrs.field(default=False, validator=flag)
    carries_watermark: bool = attrs.field(default=False, validator=flag)


@explained()
@attrs.frozen(kw_only=True)
class Inputs:
    """
    Choose which rows count as events, and what identifies one: `inputs=Inputs(event_id="offset")`.

    A row that is no valid event is *quarantined*: counted, left out, and returned with its reason
    under `sessionize(..., with_rejected=True)`.

    Attributes:
        nulls: `"reject"` quarantines a row with a null in a field that isn't Optional. `"refuse"`
            raises a `SchemaError` before the first row if a column allows nulls and its field
            doesn't.
        max_future_skew: How far an event time may be ahead of the processing time. An event further
            ahead is quarantined before it can move the watermark. None accepts every time.
        max_jump: The longest silence that you consider possible between two consecutive event
            times, over all keys. Set it for replays and backfills: a wrong time in old data can be
            in the past, and then `max_future_skew` doesn't find it. A task takes the events that it
            reads together as a group and sorts them by time. From the median on, it looks for the
            first step longer than `max_jump`, and quarantines all events of the group after that
            step. Of an even number of events, the median is the earlier of the middle two. Steps
            before the median aren't checked. The check ignores other groups and earlier
            micro-batches. None accepts every time.
        max_buffered_per_key: How many events of a key may wait for the watermark under
            `order="event_time"`. Beyond that, the latest events are quarantined, though their times
            move the watermark. In the first micro-batch, before there is a watermark, all events
            wait.
        event_id: The input columns that identify an event of a key, such as an offset; one name or
            several. Their hash is the `event_id` of rejected rows, and `drop_duplicates_for`
            compares it. By default the hash of key, event time and all fields of the event.
        drop_duplicates_for: Drop an event whose id was processed before. An id is remembered while
            its session is open, and then until the watermark has reached `session_end` plus this
            span, also if a rule has closed the session before `session_end`. Zero is enough if a
            copy has the event time of the original, since it's late from then on. Dropped events
            count as `duplicate`. An id takes 16 bytes of state. None: copies are events. For a
            `SessionSpec`.
        passthrough: Input columns and their types, such as `{"offset": int}`, that are returned
            with rejected rows and used for nothing else.
    """

    nulls: Literal["reject", "refuse"] = attrs.field(default="reject", validator=choice)
    max_future_skew: timedelta | None = attrs.field(default=timedelta(days=1), converter=_read_skew)
    max_jump: timedelta | None = attrs.field(default=None, converter=_read_jump)
    max_buffered_per_key: int = attrs.field(default=100_000, validator=at_least_one)
    event_id: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(names_of), validator=names
    )
    drop_duplicates_for: timedelta | None = attrs.field(default=None, converter=_read_repeats)
    passthrough: Mapping[str, Any] = attrs.field(
        factory=dict, converter=copied, validator=columns, hash=False
    )


@explained()
@attrs.frozen(kw_only=True)
class Storage:
    """
    Choose how state is stored, and how old state is converted: `storage=Storage(layout="pages")`.

    Keys are divided by their hash into *buckets*, and Spark passes all keys of a bucket to Python
    at once.

    Attributes:
        layout: `"buckets"` stores the state of a bucket as one row, which Spark reads and writes as
            a whole. `"pages"` splits that row, and a micro-batch reads and writes only the pages
            with its keys. It suits a large state with little input, and needs RocksDB and Spark
            4.0.2 or later; on Spark Connect, 4.1 or later.
        bucket_count: The number of buckets of a stream, fixed for the life of a checkpoint. The
            default depends on `spark.sql.shuffle.partitions`: four buckets for each partition up to
            16 partitions, 64 buckets from 16 to 64 partitions, and one for each partition above
            that. A test driver has 64 by default. A batch multiplies `bucket_count` by four; if you
            leave `bucket_count` out, a batch has 256 buckets, whatever the number of partitions.
        upgrade: Functions that convert a stored state to the next version of its class. Each key is
            the version that its function takes: `{1: from_v1}` with
            `def from_v1(old: VisitV1) -> Visit`. The first version is 1.
        version: The version of the state class. The default is the version after the last one in
            `upgrade`, or 1 without `upgrade`. A stored state of another version is refused if
            `upgrade` has no function for it.
    """

    layout: Literal["buckets", "pages"] = attrs.field(default="buckets", validator=choice)
    bucket_count: int | None = attrs.field(default=None, validator=at_least_one)
    upgrade: Upgrade = attrs.field(factory=dict, converter=_read_upgrade, hash=False)
    # Pyright takes a field with a decorated default for one that must be passed.
    version: int = attrs.field(
        default=attrs.Factory(lambda storage: 1 + max(storage.upgrade, default=0), takes_self=True),
        validator=at_least_one,
    )

    def __attrs_post_init__(self) -> None:
        if self.buckets > LARGEST_BUCKET_COUNT:
            found = f"`bucket_count` must be at most {LARGEST_BUCKET_COUNT:,}"
            hint = "leave it out, or see docs/explanation/buckets.md"
            raise SpecError(f"{found}, found {self.buckets:,}", hint)

    @cached_property
    def buckets(self) -> int:
        """The number of buckets, by default `BUCKETS`; a stream sets its own number in the spec."""
        return self.bucket_count or BUCKETS
