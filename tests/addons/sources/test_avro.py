"""Payloads of Avro, without a JVM: what they may ask for, and what their values may become."""

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import SpecError
from sessionkit.addons.sources import Avro
from sessionkit.addons.sources.avro import AvroDecoder, Checker, LimitError
from sessionkit.state._fields import field_type

USER: Final = pa.field("user", pa.string(), nullable=False)
TREE: Final = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "left", "type": ["null", "Tree"]},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": "Tree"}},
    ],
}


EMPTY: Final = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


def record(kind: Any) -> dict[str, Any]:
    """Return the schema of a record with a user and another field."""
    fields = [{"name": "user", "type": "string"}, {"name": "x", "type": kind}]
    return {"type": "record", "name": "View", "fields": fields}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(
    schema: Any, *payloads: bytes | None, fields: tuple[pa.Field, ...] = (USER,), **limits: Any
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Return the columns of payloads, and the reasons why they can't be read."""
    decoder = AvroDecoder(Avro(json.dumps(schema), **limits), fields)
    nothing = pa.nulls(len(payloads), pa.string())
    batch = pa.table({"payload": pa.array(payloads, pa.binary()), "_unreadable": nothing})
    (found,) = decoder.decode(batch.to_batches())
    return found.select([field.name for field in fields]).to_pylist(), found[
        "_unreadable"
    ].to_pylist()


def reason(schema: Any, payload: bytes, **options: Any) -> str | None:
    return read(schema, payload, **options)[1][0]


def nested(levels: int, *, by: str) -> bytes:
    """Return a tree whose nodes are below one another, by an array or a union."""
    step, rest = {
        "left": (b"\x02a\x02", b"\x00\x00"),
        "children": (b"\x02a\x00\x02", b"\x00\x00"),
    }[by]
    return step * (levels - 1) + b"\x02a\x00\x00\x00" + rest * (levels - 1)


@pytest.mark.parametrize("by", ["left", "children"])
def test_a_record_nested_6000_deep_is_quarantined(by: str) -> None:
    """Of 30 kB; fastavro would end the process by a segmentation fault."""
    assert "its payload is deeper than the 500 of `max_depth`" == reason(TREE, nested(6_000, by=by))
    assert None is reason(TREE, nested(200, by=by))


def test_the_depth_may_be_set() -> None:
    """Up to what fastavro bears."""
    assert None is reason(TREE, nested(450, by="left"), max_depth=1_000)
    assert "its payload is deeper than the 3 of `max_depth`" == reason(
        TREE, nested(4, by="left"), max_depth=3
    )
    assert None is reason(TREE, nested(2, by="left"), max_depth=3)


@pytest.mark.parametrize("item", ["null", {"type": "fixed", "name": "F", "size": 0}, EMPTY])
def test_ten_bytes_that_announce_2_to_the_40_items_are_quarantined(item: Any) -> None:
    """Items of no bytes, or of few, in one block or several."""
    block = b"\x80\x80\x80\x80\x80\x80\x01"
    schema = record({"type": "array", "items": item})
    found = reason(schema, b"\x02a" + block + b"\x00")

    assert "its payload has more items than the 1000000 of `max_items`" == found
    assert "its payload has more items than the 3 of `max_items`" == reason(
        record({"type": "array", "items": "null"}), b"\x02a" + b"\x04" * 2 + b"\x00", max_items=3
    )


def test_items_that_take_bytes_are_counted_too() -> None:
    """As soon as a payload is long enough to have so many."""
    schema = record({"type": "map", "values": ["null", "int"]})
    payload = written(schema, {"user": "ann", "x": {str(place): place for place in range(9)}})

    assert None is reason(schema, payload, max_items=9)
    assert "its payload has more items than the 8 of `max_items`" == reason(
        schema, payload, max_items=8
    )


def test_a_long_decimal_is_quarantined() -> None:
    """Its time would grow with the square of its bytes: 40 s for 400 kB."""
    schema = record({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
    good = {"user": "ann", "x": Decimal("1.50")}

    assert None is reason(schema, written(schema, good))
    assert "its payload has a decimal of 400000 bytes, more than 10000" == reason(
        schema, b"\x02a" + b"\x80\xea\x30" + b"\x11" * 400_000
    )


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"\x02a\x03", "a union has no type -2"),
        (b"\x02a\x06", "a union has no type 3"),
        (b"\x02a\x04\x90\x4eab", "it ends within a value"),
        (b"\x02a\x04\x03", "it ends within a value"),
        (b"\x02a\x02" + b"\xff" * 11, "a number has more than ten bytes"),
    ],
)
def test_what_is_wrong_before_the_end_of_the_check_has_its_reason(
    payload: bytes, found: str
) -> None:
    """Also numbers that would point back."""
    schema = record(["null", "long", "string"])
    decoder = Avro(json.dumps(schema), max_items=1)

    with pytest.raises(LimitError, match=found):
        Checker.of(decoder, fastavro.parse_schema(schema))(payload, 0)


