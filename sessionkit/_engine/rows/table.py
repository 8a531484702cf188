"""
The table of events, which every fold reads, and the rows that no fold processes.

    events     key.*, time, event.*, passthrough.*           a row an event

Instants are timestamps of microseconds in UTC. The names of the user's columns carry a prefix, so
that no two can collide. A spec without an event time has 1970-01-01 for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any, TypeVar
from weakref import ref

import attrs
import pyarrow as pa

from sessionkit._arrays import INSTANT, Mask
from sessionkit.spec.base import AnySpec
from sessionkit.spec.functions import Failure
from sessionkit.state._codec import codec_of

V = TypeVar("V")
T = TypeVar("T")


@attrs.frozen
class Rejected:
    """
    Rows of other kinds than results: those that became no part of one, and others.

    Attributes:
        kind: `late`, `duplicate`, `quarantined` or `failed` for events, `failed_output` for a
            session or a timer whose function failed, `event` for one of a closed session, `erased`
            for a key that was erased.
        reasons: Why, one for each row; None for `event`.
        rows: The events or sessions. Keys, times and carried columns of events may be null here.
        tracebacks: Of functions that raised, one for each row; None where no function did.
    """

    kind: str
    reasons: Sequence[str | None]
    rows: pa.Table
    tracebacks: Sequence[str | None] | None = None

    @classmethod
    def chosen(cls, kind: str, reason: str, rows: pa.Table, mask: Mask) -> "list[Rejected]":
        """Return the rows that a mask chooses, all for one reason; nothing where there is none."""
        if not mask.any():
            return []
        found = rows.filter(pa.array(mask))
        return [cls(kind, [reason] * found.num_rows, found)]

    @classmethod
    def with_reasons(cls, kind: str, reasons: dict[int, str], rows: pa.Table) -> "list[Rejected]":
        """Return the rows at some places, each for its reason; nothing where there is none."""
        if not reasons:
            return []
        places = sorted(reasons)
        return [cls(kind, [reasons[place] for place in places], rows.take(places))]

    @classmethod
    def with_failures(
        cls, kind: str, failures: Mapping[int, Failure], rows: pa.Table
    ) -> "list[Rejected]":
        """Return the rows at some places, each with why a function failed."""
        if not failures:
            return []
        places = sorted(failures)
        found = [failures[place] for place in places]
        reasons, tracebacks = [one.reason for one in found], [one.traceback for one in found]
        return [cls(kind, reasons, rows.take(places), tracebacks)]


def remembered(make: Callable[[V], T]) -> Callable[[V], T]:
    """
    Make a function remember what it returned for each value.

    A spec holds dicts, so it has no hash, and `functools.cache` can't be used. Values are told
    apart by identity: a copy, such as one from a pickle, is another value.
    """
    made: dict[int, tuple[ref[Any], T]] = {}

    def found(value: V) -> T:
        place = id(value)
        try:
            return made[place][1]
        except KeyError:
            result = make(value)
            # The number of an object is free for another one when it's gone; so is the entry then.
            made[place] = (ref(value, lambda _: made.pop(place, None)), result)
            return result

    return update_wrapper(found, make)


@remembered
def events_schema(spec: AnySpec) -> pa.Schema:
    event = [field.with_name(f"event.{field.name}") for field in codec_of(spec.event).schema]
    passthrough = [
        pa.field(f"passthrough.{field.name}", field.type.arrow) for field in spec.passthrough_fields
    ]
    return pa.schema([*key_schema(spec), pa.field("time", INSTANT), *event, *passthrough])


def key_schema(spec: AnySpec) -> list[pa.Field]:
    return [pa.field(f"key.{field.name}", field.type.arrow) for field in spec.key_fields]


@remembered
def no_events(spec: AnySpec) -> pa.Table:
    return events_schema(spec).empty_table()


@remembered
def result_schema(spec: AnySpec) -> pa.Schema:
    """Return the schema of the result rows, under the names that users see."""
    return pa.schema([pa.field(field.name, field.type.arrow) for field in spec.result_fields])


@remembered
def no_results(spec: AnySpec) -> pa.Table:
    return result_schema(spec).empty_table()
