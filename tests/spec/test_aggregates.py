"""Specs from aggregates: what their construction refuses, and what it makes."""

import pickle
from datetime import datetime, timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from sessionkit import SessionSpec, SpecError, Storage
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver, at
from tests.support.refusals import refusal, says


@attrs.frozen
class View:
    kind: str
    seconds: float
    clicks: int | None
    is_paid: bool
    tags: list[str]


def spec_of(aggregates: Any, event: type[Any] = View, **rules: Any) -> SessionSpec[Any, Any, Any]:
    settings: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts"}
    settings |= {"watermark_delay": "1m", "gap": "1m", **rules}
    return SessionSpec.aggregate(event, aggregates, **settings)


IS_BUY = pc.field("kind") == "buy"


@pytest.mark.parametrize(
    ("aggregate", "found", "hint"),
    [
        (agg.sum("secnds"), "View has no field `secnds`", "write `seconds`"),
        (agg.sum("zzz"), "no field `zzz`", "it has kind, seconds, clicks, is_paid, tags"),
        (agg.sum("kind"), "`View.kind` is none of int, float", "add up an int"),
        (agg.sum("is_paid"), "`View.is_paid` is none", 'count(where="is_paid")'),
        (agg.mean("kind"), "neither an int nor a float", "use a number"),
        (agg.stddev("kind"), "neither an int nor a float", "use a number"),
        (agg.percentile("kind", 0.5), "none of int, float, timedelta", "a field that is a number"),
        (agg.count_by("seconds"), "`View.seconds` is a float, which can't be the key", "use `top`"),
        (agg.top("seconds", 2, counts=True), "is a float, which can't be", "leave `counts` out"),
        (agg.first("tags"), "a collection or a class", "use a field of a plain type"),
        (agg.count(where=pc.field("knd") == "buy"), "View has no field `knd`", "write `kind`"),
        (agg.count(where="is_payd"), "View has no field `is_payd`", "write `is_paid`"),
        (agg.count(where="kind = 'buy'"), "no field `kind = 'buy'`", 'pc.field("page") =='),
        (agg.sum("seconds + 1"), "no field `seconds + 1`", "add a computed column before"),
        (agg.count(where="kind"), "`View.kind` is not a bool", 'pc.field("kind") == ...'),
        (agg.count(where=pc.field("clicks")), "is int64, neither true nor false", "compare it"),
        (agg.count(where=pc.field("clicks") == "x"), "does not fit the fields of View", "compare"),
        (agg.any(pc.field("clicks")), "`any` is clicks, which is int64", "compare it"),
        (agg.all("seconds"), "`all` is 'seconds', and `View.seconds` is not a bool", "compare"),
        ("count(*)", "must be an aggregate, found 'count(*)'", 'write {"x": agg.count()}'),
    ],
)
def test_what_does_not_fit_the_event_is_refused(aggregate: Any, found: str, hint: str) -> None:
    """A typo or a wrong type is an error on the driver, with the one thing to change."""
    text, _, hinted = refusal(spec_of, {"x": aggregate}).partition("\n\nHint: ")

    assert says(text, found, "`x`")
    assert hint in hinted


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda: agg.sum(3), "`sum` takes the name of a field, as text, found 3"),  # type: ignore[arg-type]
        (lambda: agg.collect(None), "`collect` takes the name of a field, as text, found None"),  # type: ignore[arg-type]
        (lambda: agg.duration(were="is_paid"), r"no argument `were`\n\nHint: did you mean `where="),  # type: ignore[call-arg]
        (lambda: agg.duration("ts"), r"duration takes nothing without a name, found 1"),  # type: ignore[call-arg]
        (lambda: agg.any(True), "`any` takes a condition, found True"),  # noqa: FBT003
        (lambda: agg.count(where=False), "`where` takes an expression"),
        (lambda: agg.collect("kind", at_most=0), "`at_most` must be a whole number from 1"),
    ],
)
def test_what_is_no_aggregate_is_refused_where_it_is_made(made: Any, found: str) -> None:
    """What needs no event class is checked at once."""
    with pytest.raises(SpecError, match=found):
        made()


