"""Conditions that can't mean what they say: None, NaN, and a text where a list is meant."""

import enum
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sessionkit import SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons.presets import ga4_engaged, posthog
from sessionkit.aggregates._events import check_condition
from tests.support.refusals import refusal, says


class Kind(enum.Enum):
    VIEW = "v"
    BUY = "b"


@attrs.frozen
class View:
    page: str
    price: float | None = None
    number: int | None = None
    bought: bool | None = None
    nan: float = 0.0
    null: int = 0
    sex: Literal["m", "f"] = "m"
    kind: Kind = Kind.VIEW


PAGE, PRICE, NUMBER = pc.field("page"), pc.field("price"), pc.field("number")
NONE, NAN = pa.scalar(None), float("nan")
WITH_NONE: list[Any] = [
    PRICE != None,  # noqa: E711 (the mistake)
    PRICE == None,  # noqa: E711
    ~(PRICE == None),  # noqa: E711
    (PAGE == "/") & (PRICE != None),  # noqa: E711
    (PAGE == '(null["') | (NUMBER > None),
    pc.less(NUMBER, None),
    pa.scalar(None) == PRICE,
    PRICE == pa.scalar(None, pa.float64()),
    NUMBER == pa.scalar(None, pa.decimal128(5, 2)),
    PRICE == pc.scalar(None).cast("float64"),
    NUMBER + None > 1,
    (PAGE == "/") & None,
    pc.field("bought") | None,
    pc.xor(pc.field("bought"), pc.scalar(None)),
    pc.scalar(pa.scalar(None, pa.bool_())),
    pc.if_else(PRICE == None, pc.scalar(False), pc.scalar(True)),  # noqa: E711, FBT003
    pc.field("null") == None,  # noqa: E711
]
WITH_NAN: list[Any] = [
    PRICE == NAN,
    PRICE != NAN,
    ~(PRICE < -NAN),
    PRICE == pc.scalar(NAN).cast("float32"),
    (PAGE == "nan") & (PRICE != NAN),
]
AS_LISTS: list[Any] = [
    PAGE.isin("/a"),
    ~PAGE.isin("buy"),
    (PRICE > 1) & PAGE.isin("a page that has more characters than Arrow shows"),
    pc.index_in(PAGE, pa.array([*"/a"])) >= 0,
    PAGE.isin('"\\'),
    pc.field("sex").isin("mx"),
]
SOUND: list[Any] = [
    PRICE.is_null() | PRICE.is_valid(),
    PRICE.is_nan(),
    PAGE == "null[double]",
    PAGE == 'a "quoted" (nan) \\',
    pc.field("nan") == 1.0,
    pc.field("null") == 1,
    pc.if_else(pc.field("bought"), pc.scalar(None), NUMBER) == 1,
    pc.if_else(pc.field("bought"), pc.scalar(None).cast("int64"), NUMBER) == 1,
    pc.coalesce(PRICE, pa.scalar(None, pa.float64())) > 1,
    NUMBER.isin([1, None]),
    PAGE.isin(['5" nan', "null["]) & (PAGE == "nan"),
    pc.field("bought"),
    PRICE.isin([1.0, NAN]) & (PAGE == "nan"),
    PRICE.isin([1.0, NAN]) & (PRICE > 2.0),
    PAGE.isin(["/a"]),
    PAGE.isin(["a"]),
    PAGE.isin(["a", "/a"]),
    PAGE.isin(["a", None]),
    pc.field("sex").isin(["m", "f"]),
    pc.field("kind").isin(["v", "b"]),
    PAGE.isin(pa.array(["a", "b"], pa.large_string())),
    PAGE == pa.scalar("a", pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize("condition", WITH_NONE, ids=str)
def test_a_comparison_with_none_is_refused(condition: Any) -> None:
    """It is null for every event, so no event would be selected."""
    text = refusal(check_condition, View, "`n`: `where`", condition)
    assert says(text, "`n`: `where` is ", "with None", "is_valid(), or .is_null()")


@pytest.mark.parametrize("condition", WITH_NAN, ids=str)
def test_a_comparison_with_nan_is_refused(condition: Any) -> None:
    """It is met by no event, or by all."""
    text = refusal(check_condition, View, "`where`", condition)
    assert says(text, "compares with NaN", 'pc.field("price").is_nan()')


@pytest.mark.parametrize("condition", AS_LISTS, ids=str)
def test_a_text_where_a_list_is_meant_is_refused(condition: Any) -> None:
    """Arrow takes each character as a value; so single characters need a type that has them."""
    text = refusal(check_condition, View, "`where`", condition)
    assert says(text, "as with a text in place of a list", "write isin([")


@pytest.mark.parametrize("condition", SOUND, ids=str)
def test_what_asks_for_nulls_or_makes_something_of_them_passes(condition: Any) -> None:
    """So do names and texts that only look like these."""
    check_condition(View, "`where`", condition)


def test_the_hint_names_the_field_that_is_compared() -> None:
    """Of several that are read."""
    text = refusal(check_condition, View, "`where`", (PAGE == "/") & (PRICE != None))  # noqa: E711
    expected = (
        '`where` is ((page == "/") and (price != null[null])), which compares with None, which '
        "gives null for every event: it selects none"
        '\n\nHint: write pc.field("price").is_valid(), or .is_null()'
    )
    assert expected == text


def rules(**conditions: Any) -> SessionSpec[Any, Any, Any]:
    ruled = SessionRules("30m", **conditions)
    settings: dict[str, Any] = {"event_time": "ts", "watermark_delay": "0s", "timeout": ruled}
    if "opens_with" not in conditions and "extends" not in conditions:
        settings["order"] = "event_time"
    return SessionSpec.aggregate(View, {"n": agg.count()}, keys={"user": str}, **settings)


def counted(**aggregates: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {"event_time": "ts", "watermark_delay": "0s", "gap": "30m"}
    return SessionSpec.aggregate(View, aggregates, keys={"user": str}, **settings)


TAKERS: dict[str, Callable[[Any], Any]] = {
    "where": lambda asked: counted(n=agg.count(where=asked)),
    "where of a sum": lambda asked: counted(n=agg.sum("number", where=asked)),
    "where in an expression": lambda asked: counted(n=agg.count() - agg.count(where=asked)),
    "any": lambda asked: counted(n=agg.any(asked)),
    "all": lambda asked: counted(n=agg.all(asked)),
    "a step of a funnel": lambda asked: counted(n=agg.funnel({"a": asked, "b": PAGE == "/b"})),
    "not_between": lambda asked: counted(
        n=agg.funnel({"a": PAGE == "/a", "b": PAGE == "/b"}, not_between=asked)
    ),
    "until": lambda asked: rules(until=asked),
    "starts_with": lambda asked: rules(starts_with=asked),
    "opens_with": lambda asked: rules(opens_with=asked),
    "extends": lambda asked: rules(extends=asked),
    "a preset": lambda asked: counted(engaged=ga4_engaged(page_view=asked)),
    "a preset of rules": lambda asked: rules(opens_with=posthog(opens_with=asked).opens_with),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_each_place_that_takes_a_condition_refuses_these(taker: str) -> None:
    """And takes one that asks for what is meant."""
    for condition in (WITH_NONE[0], WITH_NAN[0], AS_LISTS[0]):
        assert says(refusal(TAKERS[taker], condition), "Hint: write ")
    assert TAKERS[taker](PRICE.is_valid())
