"""
Many keys in one Spark group, under a `StatefulSpec`.

Rules of this file:

1. *Only what is touched is decoded.* Keys without events or due timers pass as Arrow rows.
2. *Overdue keys end first*: the timers that are due go off, then the policy ends the key, and
   events of the same micro-batch begin anew. So a result does not depend on whether a batch without
   data slipped in before.
3. *Data first, then timers*, as in Spark: a timer that is due goes off behind the events of its
   key, unless these deleted it or set it anew.
4. *The clocks are those of the batch*, the same for every key and row of it.
5. *Each event is counted once*: folded, late, quarantined or failed.
6. *A failed call leaves no trace*, and takes down no other key under `on_error="reject"`.
7. *Nothing depends on the bucket.* Which keys share one, and how many there are, changes no row.
   So nothing that is due is left behind a batch: a key that a late event has made ends at once, not
   when its bucket happens to be looked at again.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sessionkit._engine.keys.active import ActiveKeys, BatchClocks, runs_of_rows
from sessionkit._engine.keys.bucket_handler import fold_bucket
from sessionkit._engine.keys.calls import Calls, KeyRun, is_due
from sessionkit._engine.keys.table import policy_ends
from sessionkit._engine.rows.objects import build_events
from sessionkit._engine.rows.results import check_fit
from sessionkit._engine.rows.table import Rejected, key_schema, micros
from sessionkit._instants import END_OF_TIME_US
from sessionkit._key_view import MISSING
from sessionkit.errors import StateValueError
from sessionkit.state import codec_of
from sessionkit.stateful import StatefulSpec
from sessionkit.timeouts import Clock, deadlines_of, is_late_in_order, is_over

__all__ = ["BatchClocks", "KeyedOutcome", "keyed_step"]

AnySpec: TypeAlias = StatefulSpec[Any, Any, Any]
Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@attrs.frozen
class KeyedOutcome:
    """
    What one micro-batch does to a bucket.

    Attributes:
        keys: The table of keys that it remembers from now on.
        rows: The result rows.
        processed: How many events the functions were given.
        timers: How many timers went off, and policies ended a key.
        rejected: The events that the functions were not given, or failed over.
        failed_output: The keys whose `on_timer` failed.
    """

    keys: pa.Table
    rows: pa.Table
    processed: int
    timers: int
    rejected: list[Rejected]
    failed_output: list[Rejected]


def keyed_step(
    spec: AnySpec, keys: pa.Table, arrived: pa.Table, clocks: BatchClocks
) -> KeyedOutcome:
    """
    Run one micro-batch of a bucket.

    Args:
        spec: The rules and functions.
        keys: What the bucket remembers.
        arrived: The events that came, in any order.
        clocks: The clocks of the batch.

    Raises:
        UserFunctionError: A function of the user failed, and the spec says `on_error="raise"`.
        StateValueError: A function left a value in the state that does not fit its field.
    """
    events, objects, rejected = _readable(spec, arrived, clocks.watermark_us)
    calls = Calls(spec, clocks.shown)
    over, keys = _parted(spec, keys, clocks)
    ended = _end(calls, over)
    if spec.handler == "bucket":
        folded = fold_bucket(spec, keys, events, calls.now, clocks.processing_us)
        keys, rows = folded.keys, folded.rows
        reason = folded.failure
        failures = {} if reason is None else dict.fromkeys(range(events.num_rows), reason)
    else:
        active = ActiveKeys.of(spec, keys, events, clocks)
        failures = active.process(calls, objects)
        due = is_due(clocks.watermark_us, clocks.processing_us)
        for run in active.runs:
            calls.fire(run, due)
        keys, rows = active.table(clocks), _rows(spec, active.runs)
    over_at_once, keys = _parted(spec, keys, clocks)
    ended_at_once = _end(calls, over_at_once)
    failed = _failed(events, failures)
    return KeyedOutcome(
        keys=keys,
        rows=pa.concat_tables([_rows(spec, ended), rows, _rows(spec, ended_at_once)]),
        processed=events.num_rows - sum(part.rows.num_rows for part in failed),
        timers=calls.fired,
        rejected=rejected + failed,
        failed_output=_failed_output(spec, calls),
    )


def _readable(
    spec: AnySpec, arrived: pa.Table, watermark_us: int
) -> tuple[pa.Table, list[Any], list[Rejected]]:
    """Return the events that the functions are given, as rows and as objects; others aside."""
    rejected: list[Rejected] = []
    if spec.watermark_delay is not None and spec.late == "reject":
        late = is_late_in_order(micros(arrived["time"]), watermark_us)
        rejected += Rejected.chosen("late", "it is at or behind the watermark", arrived, late)
        arrived = arrived.filter(pa.array(~late))
    if spec.handler != "events":
        return arrived, [], rejected
    objects, refused = build_events(spec, arrived)
    if refused:
        places = sorted(refused)
        reasons = [refused[place] for place in places]
        rejected.append(Rejected("quarantined", reasons, arrived.take(places)))
        good = np.ones(arrived.num_rows, np.bool_)
        good[places] = False
        arrived = arrived.filter(pa.array(good))
        objects = [objects[place] for place in np.flatnonzero(good).tolist()]
    return arrived, objects, rejected


# -- keys that a policy ends -------------------------------------------------------------------


@attrs.frozen
class _Over:
    """
    The keys that a policy ends.

    Attributes:
        spec: The rules and functions.
        keys: Their rows.
        names: For each, the name of the policy: the one whose end came first.
        reached: For each clock and key, the instant until which the key lived.
    """

    spec: AnySpec
    keys: pa.Table
    names: list[str]
    reached: dict[Clock, list[int]]


def _parted(spec: AnySpec, keys: pa.Table, clocks: BatchClocks) -> tuple[_Over, pa.Table]:
    """Part the keys that a policy ends from the others."""
    names = np.full(keys.num_rows, None, np.object_)
    first = np.full(keys.num_rows, END_OF_TIME_US + 1, np.int64)
    now: dict[Clock, int] = {
        "event_time": clocks.watermark_us,
        "processing_time": clocks.processing_us,
    }
    reached = {clock: np.full(keys.num_rows, now_us) for clock, now_us in now.items()}
    for deadline in deadlines_of(spec.timeout):
        clock, ends = deadline.clock, policy_ends(keys, deadline)
        is_first = is_over(ends, now[clock]) & (ends < first)
        names[is_first], first[is_first] = deadline.name, ends[is_first]
        reached[clock] = np.minimum(reached[clock], ends)
    over = names != None  # noqa: E711 (for each element)
    ended = _Over(
        spec,
        keys.filter(pa.array(over)),
        names[over].tolist(),
        {clock: instants_us[over].tolist() for clock, instants_us in reached.items()},
    )
    return ended, keys.filter(pa.array(~over)) if over.any() else keys


def _end(calls: Calls, over: _Over) -> list[KeyRun]:
    """
    End keys: what was due by then goes off, then the policy has the last call.

    A timer behind the end never goes off, and a key of which the timers leave nothing is not ended
    once more: so it would have been, had a batch without data come between.
    """
    runs = runs_of_rows(over.spec, over.keys)
    lived = zip(over.reached["event_time"], over.reached["processing_time"], strict=True)
    for run, name, (event_us, processing_us) in zip(runs, over.names, lived, strict=True):
        calls.fire(run, is_due(event_us, processing_us))
        if run.held.value is not MISSING or run.held.armed:
            calls.end(run, name)
    return runs


# -- what comes out ----------------------------------------------------------------------------


def _rows(spec: AnySpec, runs: Sequence[KeyRun]) -> pa.Table:
    """Return the result rows: the key, and the fields of the result."""
    schema = pa.schema([pa.field(field.name, field.type.arrow) for field in spec.result_fields])
    results = [row for run in runs for row in run.rows]
    if not results:
        return schema.empty_table()
    keys = [run.held.key for run in runs for _ in run.rows]
    return pa.Table.from_arrays(
        [*_key_arrays(spec, keys), *_encoded_results(spec, results, runs)], schema=schema
    )


def _key_arrays(spec: AnySpec, keys: Sequence[Any]) -> list[pa.Array]:
    values = zip(*keys, strict=True)
    return [
        pa.array([field.type.dump(value) for value in column], field.type.arrow)
        for field, column in zip(spec.key_fields, values, strict=True)
    ]


def _encoded_results(spec: AnySpec, results: list[Any], runs: Sequence[KeyRun]) -> list[pa.Array]:
    codec = codec_of(spec.result)
    try:
        return codec.encode(results)
    except StateValueError:
        place, _ = codec.first_misfit(results)
        made = [(run, number) for run in runs for number in range(len(run.rows))]
        run, number = made[place]
        role = "process" if number < run.processed else "on_timer"
        function: Any = spec.function if role == "process" else spec.on_timer
        check_fit([results[place]], spec.result, role, function, run.held.key)
        raise


def _failed(events: pa.Table, failures: dict[int, str]) -> list[Rejected]:
    if not failures:
        return []
    places = sorted(failures)
    return [Rejected("failed", [failures[place] for place in places], events.take(places))]


def _failed_output(spec: AnySpec, calls: Calls) -> list[Rejected]:
    if not calls.failed_output:
        return []
    keys = [key for key, _ in calls.failed_output]
    rows = pa.Table.from_arrays(_key_arrays(spec, keys), schema=pa.schema(key_schema(spec)))
    return [Rejected("failed_output", [reason for _, reason in calls.failed_output], rows)]
