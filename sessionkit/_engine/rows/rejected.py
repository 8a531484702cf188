"""The rows that are no results: events that no fold processes, and sessions without a row."""

from collections.abc import Mapping, Sequence

import attrs
import pyarrow as pa

from sessionkit._arrays import Mask
from sessionkit.spec.functions import Failure


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
