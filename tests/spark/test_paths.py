"""Whether a folder is another one, or lies where who reads that finds its files."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionkit.spark._logs import root_of
from sessionkit.spark._paths import check_path, folder_of, is_read_with
from sessionkit.spark.sinks.values import Files
from tests.support.refusals import refusal, says


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/visits", "/data/visits/"),
        ("/data/visits", "file:/data/visits"),
        ("/data/visits", "file:///data/visits/"),
        ("/data/visits", "/data//x/../visits"),
        ("/data/visits", Path("/data/visits")),
        ("a folder", f"{Path.cwd()}/a folder"),
        ("s3://bucket/visits", "s3a://bucket/visits/"),
        ("hdfs://host:9000/visits", "HDFS://host:9000/x/../visits"),
    ],
)
def test_a_folder_is_known_however_it_is_written(one: Any, other: Any) -> None:
    """With a scheme or without, from here or from the root, with a slash at the end."""
    assert folder_of(one) == folder_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/data/visits", "/data/Visits"),
        ("/data/a b", "/data/a%20b"),
        ("s3://bucket/visits", "s3://other/visits"),
        ("s3://bucket/visits", "/bucket/visits"),
        ("hdfs://host/visits", "hdfs://other/visits"),
    ],
)
def test_another_folder_is_another_one(one: str, other: str) -> None:
    """Spark takes a `%20` as it stands, too."""
    assert folder_of(one) != folder_of(other)


HDFS = "hdfs://host:8020"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("/data/visits", "hdfs://host:8020/data/visits/", True),
        ("/data/x/../visits", "hdfs:///data/visits", True),
        ("hdfs:/data/visits", "hdfs://host:8020/data/visits", True),
        ("/data/visits", "file:/data/visits", False),
        ("/data/visits", "hdfs://other:8020/data/visits", False),
        ("/data/visits", "s3://host:8020/data/visits", False),
    ],
)
def test_a_path_without_a_scheme_is_in_the_default_file_system(
    one: str, other: str, *, is_same: bool
) -> None:
    """Spark reads it there, rather than from this machine."""
    assert is_same == (folder_of(one, HDFS) == folder_of(other, HDFS))


def test_spark_says_its_default_file_system(spark: SparkSession) -> None:
    """It names it before a path that isn't there."""
    assert "file:" == root_of(spark)


def test_a_link_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    """Also where the folder below it isn't there yet."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert folder_of(tmp_path / "real" / "in") == folder_of(tmp_path / "link" / "in")


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("/in", "/in", True),
        ("/in/out", "/in", True),
        ("/in/a/b", "/in", True),
        ("/input", "/in", False),
        ("/", "/in", False),
        ("/in/_checkpoint", "/in", False),
        ("/in/.hidden/x", "/in", False),
        ("/_in/x", "/_in", True),
        ("/data/out", "/data/*", True),
        ("/data/out/x", "/data/o*", True),
        ("/data/out", "/data/*/*", False),
        ("/data/out", "/data/i*", False),
        ("s3a://bucket/in/out", "s3://bucket/in", True),
        ("s3a://bucket/out", "s3://bucket/in", False),
    ],
)
def test_what_is_in_a_folder_is_read_with_it(inner: str, outer: str, *, expected: bool) -> None:
    """Unless Spark leaves it out by its name; a source may be a glob."""
    assert expected == is_read_with(folder_of(inner), folder_of(outer))


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("C:\\data\\cp", "is a path of Windows"),
        ("c:/data/cp", "is a path of Windows"),
        ("~/cp", "begins with `~`"),
        ("", "must be the path of a folder"),
        (7, "must be the path of a folder"),
    ],
)
def test_a_path_of_another_system_is_refused(path: Any, fact: str) -> None:
    """Spark has a bare Java error for one, and makes a folder of another name for the next."""
    assert says(refusal(check_path, path, "`checkpoint`"), "`checkpoint`", fact, repr(path))
    assert says(refusal(Files, "parquet", path), "`path` of Files", fact)


@pytest.mark.parametrize("path", ["/a b", "a:b", "s3a://b/c", "~x", "dbfs:/x", Path("/x")])
def test_any_other_path_is_taken(path: Any) -> None:
    """Whatever scheme it has."""
    check_path(path, "`checkpoint`")
