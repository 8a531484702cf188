"""Where event times tie, a batch keeps the same row however the rows arrive, for each type."""

from collections.abc import Mapping
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SchemaError
from sessionkit.spark.dedup import (
    drop_duplicates_by_key,
    drop_duplicates_by_key_and_time,
    drop_duplicates_within,
)
from sessionkit.spark.windows import tumbling

AT: Final = "timestamp '2026-01-01 00:00:00"
WKB: Final = "X'0101000000000000000000F03F00000000000000"
TIES: Final[Mapping[str, tuple[str, str]]] = {
    "map": (f"map('a', {AT}.0001')", f"map('a', {AT}.0002')"),
    "map in another order": ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    "list of maps": (f"array(map('a', {AT}.0001'))", f"array(map('a', {AT}.0002'))"),
    "map of lists": ("map('a', array(0.0D))", "map('a', array(-0.0D))"),
    "map of maps": (
        f"map('a', map('a', {AT}.0001'))",
        f"map('a', map('a', {AT}.0002'))",
    ),
    "field called interval": (
        f"named_struct('interval', {AT}.0001')",
        f"named_struct('interval', {AT}.0002')",
    ),
    "class with a map": (
        f"named_struct('n', 1, 'm', map('a', {AT}.0001'))",
        f"named_struct('n', 1, 'm', map('a', {AT}.0002'))",
    ),
    "duration": ("interval '9' second", "interval '10' second"),
    "zero": ("0.0D", "-0.0D"),
    "list of zeros": ("array(CAST(0.0D AS float))", "array(CAST(-0.0D AS float))"),
    "null": ("map('a', 1)", "CAST(NULL AS map<string, int>)"),
    "calendar interval": ("make_interval(0, 1, 0, 2)", "make_interval(0, 1, 0, 10)"),
}
"""Two values that Spark's order or a JSON text takes for one."""
LATER_TIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "variant": ("4.0", "parse_json('{\"a\": 1}')", "parse_json('{\"a\": 2}')"),
    "time in a variant": ("4.0", f"CAST({AT}.0001' AS variant)", f"CAST({AT}.0002' AS variant)"),
    "list of variants": ("4.0", "array(parse_json('1'))", "array(parse_json('2'))"),
    "collation": ("4.0", "'a' COLLATE UTF8_LCASE", "'A' COLLATE UTF8_LCASE"),
    "geometry": ("4.1", f"st_geomfromwkb({WKB}40')", f"st_geomfromwkb({WKB}00')"),
    "geography": ("4.1", f"st_geogfromwkb({WKB}40')", f"st_geogfromwkb({WKB}00')"),
    "map of geometries": (
        "4.1",
        f"map('a', st_geomfromwkb({WKB}40'))",
        f"map('a', st_geomfromwkb({WKB}00'))",
    ),
}
"""The same, with the release that brought the type."""
RULES: Final = {
    "within": drop_duplicates_within("1 hour", keys="id", event_time="ts"),
    "by key": drop_duplicates_by_key("id", unbounded_state=True),
    "by key and time": drop_duplicates_by_key_and_time(
        "id", event_time="ts", watermark_delay="1 hour"
    ),
}


def rows(spark: SparkSession, *values: str, key: str = "'a'") -> DataFrame:
    """Return rows of one key and time, in this order."""
    selects = [f"SELECT {key} AS id, {AT}' AS ts, {value} AS value" for value in values]
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1)


def check_one_is_kept(spark: SparkSession, first: str, second: str) -> None:
    for rule in RULES.values():
        found = []
        for several in ((first, second), (second, first)):
            frame = rule.apply(rows(spark, *several))
            kind = frame.schema["value"].dataType.simpleString()
            shown = F.col("value").cast("string")
            if "geo" in kind:
                inner = "element_at(value, 'a')" if kind.startswith("map") else "value"
                shown = F.expr(f"hex(st_asbinary({inner}))")
            elif "variant" in kind:
                shown = F.to_json(F.struct("value"))
            found.append([row[0] for row in frame.select(shown).collect()])
        assert found[0] == found[1]
        assert 1 == len(found[0])


@pytest.mark.parametrize("name", TIES)
def test_the_smaller_row_by_content_is_kept(spark: SparkSession, name: str) -> None:
    """Two rows differ in one column alone."""
    check_one_is_kept(spark, *TIES[name])


@pytest.mark.parametrize("name", LATER_TIES)
def test_the_smaller_of_a_later_type_is_kept(spark: SparkSession, name: str) -> None:
    """Spark itself has no order for most of them."""
    release, *values = LATER_TIES[name]
    if spark.version < release:
        pytest.skip(f"the type came with Spark {release}")
    check_one_is_kept(spark, *values)


def test_a_frame_may_have_a_column_twice(spark: SparkSession) -> None:
    """After a join, or in two spellings, as Spark's own `dropDuplicates` takes it."""
    left = rows(spark, "1", "2")
    joined = left.join(left.select("id", F.lit(7).alias("VALUE"), F.lit(8).alias("value")), "id")
    for rule in RULES.values():
        found = rule.apply(joined)
        assert joined.columns == found.columns == ["id", "ts", "value", "VALUE", "value"]
        assert joined.dtypes == found.dtypes
        assert [("a", 1, 7, 8)] == [(row[0], *row[2:]) for row in found.collect()]


KEYS: Final[Mapping[str, tuple[str, str, str]]] = {
    "map": ("3.5", "map('a', 1)", "maps"),
    "class with a map": ("3.5", "named_struct('m', map('a', 1))", "maps"),
    "list of maps": ("3.5", "array(map('a', 1))", "maps"),
    "calendar interval": ("3.5", "make_interval(0, 1, 0, 2)", "intervals"),
    "variant": ("4.0", "parse_json('1')", "variants"),
    "geometry": ("4.1", f"st_geomfromwkb({WKB}40')", "geometries"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_spark_does_not_compare_is_refused(spark: SparkSession, name: str) -> None:
    """With what to take as the key."""
    release, key, what = KEYS[name]
    if spark.version < release:
        pytest.skip(f"the type came with Spark {release}")
    frame = rows(spark, "1", key=key)
    for rule in RULES.values():
        with pytest.raises(SchemaError, match=rf"(?s)`id` .* compare {what}\n\nHint: "):
            rule.apply(frame)
    if what != "maps":
        with pytest.raises(SchemaError, match=f"compare {what}"):
            tumbling("1 hour", event_time="ts", keys="id").agg(n="count(*)").apply(frame)
