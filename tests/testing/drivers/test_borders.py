"""What a driver makes of the odd values of each type: they come through, or are refused."""

from typing import Any

import attrs
import pytest

from sessionkit import SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit.errors import DriverError
from sessionkit.testing import SessionDriver
from tests.support.borders import (
    ABSENT,
    EQUAL,
    IN,
    KINDS,
    MISFITS,
    NULL,
    QUARANTINED,
    REFUSED,
    RULES,
    SPEC,
    START,
    VALUES,
    Everything,
    Misfit,
    Value,
    plain,
    stored,
)


def outcomes(driver: SessionDriver[Any, Any, Any]) -> dict[str, str]:
    """Return what became of each value, after a restart over the open sessions."""
    driver.run_batch()
    driver = SessionDriver.restore(SPEC, driver.snapshot())
    driver.add("end", START.replace(year=2027), Everything())
    driver.run_until_idle()
    found = {row.key.row: row.result for row in driver.take_rows()}
    assert all(rejection.reason for rejection in driver.take_rejections())
    return {value.row: outcome(value, found.get(value.row)) for value in VALUES}


def outcome(value: Value, result: Any) -> str:
    if result is None:
        return QUARANTINED
    values = attrs.asdict(result, recurse=False)
    own = values.pop(value.kind)
    assert {None} == {*values.values()}
    if own is None:
        return NULL
    assert type(value.python) is type(own)
    kind = KINDS[value.kind].annotation
    return EQUAL if plain(value.stored) == plain(stored(own, kind)) else "another value"


def said(name: str) -> dict[str, str]:
    return {value.row: IN[name].of(value) for value in VALUES}


def test_every_event_comes_out_of_the_state_as_it_was() -> None:
    """As objects of the same class, and the two zeros and NaN as themselves."""
    driver = SessionDriver(SPEC)
    for value in VALUES:
        driver.add(value.row, START, Everything(**{value.kind: value.python}))

    assert said("`add`, and state") == outcomes(driver)


@pytest.mark.parametrize("form", ["python", "stored"])
def test_every_row_comes_out_of_the_state_as_it_was(form: str) -> None:
    """With the values of a column of Spark, or those of Python; NaN is null, as in pandas."""
    driver = SessionDriver(SPEC)
    for value in VALUES:
        driver.add_row({"row": value.row, "ts": START, value.kind: getattr(value, form)})

    assert said("`add_row`") == outcomes(driver)


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.row)
def test_what_a_type_does_not_hold_is_refused(misfit: Misfit) -> None:
    """Or quarantined, with the name of its field, of an event and a row; NaN of a row is null."""
    if misfit.python is not ABSENT:
        event = Everything(**{misfit.kind: misfit.python})
        assert misfit.kind in reason("add", "row", START, event)
    for value in (misfit.python, misfit.column):
        if value is ABSENT or misfit.name == "NaN":
            continue
        row = {"row": "row", "ts": START, misfit.kind: value}
        assert misfit.kind in reason("add_row", row)


def reason(method: str, *arguments: Any) -> str:
    """Return why an event is refused or quarantined."""
    driver = SessionDriver(SPEC)
    try:
        getattr(driver, method)(*arguments)
    except DriverError as error:
        return str(error)
    driver.run_batch()
    (rejection,) = driver.take_rejections("quarantined")
    return rejection.reason


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_comes_out_of_the_state_as_it_was(kind: str) -> None:
    """A session for each value; types of which equal values may differ in bytes are no keys."""
    rules: Any = {**RULES, "keys": {kind: KINDS[kind].annotation}, "order": "arrival"}

    def spec() -> Any:
        return SessionSpec.aggregate(Everything, {"n": agg.count()}, **rules)

    if IN["key"].kinds.get(kind) == REFUSED:
        with pytest.raises(SpecError):
            spec()
        return
    driver = SessionDriver(spec())
    values = [value.python for value in VALUES if value.kind == kind]
    for value in values:
        driver.add(value, START, Everything(**{kind: value}))
    driver.run_batch()
    driver = SessionDriver.restore(driver.spec, driver.snapshot())
    driver.advance_watermark_to(START.replace(year=2027))
    driver.run_until_idle()

    assert sorted(map(repr, values)) == sorted(
        repr(getattr(r.key, kind, r.key)) for r in driver.take_rows()
    )
