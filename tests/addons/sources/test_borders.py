"""The odd values of each type in payloads: read as what was sent, or quarantined with a reason."""

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import attrs
import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import Inputs, SpecError
from sessionkit.addons.sources import Avro, JsonLines, read_batch
from sessionkit.addons.sources.avro import AvroDecoder
from sessionkit.spark import sessionize
from tests.support.borders import (
    EQUAL,
    IN,
    KINDS,
    MICROSECOND,
    MISFITS,
    QUARANTINED,
    REFUSED,
    SPEC,
    START,
    VALUES,
    arrow_of,
    json_of,
    plain,
    without,
)


@pytest.mark.since_spark("4.0", "Arrow tables are since 4.0")
def test_values_of_json_arrive_as_sent(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch; what a type doesn't hold is quarantined, with the payload and the field."""
    border = IN["JSON"]
    passthrough = Inputs(passthrough=JsonLines.origin_columns)
    with pytest.raises(SpecError, match="`days` is a map whose keys aren't text"):
        read_batch(spark, JsonLines(tmp_path), attrs.evolve(SPEC, inputs=passthrough))
    spec = attrs.evolve(without("days"), inputs=passthrough)
    sent = {value.row: (value.kind, json_of(value)) for value in VALUES if value.kind != "days"}
    misfits = {one.row: (one.kind, one.text) for one in MISFITS if one.text is not None}
    lines = [
        f'{{"row": {json.dumps(row)}, "ts": "{START.isoformat()}", "{kind}": {text}}}'
        for row, (kind, text) in (sent | misfits).items()
    ]
    (tmp_path / "rows.json").write_text("\n".join(lines))
    rows = arrow_of(
        sessionize(read_batch(spark, JsonLines(tmp_path), spec), spec, with_rejected=True)
    ).to_pylist(maps_as_pydicts="strict")

    found = {row["row"]: row for row in rows if row["kind"] == "session"}
    for value in VALUES:
        if border.of(value) == EQUAL:
            assert plain(value.stored) == plain(found.pop(value.row)[value.kind]), value.row
    assert {} == found
    reasons = {
        row["row"] or json.loads(row["payload"])["row"]: row["reason"]
        for row in rows
        if row["kind"] == QUARANTINED
    }
    # A payload that is read, and has a value that its type doesn't hold, is there as columns.
    lost = {value.row for value in VALUES if border.of(value) == QUARANTINED}
    assert lost | misfits.keys() == reasons.keys()
    assert all((sent | misfits)[row][0] in reason for row, reason in reasons.items())


OF_AVRO: Final[dict[str, Any]] = {
    "bigint": "long",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "interval day to second": "long",
    "decimal(38,18)": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18},
    "decimal(12,2)": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "array<bigint>": {"type": "array", "items": ["null", "long"]},
    "array<double>": {"type": "array", "items": "double"},
    "map<string,bigint>": {"type": "map", "values": ["null", "long"]},
}
PAIR: Final = {"_0": "bigint", "_1": "string"}
PARTS: Final = {"sku": "string", "price": "decimal(38,18)", "seen": "timestamp"}


def record(name: str, parts: dict[str, str]) -> dict[str, Any]:
    fields = [{"name": part, "type": ["null", OF_AVRO[kind]]} for part, kind in parts.items()]
    return {"type": "record", "name": name, "fields": fields}


def avro_of(name: str) -> Any:
    match name:
        case "pair":
            return record("pair", PAIR)
        case "item":
            return record("item", PARTS)
        case "items":
            return {"type": "array", "items": record("one", PARTS)}
    return OF_AVRO[KINDS[name].sql]


def test_values_of_avro_arrive_as_sent() -> None:
    """A duration is a number of microseconds, and a time of day its logical type or a long."""
    border, fields = IN["Avro"], without("days").input_schema
    kinds = [name for name in KINDS if border.kinds.get(name) != REFUSED]
    schema = {
        "type": "record",
        "name": "everything",
        "fields": [
            {"name": name, "type": ["null", avro_of(name)], "default": None} for name in kinds
        ],
    }
    payloads = []
    values = [value for value in VALUES if value.kind in kinds]
    for value in values:
        sent = value.stored // MICROSECOND if isinstance(value.stored, timedelta) else value.stored
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {value.kind: sent})
        payloads.append(out.getvalue())
    batch = pa.table({"payload": payloads, "_unreadable": pa.nulls(len(payloads), pa.string())})
    chosen = tuple(field for field in fields if field.name in kinds)
    (found,) = AvroDecoder(Avro(json.dumps(schema)), chosen).decode(batch.to_batches())

    assert {None} == {*found["_unreadable"].to_pylist()}
    rows = found.to_pylist(maps_as_pydicts="strict")
    assert [plain(value.stored) for value in values] == [
        plain(row[value.kind]) for value, row in zip(values, rows, strict=True)
    ]
