"""The sink as a value; it needs Delta Lake only when a query starts."""

import os

import attrs

from sessionkit.errors import SpecError, with_hint
from sessionkit.spark.sinks.names import names_or_none

__all__ = ["Delta"]


@attrs.frozen
class Delta:
    """
    A table of Delta Lake, to which each row is written exactly once. Needs the extra `delta`.

    The table is made if there is none. Each micro-batch is one transaction, which carries the id of
    the query, the kind of the rows and the number of the micro-batch: Delta leaves out one that the
    table has already.

    Attributes:
        table: The name of a table, or the path of one: a path has a `/`, or is a `Path`.
        key: The columns by which a row replaces an earlier one. By default it is `session_id` for
            sessions; other rows are added. Of a session that gives several revisions, the rows of
            the highest one stay, and none that another row `supersedes`.

    Raises:
        SpecError: There is no name.
    """

    table: str | os.PathLike[str] = attrs.field()
    key: tuple[str, ...] | None = attrs.field(default=None, converter=names_or_none)

    @table.validator
    def _check_table(self, _: object, value: str | os.PathLike[str]) -> None:
        if not os.fspath(value):
            found = "`table` must be the name or the path of a table, found ''"
            raise SpecError(with_hint(found, 'write Delta("visits") or Delta("/tables/visits")'))

    @property
    def is_path(self) -> bool:
        """Whether the table is named by its path."""
        return not isinstance(self.table, str) or "/" in self.table

    @property
    def identifier(self) -> str:
        """What SQL calls the table."""
        place = os.fspath(self.table)
        if not self.is_path:
            return place
        escaped = place.replace("`", "``")
        return f"delta.`{escaped}`"
