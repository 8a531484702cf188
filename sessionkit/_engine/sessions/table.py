"""
The Arrow table of the open sessions of a group.

    sessions   key.*, start, end, events, behind, state.*      a row an open session, in no order

What a session keeps of each event follows `behind`; see `gathered`. Where the spec drops
duplicates, then comes `exists`; see `duplicates`. Where it has rules, then come `closes`,
`closed_by` and `last.*`; see `ruled`. Where a session may give several rows, what is stored for
that comes next; see `revisions`.

Instants are timestamps of microseconds in UTC; `end` is exclusive.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from sessionkit._engine.rows.identity import shared_identity
from sessionkit._engine.rows.marks import BEHIND
from sessionkit._engine.rows.objects import decode_keys, encode_states
from sessionkit._engine.rows.table import INSTANT, key_schema
from sessionkit._engine.sessions.aggregates.kernels import stored_fields
from sessionkit._engine.sessions.duplicates import ids_identity, ids_schema
from sessionkit._engine.sessions.gathered import gathered_fields
from sessionkit._engine.sessions.revisions import revised_schema, revisions_identity
from sessionkit._engine.sessions.ruled import ruled_schema, rules_identity
from sessionkit._instants import span_us
from sessionkit.spec.session import AnySessionSpec
from sessionkit.state import Field, codec_of, forms_of

__all__ = ["session_identity", "sessions_schema", "state_columns", "state_fields"]


def sessions_schema(spec: AnySessionSpec) -> pa.Schema:
    """Return the schema of the table of open sessions."""
    own = [pa.field("start", INSTANT), pa.field("end", INSTANT), pa.field("events", pa.int64())]
    kept = [BEHIND, *gathered_fields(spec), *ids_schema(spec)]
    state = [pa.field(f"state.{field.name}", field.type.arrow) for field in state_fields(spec)]
    own += [*kept, *ruled_schema(spec), *revised_schema(spec)]
    return pa.schema([*key_schema(spec), *own, *state])


def state_fields(spec: AnySessionSpec) -> Sequence[Field]:
    """Return the fields of the state as they are stored: the user's own, or those of aggregates."""
    return codec_of(spec.state).type.fields if spec.aggregates is None else stored_fields(spec)


def state_columns(spec: AnySessionSpec, keys: pa.Table, states: Sequence[Any]) -> list[pa.Array]:
    """
    Return states as columns.

    Raises:
        StateValueError: A state does not fit its fields; key and path are named.
    """
    return encode_states(spec.state, states, partial(_key_at, spec, keys))


def _key_at(spec: AnySessionSpec, keys: pa.Table, place: int) -> Any:
    return decode_keys(spec, keys.slice(place, 1))[0]


def session_identity(spec: AnySessionSpec) -> bytes:
    """Return the rules and the types under which sessions are stored, as JSON."""
    entries: dict[str, Any] = {
        **shared_identity(spec, state_fields(spec)),
        "kind": _kind(spec),
        "gap_us": None if callable(spec.timeout.gap) else span_us(spec.timeout.longest),
        "longest_gap_us": span_us(spec.timeout.longest),
        "gap_inclusive": spec.timeout.gap_inclusive,
    }
    entries |= ids_identity(spec)
    if spec.per == "both":
        entries["held"] = forms_of([*codec_of(spec.event).type.fields, *spec.passthrough_fields])
    if spec.rules is not None:
        entries["rules"] = rules_identity(spec, spec.rules)
    if spec.revises:
        entries["revisions"] = revisions_identity(spec)
    if spec.discards:
        entries["row_has"] = "new events"
    if spec.aggregates is not None:
        entries["aggregates"] = {one.name: one.text for one in spec.bound}
    return json.dumps(entries, sort_keys=True).encode()


def _kind(spec: AnySessionSpec) -> str:
    if spec.per == "event":
        return "session of events"
    return "session" if spec.aggregates is None else "session of aggregates"
