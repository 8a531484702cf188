"""Find the columns of result rows that a report shows, by name and type."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit import SchemaError, SpecError
from sessionkit._for_addons import at_least_one, explained, names, names_of, text

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
Kind: TypeAlias = Literal[
    "number", "text", "bool", "time", "interval", "list", "map", "json", "other"
]
OF_REJECTED: Final[Mapping[str, Kind]] = {"kind": "text", "event_time": "time"}
"""The columns of rows that aren't sessions; all but the first may be missing."""

DURATION: Final = "number or interval"
ROLES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "events": ("number", ("events", "pages", "views", "hits", "clicks")),
    "views": ("map or json", ("views", "page_views", "pages")),
    "value": ("number", ("value", "revenue")),
    "path": ("list", ("path", "pages", "urls")),
    "entry": ("text", ("entry", "landing", "first_page")),
    "exit": ("text", ("exit", "last_page")),
    "engaged": ("bool", ("engaged", "is_engaged")),
    "engaged_time": (DURATION, ("engaged_time", "engaged_for")),
    "bounce": ("bool", ("bounce", "bounced", "is_bounce")),
    "converted": ("bool", ("converted", "is_conversion", "bought", "purchased")),
    "number": ("number", ("session_number",)),
}
"""The kind of column of each role, and its usual names."""


MOST_DIMENSIONS: Final = 6
CURRENCY: Final = re.compile("[A-Z]{3}")


def _currency(_: Any, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None and not CURRENCY.fullmatch(value):
        found = f"`currency` must be a code of three capital letters, found {value!r}"
        raise SpecError(found, 'write currency="EUR"')


@explained()
@attrs.frozen(kw_only=True)
class Columns:
    """
    Say which columns of result rows have the figures of a report.

    A column that you don't name is found by its usual names: it's the first of them that is a
    column of the right kind. A figure without a column is left out.

    Attributes:
        keys: The columns that identify a user: by default all before `session_id`. Users are
            counted; the page doesn't contain their keys.
        events: The number of events in a session. Usual names: `events`, `pages`, `views`, `hits`,
            `clicks`.
        views: The number of views of each page, as `agg.count_by` counts them: a map. Usual names:
            `views`, `page_views`, `pages`.
        value: What a session is worth: a number. Usual names: `value`, `revenue`.
        currency: The code of the currency that `value` is in, such as "EUR". The page then shows
            amounts in the format of the reader's country.
        path: The pages that a user saw, in order: a list of text. Usual names: `path`, `pages`,
            `urls`.
        path_at_most: How many pages `path` keeps: the `at_most` of `agg.path`. If a path
            is cut there, its exit page isn't known.
        entry: The first page: text. Usual names: `entry`, `landing`, `first_page`. Without a
            column, the first of `path`.
        exit: The last page: text. Usual names: `exit`, `last_page`. Without a column, the last of
            `path`.
        engaged: Whether the user engaged: a bool. Usual names: `engaged`, `is_engaged`.
        engaged_time: How long the user was active: an interval, or a number of seconds. Usual
            names: `engaged_time`, `engaged_for`.
        bounce: Whether the user left at once: a bool. Usual names: `bounce`, `bounced`,
            `is_bounce`. Without a column, sessions of one event.
        converted: Whether the session reached its goal: a bool. Usual names: `converted`,
            `is_conversion`, `bought`, `purchased`. With `funnel`, by default its last step.
        number: The number of the session among its user's, from 1. Usual name: `session_number`.
            Without a column, a user's first session in the rows counts as a new user's.
        dimensions: Texts by which to compare and filter sessions, such as a channel: at most 6. The
            page shows them.
        goals: Other goals that a session may reach, such as a subscription: a bool for each. The
            page shows how many sessions reach them, over time too.
        funnel: The number of steps that a session reached, as `agg.funnel` counts them; or a bool
            for each step, true if a session reached it.
        steps: The names of the steps that `funnel` counts, in order.

    Raises:
        SpecError: There are more than 6 dimensions, `currency` isn't three capital letters, or
            `steps` comes with several columns of `funnel`.
    """

    keys: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)
    events: str | None = attrs.field(default=None, validator=text)
    views: str | None = attrs.field(default=None, validator=text)
    value: str | None = attrs.field(default=None, validator=text)
    currency: str | None = attrs.field(default=None, validator=[text, _currency])
    path: str | None = attrs.field(default=None, validator=text)
    path_at_most: int = attrs.field(default=100, validator=at_least_one)
    entry: str | None = attrs.field(default=None, validator=text)
    exit: str | None = attrs.field(default=None, validator=text)
    engaged: str | None = attrs.field(default=None, validator=text)
    engaged_time: str | None = attrs.field(default=None, validator=text)
    bounce: str | None = attrs.field(default=None, validator=text)
    converted: str | None = attrs.field(default=None, validator=text)
    number: str | None = attrs.field(default=None, validator=text)
    dimensions: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)
    goals: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)
    funnel: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)
    steps: tuple[str, ...] = attrs.field(default=(), converter=names_of, validator=names)

    def __attrs_post_init__(self) -> None:
        if len(self.dimensions) > MOST_DIMENSIONS:
            found = f"`dimensions` has {len(self.dimensions)} columns, and at most 6 can be shown"
            raise SpecError(found, f"leave out {', '.join(self.dimensions[MOST_DIMENSIONS:])}")
        if self.steps and len(self.funnel) != 1:
            found = f"`steps` names what one column counts, and `funnel` has {len(self.funnel)}"
            raise SpecError(found, 'pass funnel="far" for the column of agg.funnel, or no `steps`')

    def found_in(self, kinds: Mapping[str, Kind]) -> "Columns":
        """
        Return the columns of a report on rows with such columns, those with usual names included.

        `report` calls it. `kinds` has the kind of each column by its name, such as `{"revenue":
        "number"}`.

        Raises:
            SchemaError: The rows have no sessions, or a named column is missing or of another kind.
        """
        _check_rows(kinds)
        for name in self.keys:
            _check(name, kinds)
        keys = self.keys or _keys_in(kinds)
        if has_kinds(kinds, keys):
            for name in OF_REJECTED.keys() & kinds:
                _check(name, kinds, OF_REJECTED[name])
        for name in self.dimensions:
            _check(name, kinds, "text")
        for name in self.goals:
            _check(name, kinds, "bool")
        self._check_funnel(kinds)
        roles: dict[str, Any] = {}
        for role, (kind, usual) in ROLES.items():
            column = getattr(self, role)
            if column is not None:
                _check(column, kinds, kind)
            likely = (name for name in usual if kinds.get(name, "none") in kind)
            roles[role] = column or next(likely, None)
        if self.currency and not roles["value"]:
            found = f"`currency` is {self.currency}, and no column has the amounts"
            raise SchemaError(found, 'name it: Columns(value="revenue", currency="EUR")')
        if self.funnel and not self.converted:
            roles["converted"] = None  # the last step of the funnel, with all before it
        roles["keys"] = keys
        return attrs.evolve(self, **roles)

    def _check_funnel(self, kinds: Mapping[str, Kind]) -> None:
        if len(self.funnel) == 1 and not self.steps and kinds.get(self.funnel[0]) == "number":
            found = f"`{self.funnel[0]}` counts the steps of a funnel, whose names aren't known"
            raise SchemaError(found, 'pass them too, in order: steps=["viewed", "bought"]')
        for name in self.funnel:
            _check(name, kinds, "number" if self.steps else "bool")


