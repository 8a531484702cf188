"""`upgrade`: what leads to the present class, and what can't."""

from typing import Any

import attrs
import pytest

from sessionkit import SessionSpec, SpecError, Storage
from sessionkit import aggregates as agg
from tests.support.refusals import refusal, says


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


def forgetful(old: VisitV1) -> Visit:  # type: ignore[return]
    Visit(["?"] * old.pages)


def of_two(old: VisitV1, other: int) -> Visit:
    return Visit([str(old), str(other)])


def spec(**storage: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(
        Visit,
        keys={"user": str},
        event_time="at",
        gap="30m",
        watermark_delay="10m",
        storage=Storage(**storage),
    )


@pytest.mark.parametrize(
    ("storage", "facts"),
    [
        ({"upgrade": {1: from_v1, 3: from_v2}}, ["versions 1, 3", "`version` is 4"]),
        ({"upgrade": {1: at_once}, "version": 3}, ["versions 1", "`version` is 3"]),
        ({"upgrade": {1: at_once}, "version": 1}, ["versions 1", "`version` is 1"]),
        ({"upgrade": {1: at_once, 2: from_v2}}, ["`upgrade[1]` returns Visit", "VisitV2"]),
        ({"upgrade": {1: from_v1}}, ["`upgrade[1]` returns VisitV2", "Visit"]),
        ({"upgrade": {1: untyped}}, ["`upgrade[1]`", "untyped", "annotation", "takes"]),
        ({"upgrade": {1: forgetful}}, ["`upgrade[1]`", "forgetful", "-> Visit", "returns nothing"]),
        ({"upgrade": {1: of_two}}, ["`upgrade[1]`", "of_two", "alone"]),
        ({"upgrade": {0: at_once}}, ["`upgrade`", "versions from 1"]),
        ({"upgrade": at_once}, ["`upgrade`", "dict"]),
    ],
)
def test_what_does_not_lead_to_the_present_class_is_refused(
    storage: dict[str, Any], facts: list[str]
) -> None:
    """A gap in the versions, classes that don't follow each other, functions that don't say."""
    assert says(refusal(spec, **storage), *facts)


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


def test_an_older_class_must_be_one_that_can_be_stored() -> None:
    """As it was when it was stored."""
    old = attrs.make_class("Old", {"what": attrs.field(type=set[str])})

    def from_old(old: Any) -> Visit:
        return Visit([str(old)])

    from_old.__annotations__["old"] = old
    with pytest.raises(SpecError, match="`Old.what`"):
        spec(upgrade={1: from_old})


def test_only_a_state_of_the_users_is_upgraded() -> None:
    """What aggregates and events store isn't theirs."""
    shared: dict[str, Any] = {"keys": {"user": str}, "event_time": "at", "gap": "30m"}
    shared |= {"watermark_delay": "10m", "storage": Storage(upgrade={1: at_once})}
    for make in (
        lambda: SessionSpec.aggregate(View, {"pages": agg.count()}, **shared),
        lambda: SessionSpec.per_event(View, **shared),
    ):
        assert says(refusal(make), "has no state class")