@pytest.mark.parametrize(
    ("aggregates", "rules", "found"),
    [
        ({}, {}, "`aggregates` must be a dict of names and aggregates, found {}"),
        ({"a b": agg.count()}, {}, "'a b' can't be the name of a field"),
        ({"class": agg.count()}, {}, "'class' can't be the name of a field"),
        ({"self": agg.count()}, {}, "'self' can't be the name of a field"),
        ({"user": agg.count()}, {}, "two columns named `user`"),
        ({"n": agg.count()}, {"order": "event_time"}, "has no effect on a spec of aggregates"),
        ({"n": agg.count()}, {"timeout": "1m"}, "`gap` and `timeout` are the same"),
    ],
)
def test_what_does_not_go_together_is_refused(aggregates: Any, rules: Any, found: str) -> None:
    """Aggregates take the place of all functions, and need no order."""
    assert found in refusal(spec_of, aggregates, **rules)


@pytest.mark.parametrize(
    "rule",
    ["validator", "converter", "__attrs_pre_init__", "__attrs_post_init__", "__post_init__"],
)
def test_an_event_class_with_rules_of_its_own_is_refused(rule: str) -> None:
    """No event is built, so a validator would not run; that is said rather than left out."""
    given: dict[str, Any] = {"validator": attrs.validators.ge(0), "converter": int}
    options = {rule: given[rule]} if rule in given else {}
    fields = {"number": attrs.field(type=int, **options)}
    body = {rule: lambda self: None} if rule.startswith("__") else {}
    event = attrs.make_class("Checked", fields, class_body=body)

    with pytest.raises(SpecError, match=f"has .*{rule}.*no event is built"):
        spec_of({"n": agg.sum("number")}, event)


@pytest.mark.parametrize("logic", [None, {"update": len}, View])
def test_a_session_needs_functions_or_aggregates(logic: Any) -> None:
    """A spec with neither is refused."""
    with pytest.raises(SpecError, match="`logic` must say how sessions are folded, found"):
        SessionSpec(
            keys={"user": str}, event_time="ts", logic=logic, timeout="1m", watermark_delay="1m"
        )


def test_the_result_has_the_types_of_the_event() -> None:
    """A field is Optional only if it is in the event class, or if a filter may leave nothing."""
    typed: dict[str, tuple[Any, Any]] = {
        "pages": (agg.count(), int),
        "seconds": (agg.sum("seconds"), float),
        "least": (agg.min("seconds"), float),
        "least_buy": (agg.min("seconds", where=IS_BUY), float | None),
        "clicks": (agg.first("clicks"), int | None),
        "mean": (agg.mean("seconds"), float),
        "kinds": (agg.count_distinct("kind"), int | None),
        "path": (agg.collect("kind"), list[str]),
        "bought": (agg.any(IS_BUY), bool),
        "far": (agg.funnel([IS_BUY]), int | None),
        "when": (agg.funnel_times(agg.funnel([IS_BUY])), list[datetime] | None),
        "kind_path": (agg.path("kind"), list[str]),
        "steps": (agg.steps("kind", "view", "buy"), int | None),
        "top": (agg.top("clicks", 3), list[int] | None),
        "counts": (agg.top("clicks", 3, counts=True), dict[int, int] | None),
        "by_kind": (agg.count_by("kind"), dict[str, int]),
        "median": (agg.percentile("clicks", 0.5), float | None),
        "engaged": (agg.engaged_time(cap="10s"), timedelta),
        "is_bounce": (agg.count() < 2, bool),
        "lasted": (agg.duration(where=IS_BUY), timedelta | None),
        "few": (agg.count(at_most=3), int),
        "spread": (agg.stddev("seconds"), float | None),
        "variance": (agg.stddev("seconds", population=True, variance=True), float),
        "took": (agg.funnel_times(agg.funnel([IS_BUY] * 2), between=("1", "2")), timedelta | None),
    }
    spec = spec_of({name: aggregate for name, (aggregate, _) in typed.items()})

    expected = {name: kind for name, (_, kind) in typed.items()}
    assert expected == {field.name: field.type for field in attrs.fields(spec.result)}


