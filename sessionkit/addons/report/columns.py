"""Find the columns of result rows that a report shows, by name and type."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit import SchemaError
from sessionkit._for_addons import explained, names_of

RESERVED: Final = (
    "kind",
    "session_id",
    "session_start",
    "session_end",
    "last_event_time",
    "closed_by",
    "revision",
    "is_final",
    "supersedes",
    "reason",
)
"""The columns that sessionkit adds."""
Kind: TypeAlias = Literal["number", "text", "bool", "time", "interval", "list", "other"]
OF_REJECTED: Final[Mapping[str, Kind]] = {"kind": "text", "event_time": "time"}
"""The columns of rows that aren't sessions; all but the first may be missing."""

DURATION: Final = "number or interval"
ROLES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "events": ("number", ("events", "pages", "views", "hits", "clicks")),
    "path": ("list", ("path", "pages", "urls")),
    "entry": ("text", ("entry", "landing", "first_page")),
    "exit": ("text", ("exit", "last_page")),
    "engaged": ("bool", ("engaged", "is_engaged")),
    "engaged_time": (DURATION, ("engaged_time", "engaged_for")),
    "bounce": ("bool", ("bounce", "bounced", "is_bounce")),
    "converted": ("bool", ("converted", "is_conversion", "bought", "purchased")),
    "number": ("number", ("session_number",)),
    "dimension": ("text", ()),
    "second_dimension": ("text", ()),
}
"""The kind of column of each role, and its usual names."""


@explained()
@attrs.frozen(kw_only=True)
class Columns:
    """
    The columns of result rows for the figures of a report; None leaves a figure out.

    Attributes:
        keys: The columns that identify a user: by default all before `session_id`. Users are
            counted; the page doesn't contain their keys.
        events: The number of events in a session.
        path: The pages that a user saw, in order: a list of text.
        entry: The first page: text. By default the first of `path`.
        exit: The last page: text. By default the last of `path`.
        engaged: Whether the user engaged: a bool.
        engaged_time: How long the user was active: an interval, or a number of seconds.
        bounce: Whether the user left at once: a bool. By default, sessions of one event.
        converted: Whether the session reached its goal: a bool. By default the last step of
            `funnel`.
        number: The number of the session among its user's, from 1. By default, a user's first
            session in the rows counts as a new user's.
        dimension: The text by which to compare sessions, such as a channel. The page shows it.
        second_dimension: A second dimension; readers can filter by both.
        funnel: The steps of a funnel, in order: bools, true if a session reached the step.
    """

    keys: tuple[str, ...] = attrs.field(default=(), converter=names_of)
    events: str | None = None
    path: str | None = None
    entry: str | None = None
    exit: str | None = None
    engaged: str | None = None
    engaged_time: str | None = None
    bounce: str | None = None
    converted: str | None = None
    number: str | None = None
    dimension: str | None = None
    second_dimension: str | None = None
    funnel: tuple[str, ...] = attrs.field(default=(), converter=names_of)

    def found_in(self, kinds: Mapping[str, Kind]) -> "Columns":
        """
        Return the columns, with those that have usual names added.

        Raises:
            SchemaError: The rows have no sessions, or a named column is missing or of another kind.
        """
        names = list(kinds)
        for name in ("session_id", *self.keys):
            _check(name, kinds)
        _check("session_start", kinds, "time")
        for name in ("session_end", *({"last_event_time"} & kinds.keys())):
            _check(name, kinds, "time")
        if "revision" in kinds:
            _check("supersedes", kinds, "list")
        before = names[: names.index("session_id")]
        # A row has a key, so a lone `kind` is the user's column.
        keys = self.keys or tuple(name for name in before if name not in RESERVED) or tuple(before)
        if has_kinds(kinds, keys):
            for name in OF_REJECTED.keys() & kinds:
                _check(name, kinds, OF_REJECTED[name])
        for name in self.funnel:
            _check(name, kinds, "bool")
        roles: dict[str, Any] = {}
        for role, (kind, usual) in ROLES.items():
            column = getattr(self, role)
            if column is not None:
                _check(column, kinds, kind)
            likely = (name for name in usual if kinds.get(name, "none") in kind)
            roles[role] = column or next(likely, None)
        if self.funnel and not self.converted:
            roles["converted"] = None  # the last step of the funnel, with all before it
        roles["keys"] = keys
        return attrs.evolve(self, **roles)


def has_kinds(kinds: Mapping[str, Kind], keys: Collection[str]) -> bool:
    """Return whether rows are of several kinds: a key or a result may be called `kind` too."""
    names = list(kinds)
    if "kind" not in kinds or "kind" in keys:
        return False
    return "reason" in kinds or names.index("kind") < names.index("session_id")


def _check(name: str, kinds: Mapping[str, Kind], expected: str | None = None) -> None:
    if name not in kinds:
        found = f"the rows have no column `{name}`; they have {', '.join(kinds)}"
        near = get_close_matches(name, kinds, n=1)
        hint = f"write `{near[0]}`" if near else "pass the rows that `sessionize` returns"
        raise SchemaError(found, hint)
    if expected is not None and kinds[name] not in expected:
        found = f"`{name}` must be a {expected} column, found {kinds[name]}"
        raise SchemaError(found, "name another column, or cast this one")