ENUM: Final = {"type": "enum", "name": "E", "symbols": ["a", "b", "c"]}
OF_DAY: Final = {"type": "int", "logicalType": "time-millis"}


@pytest.mark.parametrize(
    ("kind", "payload", "found"),
    [
        (ENUM, b"\x01", "an enum has no value -1"),
        (["null", ENUM], b"\x02\x05", "an enum has no value -3"),
        (["null", "int"], b"\x01\x0e", "a union has no type -1"),
        (["null", "int"], b"\x03", "a union has no type -2"),
        ({"type": "array", "items": ["null", "int"]}, b"\x02\x03\x00", "a union has no type -2"),
        ({"type": "map", "values": ENUM}, b"\x02\x02k\x01\x00", "an enum has no value -1"),
        ("boolean", b"\x02", "a boolean has the byte 2"),
        (OF_DAY, b"\x01", "a time-millis has no value -1"),
        ("long", b"\xff" * 9 + b"\x7f", "a number has more than 64 bits"),
        ("long", b"\x80" * 20 + b"\x01", "a number has more than ten bytes"),
        ({"type": "array", "items": "int"}, b"\x03\xc8\x01\x02\x04\x00", "it ends within a value"),
        ({"type": "array", "items": "int"}, b"\x03\x09\x02\x04\x00", "it ends within a value"),
        ({"type": "map", "values": "int"}, b"\x01\xc8\x01\x02k\x02\x00", "it ends within a value"),
    ],
)
def test_a_short_payload_that_fastavro_misreads_is_quarantined(
    kind: Any, payload: bytes, found: str
) -> None:
    """It takes -1 for the last symbol of an enum, and cuts numbers to 64 bits."""
    said = reason(record(kind), b"\x02a" + payload)

    assert f"its payload isn't Avro of this schema: {found}" == said


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (ENUM, b"\x06"),
        (["null", "int"], b"\x04\x0e"),
        ("string", b"\x01abc"),
        ("bytes", b"\xc8\x01abc"),
        ({"type": "fixed", "name": "F", "size": 8}, b"abc"),
        ({"type": "map", "values": "int"}, b"\x02\x01k\x02\x00"),
        ("double", b"abc"),
        ("long", b"\x80"),
        ("string", b"\x04\xff\xfe"),
    ],
)
def test_what_fastavro_finds_is_quarantined(kind: Any, payload: bytes) -> None:
    """Places beyond the end, sizes that are negative or too large, and bytes that are missing."""
    said = reason(record(kind), b"\x02a" + payload)

    assert said is not None
    assert said.startswith("its payload isn't Avro of this schema: ")


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (list[int], b"\x03\x04\x02\x04\x00", [1, 2]),
        (list[int], b"\x01\x02\x02\x02\x04\x00", [1, 2]),
        (dict[str, int], b"\x01\x06\x02k\x02\x00", [("k", 1)]),
        (int, b"\x82\x80\x00", 1),
    ],
)
def test_what_others_write_in_other_bytes_is_read(kind: Any, payload: bytes, value: Any) -> None:
    """Blocks that say their size, several blocks, and a number with bytes that say nothing."""
    kinds: dict[Any, Any] = {
        list[int]: {"type": "array", "items": "int"},
        dict[str, int]: {"type": "map", "values": "int"},
        int: "long",
    }
    fields = (pa.field("x", field_type(kind, "x").arrow),)
    (row,), reasons = read(record(kinds[kind]), b"\x02a" + payload, fields=fields)

    assert ([None], value) == (reasons, row["x"])


