"""What the functions of `sessionkit.aggregates` return."""

from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import attrs
import pyarrow.compute as pc

from sessionkit._instants import duration_text
from sessionkit.errors import SpecError, with_hint

Condition: TypeAlias = str | pc.Expression
"""
The name of a bool field of the event class, or a pyarrow expression over its fields.

`"is_view"`, or `pc.field("kind") == "view"`. Arrow computes it for all events of a micro-batch at
once. Where it is null, the event isn't chosen. A spec raises a `SpecError` for a field that the
event class doesn't have, and for an expression that isn't a bool.
"""

Kind: TypeAlias = Literal[
    "count",
    "sum",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "count_distinct",
    "collect",
    "any",
    "all",
    "duration",
    "holds",
    "funnel",
    "funnel_times",
    "path",
    "engaged_time",
    "steps",
    "top",
    "rate",
    "percentile",
]

MOST_STEPS: Final = 32
"""As in ClickHouse."""
MOST_CAPS: Final = 100_000
RELATIVE_ERRORS: Final = (0.0001, 0.5)


@attrs.frozen
class Aggregate:
    """
    One aggregate of a session. The functions of `sessionkit.aggregates` make it.

    Attributes:
        kind: The name of the function.
        of: The field that it is of; the condition, for `any`, `all` and `holds`; None for all
            events.
        where: Which events are chosen; None for all.
        at_most: How many values or instants are kept, where there is a limit.
        parts: The aggregates that the condition of `holds` is over, by their names there.
        is_from_now: Whether sessions that were open before it was added have none of their earlier
            events in it.
        steps: The conditions of a funnel, by the names of its steps.
        within: How long after its first step a funnel goes on, None for as long as the session; how
            long engaged time is counted after the first event.
        strict: Whether no other event may come between the steps of a funnel.
        cap: How much of the time after an event is engaged time.
        n: How many of the most frequent values are listed.
        per: The time that a rate is of.
        between: The value that a step leaves, and the one that it leads to.
        share: How large a part of the values is at most a percentile.
        relative_error: How far a percentile may be from a value, as a part of that value.
    """

    kind: Kind
    # Expressions have no `==` that compares them: it makes a third one.
    of: Condition | None = attrs.field(default=None, eq=repr)
    where: Condition | None = attrs.field(default=None, eq=repr)
    at_most: int | None = None
    parts: tuple[tuple[str, "Aggregate"], ...] = ()
    is_from_now: bool = False
    steps: tuple[tuple[str, Condition], ...] = attrs.field(default=(), eq=repr)
    within: timedelta | None = None
    strict: bool = False
    cap: timedelta | None = None
    n: int | None = None
    per: timedelta | None = None
    between: tuple[Any, Any] | None = None
    share: float | None = None
    relative_error: float | None = None

    def from_now(self) -> "Aggregate":
        """
        Return the aggregate as one that is added to a query with a checkpoint.

        A session that is open then has it of its later events alone; every later session has it of
        all events. So its result may be None where that of no event is. Keep this for as long as
        the checkpoint lives.

        Raises:
            SpecError: It is of the session as a whole: `duration` or `rate`, alone or in `holds`.
        """
        if self.kind in {"duration", "rate"}:
            found = f"`{self.kind}` is of a whole session, so it can't begin with later events"
            raise SpecError(with_hint(found, "add it in a query with a new checkpoint"))
        parts = tuple((name, part.from_now()) for name, part in self.parts)
        return attrs.evolve(self, parts=parts, is_from_now=True)

    def __attrs_post_init__(self) -> None:
        """Check what needs no event class."""
        takes_condition = self.kind in {"any", "all", "holds"}
        if not isinstance(self.of, Condition if takes_condition else str | None):
            wanted = "a condition" if takes_condition else "the name of a field, as text"
            hint = f'write {self.kind}("seconds")'
            hint = f'write {self.kind}(pc.field("kind") == "buy")' if takes_condition else hint
            found = f"`{self.kind}` takes {wanted}, found {self.of!r}"
            raise SpecError(with_hint(found, hint))
        if not isinstance(self.where, Condition | None):
            found = f"`where` takes an expression or the name of a bool field, found {self.where!r}"
            raise SpecError(with_hint(found, 'write where=pc.field("kind") == "buy"'))
        if self.kind == "holds":
            self._check_parts()
        if self.kind in {"funnel", "funnel_times"}:
            self._check_steps()
        caps = 0 if self.cap is None or self.within is None else -(-self.within // self.cap)
        if caps > MOST_CAPS:
            found = f"`within` may be at most {MOST_CAPS:,} times `cap`, found {self.within!s}"
            raise SpecError(with_hint(found, "what is stored grows with it; take a longer `cap`"))
        if self.at_most is not None and (type(self.at_most) is not int or self.at_most < 1):
            found = f"`at_most` must be a whole number from 1, found {self.at_most!r}"
            raise SpecError(with_hint(found, "leave it out for the default"))
        if self.kind == "top" and not (type(self.n) is int and 1 <= self.n <= (self.at_most or 0)):
            found = f"`n` must be a whole number from 1 to `at_most`, found {self.n!r}"
            raise SpecError(with_hint(found, 'write top("page", 3)'))
        if self.between is not None and self.between[0] == self.between[1]:
            found = f"`steps` takes two different values, found {self.between[0]!r} twice"
            raise SpecError(with_hint(found, "a value that repeats is one of the path"))
        if self.kind == "percentile":
            self._check_percentile()

    def _check_parts(self) -> None:
        parts: tuple[tuple[str, object], ...] = self.parts
        for name, part in parts:
            if not isinstance(part, Aggregate) or part.parts:
                found = f"`holds`: `{name}` must be an aggregate of events, found {part!r}"
                raise SpecError(with_hint(found, f"write {name}=agg.count()"))
        if not self.parts:
            found = "`holds` takes the aggregates that its condition is over, found none"
            raise SpecError(with_hint(found, 'write holds(pc.field("n") > 1, n=agg.count())'))

    def _check_steps(self) -> None:
        steps: tuple[tuple[object, object], ...] = self.steps
        hint = 'write funnel({"viewed": pc.field("kind") == "view", "bought": "is_sale"})'
        if not 1 <= len(self.steps) <= MOST_STEPS:
            found = f"`{self.kind}` takes 1 to {MOST_STEPS} steps, found {len(self.steps)}"
            raise SpecError(with_hint(found, hint))
        for name, condition in steps:
            if not (isinstance(name, str) and isinstance(condition, Condition)):
                found = f"`{self.kind}`: step {name!r} must be a condition, found {condition!r}"
                raise SpecError(with_hint(found, hint))
        if type(self.strict) is not bool:
            found = f"`strict` must be True or False, found {self.strict!r}"
            raise SpecError(with_hint(found, "leave it out for events in between"))

    def _check_percentile(self) -> None:
        least, most = RELATIVE_ERRORS
        for name, value, low, high, hint in (
            ("share", self.share, 0, 1, 'write percentile("seconds", 0.95)'),
            ("relative_error", self.relative_error, least, most, "leave it out for the default"),
        ):
            if type(value) not in {int, float} or not low <= (value or 0) <= high:
                found = f"`{name}` must be a number from {low} to {high}, found {value!r}"
                raise SpecError(with_hint(found, hint))

    def __str__(self) -> str:
        """Return it as it is written, without its filter."""
        of = "" if self.of is None else repr(self.of) if isinstance(self.of, str) else str(self.of)
        limit = "" if self.at_most is None else f", at_most={self.at_most}"
        parts = "".join(f", {name}={part}" for name, part in self.parts)
        steps = ", ".join(name for name, _ in self.steps)
        cap = "" if self.cap is None else f"cap={duration_text(self.cap)!r}"
        per = "" if self.per is None else repr(duration_text(self.per))
        more = "" if self.n is None else f", {self.n}"
        more += "" if self.share is None else f", {self.share}"
        more += "".join(f", {value!r}" for value in self.between or ())
        return f"{self.kind}({of}{more}{steps}{cap}{per}{limit}{parts})"
