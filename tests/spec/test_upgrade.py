"""`upgrade`: what can't lead to the present class is refused when the spec is made."""

from typing import Any

import attrs
import pytest

from sessionkit import FieldTypeError, SessionSpec, SpecError
from sessionkit import aggregates as agg
from tests.support.options import grouped, session_spec


@attrs.frozen
class View:
    url: str


@attrs.define
class VisitV1:
    pages: int = 0


@attrs.define
class VisitV2:
    views: int = 0


@attrs.define
class Visit:
    urls: list[str] = attrs.field(factory=list)

    def update(self, event: View) -> None:
        self.urls.append(event.url)

    def merge(self, other: "Visit") -> None:
        self.urls += other.urls


def from_v1(old: VisitV1) -> VisitV2:
    return VisitV2(old.pages)


def from_v2(old: VisitV2) -> Visit:
    return Visit(["?"] * old.views)


def at_once(old: VisitV1) -> Visit:
    return Visit(["?"] * old.pages)


def untyped(old: Any) -> Any:
    """Say nothing."""


def of_two(old: VisitV1, other: int) -> Visit:
    return Visit([str(old), str(other)])


RULES: dict[str, Any] = {
    "keys": {"user": str},
    "event_time": "at",
    "gap": "30m",
    "watermark_delay": "10m",
}


def spec(**more: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(Visit, **grouped(**RULES, **more))


def test_the_version_is_the_one_to_which_the_functions_lead() -> None:
    """It may be said too; the functions come in any order."""
    for made in (
        spec(upgrade={2: from_v2, 1: from_v1}),
        spec(upgrade={1: from_v1, 2: from_v2}, version=3),
    ):
        assert 3 == made.storage.version
        steps = [(step.version, step.old, step.new) for step in made.upgrade_steps]
        assert [(1, VisitV1, VisitV2), (2, VisitV2, Visit)] == steps
    assert (1, ()) == (spec().storage.version, spec().upgrade_steps)
    assert 3 == spec(upgrade={2: from_v2}).storage.version
    assert 2 == spec(upgrade={1: at_once}).storage.version


@pytest.mark.parametrize(
    ("more", "found", "hint"),
    [
        (
            {"upgrade": {1: from_v1, 3: from_v2}},
            "`upgrade` has the versions 1, 3, and `version` is 4",
            "it needs each version from the oldest up to 3",
        ),
        (
            {"upgrade": {1: at_once}, "version": 3},
            "`upgrade` has the versions 1, and `version` is 3",
            "it needs each version from the oldest up to 2",
        ),
        (
            {"upgrade": {1: at_once}, "version": 1},
            "`upgrade` has the versions 1, and `version` is 1",
            "it needs each version from the oldest up to 0",
        ),
        (
            {"upgrade": {1: at_once, 2: from_v2}},
            "`upgrade[1]` returns Visit, and `upgrade[2]` takes VisitV2",
            "let it return a VisitV2",
        ),
        (
            {"upgrade": {1: from_v1}},
            "`upgrade[1]` returns VisitV2, and the state is Visit",
            "let it return a Visit",
        ),
        (
            {"upgrade": {1: untyped}},
            "(tests.spec.test_upgrade.untyped) must say by an annotation which class it takes",
            "write `def from_v1(old: VisitV1) -> Visit: ...`",
        ),
        (
            {"upgrade": {1: of_two}},
            "(tests.spec.test_upgrade.of_two) must take the old state alone",
            "write `def from_v1(old: VisitV1) -> Visit: ...`",
        ),
        (
            {"upgrade": {0: at_once}},
            "`upgrade` must be a dict of versions from 1 and functions",
            "write upgrade={1: from_v1}",
        ),
        (
            {"upgrade": at_once},
            "`upgrade` must be a dict of versions from 1 and functions",
            "write upgrade={1: from_v1}",
        ),
    ],
)
def test_what_does_not_lead_to_the_present_class_is_refused(
    more: dict[str, Any], found: str, hint: str
) -> None:
    """A gap in the versions, classes that don't follow each other, functions that don't say."""
    with pytest.raises(SpecError) as refused:
        spec(**more)

    assert found in str(refused.value)
    assert str(refused.value).endswith(f"\n\nHint: {hint}")


def test_an_older_class_must_be_one_that_can_be_stored() -> None:
    """As it was when it was stored."""
    old = attrs.make_class("Old", {"what": attrs.field(type=set[str])})

    def from_old(old: Any) -> Visit:
        return Visit([str(old)])

    from_old.__annotations__["old"] = old
    with pytest.raises(FieldTypeError, match="`Old.what`"):
        spec(upgrade={1: from_old})


def test_aggregates_have_no_state_to_upgrade() -> None:
    """What they store isn't the user's."""
    with pytest.raises(SpecError, match="a spec of aggregates has no state of yours"):
        session_spec(
            timeout="30m",
            event=View,
            aggregates={"pages": agg.count()},
            upgrade={1: at_once},
            **{name: value for name, value in RULES.items() if name != "gap"},
        )
