"""A null anywhere in a nested value quarantines the row, unless its type allows it there."""

from itertools import chain
from typing import Any

import attrs
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from sessionkit._arrays import INSTANT
from sessionkit._engine.shell.storage import logic_of
from sessionkit._engine.shell.worker import Worker
from sessionkit._engine.wire.packing import rows_of_frames
from sessionkit._instants import END_OF_TIME_US, micros_of
from sessionkit.spec.columns import KIND, OF_ROWS
from sessionkit.state._collections import AttrsType, DictType, ListType, OptionalType, TupleType
from sessionkit.state._fields import field_type
from sessionkit.state._types import FieldType
from sessionkit.testing import at
from tests.support.packs import IS_FUTURE, frame_of, sent
from tests.support.stateful_specs import summing
from tests.support.strategies import SCALARS, Typed, with_parts

NOON_US = micros_of(at("12:00"))
FLAT = st.sampled_from(SCALARS)
NESTED = with_parts(with_parts(FLAT | with_parts(FLAT)))
"""Up to three levels deep."""


@attrs.frozen
class Nulled:
    """A type of field, and values as they are stored, in which some parts may be null."""

    annotation: Any
    kind: FieldType
    values: list[Any]
    are_flagged: bool

    @property
    def column(self) -> pa.Array:
        """The values as Spark sends them, where it knows or doesn't know which are never null."""
        kind = flagged(self.kind.arrow, self.values) if self.are_flagged else self.kind.arrow
        return as_spark_sends(kind, self.values)


@st.composite
def nulled(draw: DrawFn) -> Nulled:
    typed = draw(NESTED)
    kind = field_type(typed.annotation, "x")
    values = [draw(partly_null(kind, one)) for one in draw(stored(typed, kind))]
    return Nulled(typed.annotation, kind, values, draw(st.booleans()))


def stored(typed: Typed, kind: FieldType) -> st.SearchStrategy[list[Any]]:
    return st.lists(typed.values.map(kind.dump), min_size=1, max_size=4)


@st.composite
def partly_null(draw: DrawFn, kind: FieldType, value: Any) -> Any:
    """Put nulls in place of some parts of a value; the key of a map is never null."""
    if isinstance(kind, OptionalType):
        return draw(partly_null(kind.inner, value))
    if value is None or draw(st.integers(0, 7)) == 0:
        return None
    match kind:
        case ListType(item):
            return [draw(partly_null(item, one)) for one in value]
        case DictType(_, of_value):
            return [{**one, "value": draw(partly_null(of_value, one["value"]))} for one in value]
        case TupleType() | AttrsType():
            kinds = dict(zip(value, parts_of(kind), strict=True))
            return {name: draw(partly_null(kinds[name], one)) for name, one in value.items()}
    return value


def parts_of(kind: TupleType | AttrsType) -> list[FieldType]:
    return [*kind.items] if isinstance(kind, TupleType) else [field.type for field in kind.fields]


def is_good(kind: FieldType, value: Any) -> bool:
    """Judge naively: a null is good where the type is Optional."""
    if isinstance(kind, OptionalType):
        return value is None or is_good(kind.inner, value)
    if value is None:
        return False
    match kind:
        case ListType(item):
            return all(is_good(item, one) for one in value)
        case DictType(_, of_value):
            return all(is_good(of_value, one["value"]) for one in value)
        case TupleType() | AttrsType():
            return all(map(is_good, parts_of(kind), value.values()))
    return True


def flagged(kind: pa.DataType, values: list[Any]) -> pa.DataType:
    """Return a type whose parts say that they're never null, where they aren't."""
    there = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        parts = [(part, [value[part.name] for value in there]) for part in kind]
        return pa.struct([not_null(part.name, part.type, own) for part, own in parts])
    if pa.types.is_map(kind):
        own = [one["value"] for one in chain.from_iterable(there)]
        return pa.map_(kind.key_type, not_null("value", kind.item_type, own))
    if pa.types.is_list(kind):
        return pa.list_(not_null("element", kind.value_type, list(chain.from_iterable(there))))
    return kind


def as_spark_sends(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Return an array in which all that is in a null is null too, as `pa.array` doesn't do."""
    if pa.types.is_struct(kind):
        missing = pa.array([value is None for value in values], pa.bool_())
        parts = [[value and value[part.name] for value in values] for part in kind]
        columns = [as_spark_sends(part.type, own) for part, own in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=[*kind], mask=missing)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return pa.array(values, kind)
    is_map = pa.types.is_map(kind)
    item = pa.struct([kind.key_field, kind.item_field]) if is_map else kind.value_type
    lengths = [value and [None] * len(value) for value in values]
    own = list(chain.from_iterable(value for value in values if value is not None))
    places = pa.array(lengths, pa.list_(pa.null())).buffers()[:2]
    children = [as_spark_sends(item, own)]
    return pa.Array.from_buffers(kind, len(values), places, children=children)


def not_null(name: str, kind: pa.DataType, values: list[Any]) -> pa.Field:
    return pa.field(name, flagged(kind, values), nullable=None in values)


@given(nulled())
def test_a_row_is_quarantined_for_a_null_that_its_type_does_not_allow(found: Nulled) -> None:
    """Every other row is an event, and its values come out as they went in."""
    check(found)


def check(found: Nulled) -> None:
    """Run values through the worker, and compare what becomes of each with the naive judgement."""
    fields = {"number": attrs.field(type=int), "x": attrs.field(type=found.annotation)}
    cls = attrs.make_class("Nested", fields, frozen=True)
    spec = summing(lambda key, events, state, times: events, event=cls, result=cls)
    rows = len(found.values)
    columns = {
        "key": pa.array(["ann"] * rows),
        "at": pa.array(range(NOON_US, NOON_US + rows), pa.int64()).cast(INSTANT),
        IS_FUTURE: pa.array([False] * rows),
        "number": pa.array(range(rows)),
        "x": found.column,
    }
    packs = rows_of_frames([frame_of(spec, sent(spec, columns))])
    worker = Worker(logic_of(spec), with_rejected=True)
    ((output, _),) = worker.until(worker.portions(packs), 0, END_OF_TIME_US)

    good = [place for place, value in enumerate(found.values) if is_good(found.kind, value)]
    kept, bad = (output.rows.filter(flags) for flags in split_by_kind(output.rows))
    assert (len(good), rows - len(good)) == (output.counts.processed, output.counts.quarantined)
    assert good == kept["number"].to_pylist()
    expected = pa.array([found.values[place] for place in good], found.kind.arrow)
    assert repr(expected.to_pylist()) == repr(kept["x"].to_pylist())
    assert all("`event.x" in reason for reason in bad[f"{OF_ROWS}reason"].to_pylist())


def split_by_kind(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    kinds = rows[KIND].to_pylist()
    return (
        pa.array([kind == "result" for kind in kinds], pa.bool_()),
        pa.array([kind == "quarantined" for kind in kinds], pa.bool_()),
    )
