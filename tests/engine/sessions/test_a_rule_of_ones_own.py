"""
A rule that the package doesn't have: all of it stands here, and nothing else knows it.

By `max_step`, an event whose number is further from the session's last one starts a new session.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import nan
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionkit import SessionRules, SessionSpec, SpecError
from sessionkit._arrays import Array, Mask
from sessionkit._engine.sessions.features.rules import rule_text
from sessionkit.aggregates._events import type_in
from sessionkit.state._collections import forms_of, inner_type
from sessionkit.state._scalars import FloatType, IntType
from sessionkit.testing import SessionDriver
from sessionkit.timeouts._rule import Joined, Readings, Rule, RuleInput, event_fields
from sessionkit.timeouts._rules import OpensWith
from sessionkit.timeouts._session_rules import RULES, rules_in_use
from tests.support.naive_rules import Click, Cut, OwnRule, naive_cuts, never
from tests.support.ruled_sessions import (
    GAP,
    Fussy,
    Values,
    does_not_fit,
    in_any_order,
    in_order,
    sequences,
    spec_of,
    timelines,
    told,
)
from tests.support.timelines import STORAGES, batches


@attrs.frozen
class MaxStep(Rule):
    """Of values `1 null 7 NaN 2`, a null and NaN, both NaN here, say nothing."""

    name: ClassVar = "max_step"
    code: ClassVar = 100
    needs_order: ClassVar = True
    most: Mapping[str, float]

    @property
    def text(self) -> str:
        steps = [f"`{name}` by more than {most:g}" for name, most in self.most.items()]
        return f"an event differs in {' or '.join(steps)}"

    def check(self, event: type[Any]) -> None:
        for name in self.most:
            kind = inner_type(type_in(event, name, f"`max_step` names `{name}`, no field"))
            if not isinstance(kind, IntType | FloatType):
                found = f"`max_step` names `{name}`, which isn't a number"
                raise SpecError(found, "name an int or a float")

    def identity(self, event: type[Any]) -> dict[str, Any]:
        fields = event_fields(event, [*self.most])
        return {"steps": [forms_of(fields), [*self.most.values()]]}

    def fields(self, event: type[Any]) -> Sequence[pa.Field]:
        every = event_fields(event, [*self.most])
        return [pa.field(f"last.{one.name}", one.type.arrow) for one in every]

    def stored(self, rows: RuleInput, sessions: Joined) -> Mapping[str, pa.Array]:
        found = dict[str, pa.Array]()
        for name in self.most:
            values, there = _values(rows, name), ~np.isnan(_numbers(rows, name))
            found[f"last.{name}"] = rows.last(values, there, sessions)
        return found

    def read(self, rows: RuleInput) -> Sequence[Array]:
        return [_numbers(rows, name)[rows.order] for name in self.most]

    def may_fire(self, columns: Sequence[Array], later: Mask, sessions: Joined) -> Mask:
        marked = np.zeros(len(sessions.start), np.bool_)
        for values, most in zip(columns, self.most.values(), strict=True):
            step = sessions.reduced(np.fmax, values) - sessions.reduced(np.fmin, values)
            marked |= step > most
        return marked

    def begins_next(self, known: Any, readings: Readings) -> bool:
        limits = list(self.most.values())
        return any(
            abs(value - last) > most
            for values in readings
            for value, last, most in zip(values, known, limits, strict=True)
        )

    def after(self, known: Any, readings: Readings) -> Any:
        for values in readings:
            both = zip(values, known or values, strict=True)
            known = [old if np.isnan(new) else new for new, old in both]
        return known


def _values(rows: RuleInput, name: str) -> pa.Array:
    return rows.values(f"last.{name}", f"event.{name}")


def _numbers(rows: RuleInput, name: str) -> Array:
    found: Array = _values(rows, name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


@attrs.frozen
class RulesWithSteps(SessionRules):
    """Rules with one more, at its place in the order in which they count."""

    max_step: Mapping[str, float] = attrs.field(factory=dict, kw_only=True)

    @cached_property
    def in_use(self) -> tuple[Rule, ...]:
        before = {"max_duration", "idle"}
        own = rules_in_use(self)
        first = [rule for rule in own if rule.name not in before]
        return (*first, MaxStep(self.max_step), *(rule for rule in own if rule.name in before))


def begins(cut: Cut, instant: Sequence[Click]) -> bool:
    """Say it of the model: more than 2 from the last value."""
    return any(abs(one.value - cut.values[-1]) > 2 for one in instant)


STEP = OwnRule("max_step", "changes_of", begins)


@given(data=st.data())
@pytest.mark.parametrize(("state", "fails"), [(Values, never), (Fussy, does_not_fit)])
def test_a_rule_of_ones_own_cuts_as_the_model_does(
    state: Any, fails: Callable[[Sequence[int], int], bool], data: st.DataObject
) -> None:
    """Together with all other rules, in any order of arrival, and where events fail."""
    sequence = data.draw(sequences)
    events = [event._replace(gap=GAP) for event in data.draw(timelines(sequence))]
    others: dict[str, Any] = {**data.draw(in_any_order), **data.draw(in_order)}
    rules = RulesWithSteps(GAP, max_step={"value": 2}, **others)
    cut = data.draw(batches(events, 6 * GAP))
    options = {"on_error": "reject", "watermark_delay": 6 * GAP, **data.draw(STORAGES)}
    spec = spec_of(rules, aggregated=False, state=state, sequence=sequence, **options)
    outside = list[Click]()
    cuts = naive_cuts(events, rules, fails, STEP, outside)

    rows, kinds = told(spec, cut, restart=data.draw(st.booleans()))

    found = [
        (r.key.key, r.session_start, r.session_end, r.result.values, r.closed_by) for r in rows
    ]
    assert [one.seen for one in cuts] == found
    assert len(kinds) == len(events) - sum(len(one.values) for one in cuts)
    assert kinds.count("outside") == len(outside)


@attrs.frozen
class Ride:
    km: float | None
    name: str = ""


@attrs.define
class Trip:
    kms: list[float | None] = attrs.field(factory=list)

    def update(self, event: Ride) -> None:
        self.kms.append(event.km)


def trips(rules: SessionRules) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(
        Trip,
        keys={"user": str},
        event_time="ts",
        timeout=rules,
        watermark_delay="1 minute",
        order="event_time",
    )


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_rule_of_ones_own_stores_goes_from_batch_to_batch(whole: bool) -> None:
    """The last value that isn't null or NaN; a step as long as the limit doesn't cut."""
    start = datetime(2026, 3, 7, 23, 0, tzinfo=UTC)
    driver, rows = SessionDriver(trips(RulesWithSteps("30 minutes", max_step={"km": 5}))), []
    for minute, km in enumerate([1, 6, None, nan, 11, 5.9, 12.5]):
        driver.add("ann", start + timedelta(minutes=minute), Ride(km))
        if not whole:
            driver.run_batch()
            rows += driver.take_rows()
            driver.advance_watermark_to(start + timedelta(minutes=minute, seconds=1))
            driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.run_batch()
    driver.advance_watermark_to(start + timedelta(days=1))
    driver.run_until_idle()
    rows += driver.take_rows()
    assert ["max_step", "max_step", "gap"] == [row.closed_by for row in rows]
    assert ["1 6 None nan 11", "5.9", "12.5"] == [
        " ".join(f"{km:g}" if km is not None else "None" for km in row.result.kms) for row in rows
    ]


def test_a_rule_of_ones_own_is_checked_with_the_spec_and_described() -> None:
    """Also that it needs an order; and it has a code that no other rule has."""
    rules = RulesWithSteps("30 minutes", max_step={"km": 5})
    assert ("max_step",) == rules.in_order
    assert "an event differs in `km` by more than 5" == rule_text(trips(rules), "max_step")
    with pytest.raises(SpecError, match="`name`, which isn't a number"):
        trips(RulesWithSteps("30 minutes", max_step={"name": 5}))
    assert MaxStep.code not in {OpensWith.code, *(rule.code for rule in RULES)}
