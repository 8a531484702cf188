"""A merge that computes and doesn't assign is told by the driver that calls it first."""

import warnings
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sessionkit import Functions, SessionSpec
from sessionkit.testing import SessionDriver, at


@attrs.define
class View:
    page: str = "/"


@attrs.define
class Visit:
    pages: list[str] = attrs.field(factory=list)
    first: str = ""


def update(state: Visit, event: View) -> None:
    state.pages.append(event.page)
    state.first = state.first or event.page


def merged(merge: Any, *pages: str) -> SessionDriver[Any, Any, Any]:
    """Run two events, and one between them, which merges their sessions."""
    logic: Any = Functions(update=update, merge=merge, event=View, state=Visit)
    rules: dict[str, Any] = {"event_time": "ts", "gap": "10m", "watermark_delay": "1h"}
    driver: SessionDriver[Any, Any, Any] = SessionDriver(
        SessionSpec(logic=logic, keys={"user": str}, **rules)
    )
    for page, minute in zip(pages, (0, 15, 8), strict=True):
        driver.add("ann", at("10:00") + timedelta(minutes=minute), View(page))
        driver.run_batch()
    driver.advance_watermark_to(at("12:00"))
    driver.run_until_idle()
    return driver


def copies(left: Visit, right: Visit) -> None:
    left.pages.copy()


def maps(left: Visit, right: Visit) -> None:
    [page.strip() for page in left.pages + right.pages]


def asks(left: Visit, right: Visit):  # type: ignore[no-untyped-def]  # noqa: ANN201
    left.first.join(right.pages)


class Method:
    @staticmethod
    def replaces(left: Visit, right: Visit) -> None:
        left.first.replace(left.first, right.first)


@pytest.mark.parametrize("merge", [copies, maps, asks, Method.replaces])
def test_a_merge_without_effect_warns(merge: Any) -> None:
    """Whatever its annotation says: the right session would be lost."""
    driver = merged(merge, "/a", "/b", "/c")
    with pytest.warns(UserWarning, match=r"`merge` .* has left its state as it was in its call"):
        driver.take_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [] == driver.take_rows()


def extends(left: Visit, right: Visit) -> None:
    left.pages.extend(right.pages)


def adds_new(left: Visit, right: Visit) -> None:
    left.pages.extend(page for page in right.pages if page not in left.pages)


def adds_longer(left: Visit, right: Visit) -> None:
    left.pages.extend(page for page in right.pages if len(page) > max(map(len, left.pages)))


def keeps_left(left: Visit, right: Visit) -> Visit:
    len(left.pages)
    return left


def ignores(left: Visit, right: Visit) -> None:
    """Keep the session that began first."""


@pytest.mark.parametrize("merge", [extends, adds_new, adds_longer, keeps_left, ignores])
@pytest.mark.parametrize("pages", [("/a", "/b", "/c"), ("/long", "/a", "/c"), ("/a", "/a", "/a")])
def test_a_merge_that_has_nothing_to_add_does_not_warn(merge: Any, pages: Any) -> None:
    """It adds something the other way round, or to a new state; or it returns what it keeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 1 == len(merged(merge, *pages).take_rows())
