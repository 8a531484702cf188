"""
The callables that Spark, the batch run and the tests' driver call for a `StatefulSpec`.

`KeyedWorker` runs many keys in one Spark group, a bucket; `PerKeyWorker` one key a group, with a
column of stored state for each field. Both run the same step; only here do Spark's group state and
the engine meet.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa

from sessionkit._collector import collector_paused
from sessionkit._counts import Counts
from sessionkit._event_table import INSTANT, Rejected, events_schema, micros
from sessionkit._instants import BEGINNING_US, END_OF_TIME_US
from sessionkit._key_view import Armed
from sessionkit._keyed_step import BatchClocks, KeyedOutcome, keyed_step
from sessionkit._keyed_tables import (
    due_us,
    empty_keys,
    keyed_identity,
    keys_schema,
    load_keys,
    read_timers,
    store_keys,
    timer_columns,
)
from sessionkit._output import outcomes_frame, rejected_rows
from sessionkit._wire import load_wire, read_frames, wire_values
from sessionkit.state import (
    FORMAT_VERSION,
    OptionalType,
    check_format,
    check_identity,
    codec_of,
    encode_column,
    inner_type,
)
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import processing_timer_ms, timer_ms, watermark_in_force
from sessionkit.typing import GroupStateLike

__all__ = [
    "KEYED_STATE_SCHEMA",
    "PER_KEY_COLUMNS",
    "KeyedWorker",
    "PerKeyWorker",
    "stored_bucket",
    "stored_key",
]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]

KEYED_STATE_SCHEMA: Final = (
    "format INT, bucket_count INT, keys BIGINT, event_due_us BIGINT, processing_due_us BIGINT, "
    "payload BINARY"
)
"""The state row of a bucket, as Spark stores it: flat, and the same for every spec."""

PER_KEY_COLUMNS: Final = (
    "sessionkit_format INT",
    "sessionkit_identity STRING",
    "sessionkit_exists BOOLEAN",
    "sessionkit_seen_us BIGINT",
    "sessionkit_heard_us BIGINT",
    "sessionkit_created_us BIGINT",
    "sessionkit_updated_us BIGINT",
    "sessionkit_timers STRING",
)
"""What stands before the fields of the state in the row of one key, under layout="per_key"."""

MICROSECONDS: Final = 1_000


@attrs.frozen
class KeyedWorker:
    """
    Runs one bucket, on a stream or as a whole.

    Attributes:
        spec: The rules and functions.
        with_rejected: Whether the rows that the functions were not given are handed out.
    """

    spec: AnySpec
    with_rejected: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupStateLike
    ) -> Iterator[pd.DataFrame]:
        """
        Run one micro-batch of a bucket; Spark calls it where there are rows or the timer went off.

        Args:
            key: The label of the bucket.
            frames: The rows, in chunks of any size; on a timeout one empty frame.
            state: Spark's group state; it is always updated or removed, since a call that changes
                nothing would leave a timer that fires for ever.
        """
        del key
        yield self._micro_batch(frames, state)

    @collector_paused()
    def _micro_batch(self, frames: Iterable[pd.DataFrame], state: GroupStateLike) -> pd.DataFrame:
        spec = self.spec
        before = stored_bucket(spec, state.get) if state.exists else empty_keys(spec)
        outcome, frame = _run(spec, before, frames, state, with_rejected=self.with_rejected)
        keys = outcome.keys
        if not keys.num_rows:
            state.remove()
            return frame
        due, payload = _due(spec, keys), store_keys(spec, keys)
        state.update((FORMAT_VERSION, spec.bucket_count, keys.num_rows, *due, payload))
        _arm(spec, *due, state)
        return frame

    @collector_paused()
    def whole(self, frames: Sequence[pd.DataFrame], processing_us: int) -> pd.DataFrame:
        """
        Run all rows of a bucket at once: no event is late, and in the end all event time is over.

        The processing time stands still, so what waits for it never comes.
        """
        spec, read = self.spec, sum(map(len, frames))
        arrived, quarantined = read_frames(spec, frames)
        nothing = events_schema(spec).empty_table()
        begin = BatchClocks(BEGINNING_US, processing_us)
        end = BatchClocks(END_OF_TIME_US, processing_us)
        first = keyed_step(spec, empty_keys(spec), arrived, begin)
        last = keyed_step(spec, first.keys, nothing, end)
        counts = _counts(read, quarantined, first) + _counts(0, [], last)
        return outcomes_frame(
            spec, [first, last], quarantined, counts, with_rejected=self.with_rejected
        )


@attrs.frozen
class PerKeyWorker:
    """
    Runs one key on a stream.

    Attributes:
        spec: The rules and functions.
        with_rejected: Whether the rows that the functions were not given are handed out.
    """

    spec: AnySpec
    with_rejected: bool = False

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupStateLike
    ) -> Iterator[pd.DataFrame]:
        """Run one micro-batch of a key; see `KeyedWorker`. The key is as it crosses."""
        spec = self.spec
        before = stored_key(spec, key, state.get) if state.exists else empty_keys(spec)
        outcome, frame = _run(spec, before, frames, state, with_rejected=self.with_rejected)
        if outcome.keys.num_rows:
            state.update(_row_of_key(spec, outcome.keys))
            _arm(spec, *_due(spec, outcome.keys), state)
        else:
            state.remove()
        yield frame


def _run(
    spec: AnySpec,
    before: pa.Table,
    frames: Iterable[pd.DataFrame],
    state: GroupStateLike,
    *,
    with_rejected: bool,
) -> tuple[KeyedOutcome, pd.DataFrame]:
    """Run one micro-batch of a group; return what it comes to, and what is handed to Spark."""
    chunks = [] if state.hasTimedOut else list(frames)
    arrived, quarantined = read_frames(spec, chunks)
    outcome = keyed_step(spec, before, arrived, _clocks(spec, state))
    counts = _counts(sum(map(len, chunks)), quarantined, outcome)
    return outcome, outcomes_frame(
        spec, [outcome], quarantined, counts, with_rejected=with_rejected
    )


def _hard_ms(spec: AnySpec, state: GroupStateLike) -> int:
    return 0 if spec.watermark_delay is None else state.getCurrentWatermarkMs()


def _clocks(spec: AnySpec, state: GroupStateLike) -> BatchClocks:
    watermark_us = watermark_in_force(_hard_ms(spec, state), spec.horizon_ms)
    return BatchClocks(watermark_us, state.getCurrentProcessingTimeMs() * MICROSECONDS)


def _due(spec: AnySpec, keys: pa.Table) -> tuple[int | None, int | None]:
    """Return what the two clocks, event time first, must pass for something to happen."""
    return due_us(spec, keys, "event_time"), due_us(spec, keys, "processing_time")


def _arm(
    spec: AnySpec, event_due: int | None, processing_due: int | None, state: GroupStateLike
) -> None:
    """Let Spark call again when something is due; behind `update`, which clears the timer."""
    if spec.clock == "event_time" and event_due is not None:
        hard_ms = _hard_ms(spec, state)
        state.setTimeoutTimestamp(timer_ms(event_due + 1, hard_ms, spec.horizon_ms))
    if spec.clock == "processing_time":
        now_ms = state.getCurrentProcessingTimeMs()
        # No timer of Spark's waits for the watermark under this clock: look in every micro-batch.
        delays = [1] if event_due is not None else []
        delays += (
            [processing_timer_ms(processing_due, now_ms)] if processing_due is not None else []
        )
        if delays:
            state.setTimeoutDuration(min(delays))


def _counts(read: int, quarantined: Sequence[Rejected], outcome: KeyedOutcome) -> Counts:
    rejected = rejected_rows(quarantined, outcome)
    return Counts(
        events=read,
        folded=outcome.folded,
        late=rejected["late"],
        quarantined=rejected["quarantined"],
        failed=rejected["failed"],
        timers=outcome.timers,
        rows=outcome.rows.num_rows,
        unfinished=rejected["unfinished"],
    )


# -- what is stored ----------------------------------------------------------------------------


def stored_bucket(spec: AnySpec, value: tuple[Any, ...]) -> pa.Table:
    """
    Return the table of keys from the stored row of a bucket.

    Raises:
        StateError: It is damaged, or was written under other rules.
    """
    version, *_, payload = value
    check_format(version)
    return load_keys(spec, bytes(payload))


def stored_key(spec: AnySpec, key: tuple[Any, ...], value: tuple[Any, ...]) -> pa.Table:
    """
    Return the stored row of a key as a table of one.

    Raises:
        StateError: It was written under other rules.
    """
    version, identity, exists, seen, heard, created, updated, timers, *values = value
    check_format(version)
    check_identity(identity.encode(), keyed_identity(spec))
    armed = {name: Armed(clock, at) for name, (clock, at) in json.loads(timers).items()}
    fields = codec_of(spec.state).type.fields
    return pa.Table.from_arrays(
        [
            *(
                encode_column(field.type, [field.type.load(_plain(value))], field.name)
                for field, value in zip(spec.key_fields, key, strict=True)
            ),
            pa.array([exists]),
            *(_instant(value) for value in (seen, heard, created, updated)),
            *timer_columns([armed]),
            *(
                encode_column(OptionalType(field.type), [load_wire(field.type, value)], field.name)
                for field, value in zip(fields, values, strict=True)
            ),
        ],
        schema=keys_schema(spec),
    )


def _row_of_key(spec: AnySpec, keys: pa.Table) -> tuple[Any, ...]:
    """Return the only row of a table of keys as Spark is to store it."""
    (armed,) = read_timers(keys["timers"])
    stamps = [
        None if keys[name].null_count else int(micros(keys[name])[0])
        for name in ("seen", "heard", "created", "updated")
    ]
    values = [
        wire_values(inner_type(field.type), keys[f"state.{field.name}"])[0]
        for field in codec_of(spec.state).type.fields
    ]
    timers = json.dumps({name: [one.clock, one.at_us] for name, one in armed.items()})
    identity = keyed_identity(spec).decode()
    return (FORMAT_VERSION, identity, keys["exists"][0].as_py(), *stamps, timers, *values)


def _plain(value: Any) -> Any:
    """Return a grouping value, which Spark hands over as NumPy's, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _instant(value: int | None) -> pa.Array:
    return pa.array([value], pa.int64()).cast(INSTANT)