LEAVES: Final = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return a schema, and a record of it."""
    names = iter(range(99))

    def schema_of(depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        form = draw(st.sampled_from([*LEAVES, "array", "map", "record", "union", "enum"]))
        if form == "enum":
            symbols = {"type": "enum", "name": f"E{next(names)}", "symbols": ["a", "b"]}
            return symbols, st.sampled_from(["a", "b"])
        if form in LEAVES or not depth:
            form = form if form in LEAVES else "long"
            return form, LEAVES[form]
        if form == "union":
            kind, values = schema_of(0)
            return ["null", kind] if kind != "null" else ["null"], st.none() | values
        if form == "record":
            parts = {f"f{place}": schema_of(depth - 1) for place in range(draw(st.integers(0, 3)))}
            fields = [{"name": name, "type": kind} for name, (kind, _) in parts.items()]
            made = {"type": "record", "name": f"R{next(names)}", "fields": fields}
            return made, st.fixed_dictionaries({name: one for name, (_, one) in parts.items()})
        kind, values = schema_of(depth - 1)
        if form == "array":
            return {"type": "array", "items": kind}, st.lists(values, max_size=4)
        return {"type": "map", "values": kind}, st.dictionaries(st.text(max_size=3), values)

    kind, values = schema_of(3)
    return record(kind), {"user": "ann", "x": draw(values)}


@given(records())
def test_the_check_passes_every_value_that_is_written(drawn: tuple[Any, Any]) -> None:
    """It ends where the record ends, whatever the schema, and says where bytes are missing."""
    schema, value = drawn
    # For the sake of items that take no byte, every payload is looked at.
    schema["fields"].append({"name": "z", "type": {"type": "array", "items": "null"}})
    payload = written(schema, {**value, "z": []})
    check = Checker.of(Avro(json.dumps(schema)), fastavro.parse_schema(schema))

    assert None is reason(schema, payload)
    check(payload, 0)
    with pytest.raises(LimitError, match="it ends within a value"):
        check(payload[:-1], 0)


@pytest.mark.parametrize(
    ("schema", "value", "kind", "found"),
    [
        ("double", 1.5, int, "`x` isn't a bigint: 1.5"),
        ("double", 1.0, int, "`x` isn't a bigint: 1.0"),
        ("boolean", True, float, "`x` isn't a double: True"),
        ("long", 1_772_971_210_000, datetime, "`x` isn't a timestamp: 1772971210000"),
        ("int", 5, date, "`x` isn't a date: 5"),
        ("bytes", b"ab", list[int], "`x` isn't a array<bigint>: b'ab'"),
        (
            {"type": "array", "items": "double"},
            [1.5],
            list[int],
            "`x` isn't a array<bigint>: [1.5]",
        ),
        ({"type": "map", "values": "double"}, {"a": 1.5}, dict[str, int], None),
    ],
)
def test_no_value_becomes_another_one(
    schema: Any, value: Any, kind: Any, found: str | None
) -> None:
    """A part is not cut off a number, and a number without a unit is no time."""
    fields = (pa.field("x", field_type(kind, "x").arrow),)
    payload = written(record(schema), {"user": "ann", "x": value})
    said = reason(record(schema), payload, fields=fields)

    assert (found or "`x` isn't a map<string,bigint>: {'a': 1.5}") == said


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ("int", 5, float),
        ("long", 5, int),
        ("string", "a", str),
        ("long", 5, Decimal),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime,
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 1), date),
        ({"type": "array", "items": "int"}, [1, 2], list[float]),
        ({"type": "map", "values": "long"}, {"a": 1}, dict[str, int]),
    ],
)
def test_what_a_type_can_hold_is_read(schema: Any, value: Any, kind: Any) -> None:
    """A whole number is a float or a Decimal too."""
    fields = (pa.field("x", field_type(kind, "x").arrow),)
    (row,), reasons = read(
        record(schema), written(record(schema), {"user": "a", "x": value}), fields=fields
    )

    expected = list(value.items()) if isinstance(value, dict) else value
    assert ([None], expected) == (reasons, row["x"])


def test_a_time_of_day_is_its_microseconds() -> None:
    """A field of the type `time` is read from them, as on any other way."""
    schema = record({"type": "int", "logicalType": "time-millis"})
    fields = (pa.field("x", field_type(time, "x").arrow),)
    (row,), reasons = read(schema, written(schema, {"user": "a", "x": time(9, 30)}), fields=fields)

    assert ([None], 34_200_000_000) == (reasons, row["x"])


def test_a_number_is_a_duration_in_microseconds() -> None:
    """Avro has no type for one."""
    fields = (pa.field("x", field_type(timedelta, "x").arrow),)
    (row,), _ = read(record("long"), written(record("long"), {"user": "a", "x": 7}), fields=fields)

    assert timedelta(microseconds=7) == row["x"]


@pytest.mark.parametrize(
    "limit", [{"max_depth": 1_001}, {"max_depth": 0}, {"max_items": 0}, {"max_bytes": 1.5}]
)
def test_a_limit_that_cannot_be_is_refused(limit: dict[str, Any]) -> None:
    """As soon as it is given."""
    (name,) = limit
    with pytest.raises(SpecError, match=f"`{name}` must be"):
        Avro(json.dumps(TREE), **limit)


NOON: Final = datetime(2026, 3, 8, 12)  # noqa: DTZ001 (local)
LOCAL: Final = {"type": "long", "logicalType": "local-timestamp-micros"}


@pytest.mark.parametrize(
    ("kind", "value", "annotation"),
    [
        (LOCAL, NOON, datetime),
        ({"type": "array", "items": LOCAL}, [NOON], list[datetime]),
        ({"type": "map", "values": LOCAL}, {"a": NOON}, dict[str, datetime]),
    ],
)
def test_a_local_timestamp_is_no_instant(kind: Any, value: Any, annotation: Any) -> None:
    """Arrow would take it for one in UTC."""
    schema = record(kind)
    field = pa.field("x", field_type(annotation, "x").arrow)
    payload = written(schema, {"user": "ann", "x": value})

    assert "isn't a" in str(read(schema, payload, fields=(field,))[1][0])


@pytest.mark.parametrize("size", [0, 600_000])
@pytest.mark.parametrize("is_inner", [False, True])
def test_a_map_with_a_name_twice_is_quarantined(size: int, *, is_inner: bool) -> None:
    """Of which fastavro keeps the last; a map in several blocks is read."""
    ints = {"type": "map", "values": "int"}
    schema = record({"type": "array", "items": ints} if is_inner else ints)
    user = written({**record("null")}, {"user": "a" * size, "x": None})
    begin, end = (b"\x02", b"\x00") if is_inner else (b"", b"")
    twice = user + begin + b"\x04\x02a\x02\x02a\x04\x00" + end
    blocks = user + begin + b"\x02\x02a\x02\x02\x02b\x04\x00" + end

    assert "a map has a name twice" in str(reason(schema, twice))
    assert None is reason(schema, blocks)


def test_a_uuid_of_avro_is_its_text() -> None:
    """In a list too."""
    uuid = {"type": "string", "logicalType": "uuid"}
    text = "c9bf9e57-1685-4c89-bafb-ff5af830be8a"
    schema = record({"type": "array", "items": uuid})
    fields = (pa.field("x", pa.list_(pa.string())),)

    assert ([{"x": [text]}], [None]) == read(
        schema, written(schema, {"user": "ann", "x": [text]}), fields=fields
    )