def _keys_in(kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the columns before `session_id`, which are the keys in the order of result rows."""
    names = list(kinds)
    place = names.index("session_id")
    before = names[:place]
    # Rows in another order, as of a table that was made by hand, have any columns there.
    if not before or names[place + 1 : place + 2] != ["session_start"]:
        found = "`session_id` isn't between the keys and `session_start`, so the keys aren't known"
        raise SchemaError(found, 'name the columns that identify a user: Columns(keys=["user"])')
    # A row has a key, so a lone `kind` is the user's column.
    return tuple(name for name in before if name not in RESERVED) or tuple(before)


def has_kinds(kinds: Mapping[str, Kind], keys: Collection[str]) -> bool:
    """Return whether rows are of several kinds: a key or a result may have a `kind`, too."""
    names = list(kinds)
    if "kind" not in kinds or "kind" in keys:
        return False
    return "reason" in kinds or names.index("kind") < names.index("session_id")


def _check_rows(kinds: Mapping[str, Kind]) -> None:
    """Check the columns that sessionkit adds."""
    _check("session_id", kinds)
    for name in ("session_start", "session_end", *({"last_event_time"} & kinds.keys())):
        _check(name, kinds, "time")
    if "revision" in kinds:
        _check("supersedes", kinds, "list")


def _check(name: str, kinds: Mapping[str, Kind], expected: str | None = None) -> None:
    if name not in kinds:
        found = f"the rows have no column `{name}`; they have {', '.join(kinds)}"
        near = get_close_matches(name, kinds, n=1)
        hint = f"write `{near[0]}`" if near else "pass the rows that `sessionize` returns"
        raise SchemaError(found, hint)
    if expected is not None and kinds[name] not in expected:
        found = f"`{name}` must be a {expected} column, found {kinds[name]}"
        raise SchemaError(found, "name another column, or cast this one")
