"""What the columns of result rows say: found by their names and types, or named by the user."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit import SchemaError
from sessionkit._for_addons import explained, names_of

OWN: Final = (
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
"""Those that say what became of rows that aren't sessions; any but the first may be missing."""

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
"""The kind of column of each role, and the names by which it is found if the user names none."""


@explained()
@attrs.frozen(kw_only=True)
class Columns:
    """
    Which columns of result rows say what; None where no column does, and its figures are left out.

    Attributes:
        keys: Those that tell users apart: all before `session_id`, if not said. Users are counted;
            their keys don't get into the page.
        events: How many events a session has: a number.
        path: What a user saw, in order: a list of text.
        entry: The first of it: text. Left out, the first of `path`.
        exit: The last of it: text. Left out, the last of `path`.
        engaged: Whether the user did more than look: a bool.
        engaged_time: How long a user was active: an interval, or a number of seconds.
        bounce: Whether the user left at once: a bool. Left out, sessions of one event.
        converted: Whether the session led to what it should: a bool. Left out, the last step of
            `funnel`.
        number: Which session of its user it is, from 1: a number. Left out, the first one in the
            rows is that of a new user.
        dimension: What sessions are compared by, such as a channel: text. The page shows it.
        second_dimension: Another one; readers can filter by both.
        funnel: The steps of a funnel, in order: bools, each of which says whether a session got
            there.
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
        Return them with what the names of the columns say too.

        Raises:
            SchemaError: The rows have no sessions, or lack a column that is named, or it is of
                another kind.
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
        # A row has a key; so alone, `kind` is a column of the user's.
        keys = self.keys or tuple(name for name in before if name not in OWN) or tuple(before)
        if has_kinds(kinds, keys):
            for name in OF_REJECTED.keys() & kinds:
                _check(name, kinds, OF_REJECTED[name])
        for name in self.funnel:
            _check(name, kinds, "bool")
        roles: dict[str, Any] = {}
        for role, (kind, usual) in ROLES.items():
            given = getattr(self, role)
            if given is not None:
                _check(given, kinds, kind)
            likely = (name for name in usual if kinds.get(name, "none") in kind)
            roles[role] = given or next(likely, None)
        if self.funnel and not self.converted:
            roles["converted"] = None  # the last step of the funnel, with all before it
        roles["keys"] = keys
        return attrs.evolve(self, **roles)


def has_kinds(kinds: Mapping[str, Kind], keys: Collection[str]) -> bool:
    """Return whether rows are of several kinds; a key, or a result, may have a `kind` too."""
    names = list(kinds)
    if "kind" not in kinds or "kind" in keys:
        return False
    return "reason" in kinds or names.index("kind") < names.index("session_id")


def _check(name: str, kinds: Mapping[str, Kind], wanted: str | None = None) -> None:
    if name not in kinds:
        found = f"the rows have no column `{name}`; they have {', '.join(kinds)}"
        near = get_close_matches(name, kinds, n=1)
        hint = f"write `{near[0]}`" if near else "pass the rows that `sessionize` returns"
        raise SchemaError(found, hint)
    if wanted is not None and kinds[name] not in wanted:
        found = f"`{name}` must be a {wanted} column, found {kinds[name]}"
        raise SchemaError(found, "name another column, or cast this one")
