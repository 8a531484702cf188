"""A session of Connect whose paths don't exist."""

from typing import Any

from pyspark.errors import PySparkException


class NothingThere:
    """It looks for a path only once something is asked of a frame, unlike a session in a JVM."""

    @property
    def read(self) -> "NothingThere":
        return self

    @property
    def columns(self) -> list[str]:
        found = "[PATH_NOT_FOUND] Path does not exist"
        raise PySparkException(found)

    def load(self, *_: object) -> "NothingThere":
        return self

    format = parquet = schema = select = text = load

    def createDataFrame(self, rows: list[Any], schema: str) -> tuple[list[Any], str]:  # noqa: N802 - as Spark calls it
        return rows, schema