@pytest.mark.parametrize("counted", [agg.count_by("seconds"), agg.top("seconds", 2, counts=True)])
def test_floats_are_not_counted_by_value(counted: Any) -> None:
    """They would be keys of a map, and NaN isn't equal to itself; `top` may list them."""
    with pytest.raises(SpecError, match="float"):
        spec_of({"x": counted})
    assert "x" in spec_of({"x": agg.top("seconds", 2)}).result_fields[-1].name


@attrs.frozen
class Visit:
    """A result class of the user's own, its fields in another order."""

    seconds: float | None
    pages: int


def test_a_class_of_ones_own_gives_typed_rows() -> None:
    """A field may be Optional where the aggregate isn't."""
    spec = spec_of({"pages": agg.count(), "seconds": agg.sum("seconds")}, result=Visit)

    assert (Visit, Visit) == (spec.result, spec.state)


@pytest.mark.parametrize(
    ("aggregates", "found"),
    [
        ({"pages": agg.count()}, "Visit has the fields seconds, pages; the aggregates are pages"),
        (
            {"pages": agg.count(), "seconds": agg.first("kind")},
            "`Visit.seconds` has another type than `first('kind')`\n\nHint: write `seconds: str`",
        ),
    ],
)
def test_a_class_of_ones_own_must_fit(aggregates: Any, found: str) -> None:
    """Its fields are those of the aggregates, with their types."""
    assert found in refusal(spec_of, aggregates, result=Visit)


def test_specs_of_equal_aggregates_are_equal_here_and_on_an_executor() -> None:
    """The class that is made for equal fields is one, and expressions are compared as written."""
    one = spec_of({"buys": agg.count(where=pc.field("kind") == "buy")})
    same = spec_of({"buys": agg.count(where=pc.field("kind") == "buy")})
    other = spec_of({"buys": agg.count(where=pc.field("kind") == "sell")})

    assert same == one
    assert other != one
    sent = cloudpickle.dumps(one)  # type: ignore[no-untyped-call]  # bundled without annotations
    assert one == pickle.loads(sent)  # noqa: S301 (bytes of this test)
    assert attrs.evolve(one, storage=Storage(bucket_count=8)).result is one.result


@attrs.frozen
class Geo:
    country: str


@attrs.frozen
class Placed:
    kind: str
    geo: Geo | None


@pytest.mark.parametrize("field", [("geo", "country"), (("geo", "country"),)])
def test_a_condition_reads_a_field_of_a_nested_class(field: tuple[Any, ...]) -> None:
    """Where the nested object is missing, the condition is null, and selects no event."""
    german = pc.field(*field) == "DE"
    driver = SessionDriver(spec_of({"german": agg.count(where=german)}, Placed))
    for place in (Geo("DE"), Geo("FR"), None, Geo("DE")):
        driver.add("ann", at("10:00"), Placed("view", place))
    driver.run_batch()
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()

    assert [2] == [row.german for row in driver.take_results()]


@pytest.mark.parametrize(
    ("aggregate", "found", "hint"),
    [
        (agg.count(where=pc.field("goe", "country") == "DE"), "no field `goe`", "write `geo`"),
        (agg.any(pc.field("geo", "land") == "DE"), "No match for", "the nested class has"),
        (agg.first("geo.country"), "no field `geo.country`", 'pc.field("geo", "country")'),
        (agg.sum("geo.country"), "no field `geo.country`", 'withColumn("country", F.col("geo.'),
        (agg.count("geo.nope.x"), "no field `geo.nope.x`", "add a computed column before"),
        (agg.count_distinct("*"), "no field `*`", "agg.count() counts all events"),
        (agg.count(where="*"), "no field `*`", "agg.count() counts all events"),
        (agg.any(pc.field(1) == "DE"), "reads a field by its place", 'pc.field("page")'),
    ],
)
def test_a_name_that_is_a_path_or_a_star_says_what_to_write(
    aggregate: Any, found: str, hint: str
) -> None:
    """A path may be in a condition; an aggregate takes a field of the event itself."""
    text = refusal(spec_of, {"x": aggregate}, Placed)

    assert found in text.partition("\n\nHint: ")[0]
    assert hint in text.partition("\n\nHint: ")[2]
