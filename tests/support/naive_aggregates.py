"""Aggregates that anyone can check by eye: plain Python over the list of a session's events."""

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import Annotated, Any, Final

import attrs
import pyarrow.compute as pc

from sessionkit import EventTimeGap, Functions, Session, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.state import DecimalType
from tests.support.naive_expressions import Kind, naive


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Act:
    """An event with a field of every plain type, some Optional."""

    kind: str
    number: int
    maybe: int | None
    weight: float
    light: float | None
    is_good: bool
    is_bad: bool | None
    at: datetime | None
    day: date
    spent: timedelta
    price: Annotated[Decimal, DecimalType(9, 2)]
    rebate: Decimal | None
    colour: Colour
    raw: bytes | None
    gap: timedelta


IS_BUY: Final = pc.field("kind") == "buy"
STEPS: Final = {"seen": pc.field("kind") == "see", "good": "is_good", "bought": IS_BUY}
FUNNELS: Final = {
    "far": agg.funnel(STEPS),
    "far_soon": agg.funnel(STEPS, within="5 seconds"),
    "far_strictly": agg.funnel(STEPS, strict=True),
    "far_of_bad": agg.funnel([IS_BUY, "is_good", IS_BUY], where="is_bad", strict=True),
    "far_in_two": agg.funnel(STEPS, at_most=2, within="10 seconds"),
    "far_in_two_strictly": agg.funnel(["is_bad", "is_good"], at_most=2, strict=True),
    "far_again": agg.funnel(STEPS, strict=["order", "increase"], allow_reentry=True),
    "far_without_repeats": agg.funnel(STEPS, strict="deduplication"),
    "far_without_bad": agg.funnel(STEPS, not_between="is_bad", strict="increase", at_most=3),
    "far_from_bad": agg.funnel(
        ["is_good", IS_BUY, "is_good"], strict="order", not_between="is_bad"
    ),
}
AGGREGATES: Final[dict[str, Any]] = {
    "events": agg.count(),
    "known": agg.count("maybe"),
    "buys": agg.count(where=IS_BUY),
    "number": agg.sum("number"),
    "maybe": agg.sum("maybe", where=IS_BUY),
    "weight": agg.sum("weight"),
    "spent": agg.sum("spent"),
    "price": agg.sum("price", where="is_good"),
    "rebate": agg.sum("rebate"),
    "mean_number": agg.mean("number"),
    "mean_light": agg.mean("light", where=pc.field("number") > 0),
    "least": agg.min("number"),
    "most": agg.max("maybe"),
    "least_weight": agg.min("weight"),
    "most_light": agg.max("light", where="is_bad"),
    "least_light": agg.min("light"),
    "least_kind": agg.min("kind"),
    "most_price": agg.max("price"),
    "most_raw": agg.max("raw"),
    "most_day": agg.max("day", where=IS_BUY),
    "least_spent": agg.min("spent"),
    "most_at": agg.max("at"),
    "is_any_good": agg.max("is_good"),
    "first_kind": agg.first("kind"),
    "last_kind": agg.last("kind"),
    "first_maybe": agg.first("maybe"),
    "last_weight": agg.last("weight"),
    "last_light": agg.last("light", where=IS_BUY),
    "first_at": agg.first("at"),
    "first_day": agg.first("day"),
    "last_colour": agg.last("colour", where="is_good"),
    "last_rebate": agg.last("rebate"),
    "kinds": agg.count_distinct("kind"),
    "few_numbers": agg.count_distinct("number", at_most=2),
    "weights": agg.count_distinct("weight", where=IS_BUY),
    "colours": agg.count_distinct("colour"),
    "all_kinds": agg.collect("kind"),
    "two_maybe": agg.collect("maybe", at_most=2),
    "prices": agg.collect("price", where=IS_BUY),
    "lights": agg.collect("light"),
    "path": agg.path("kind"),
    "short_path": agg.path("light", at_most=3),
    "path_of_buys": agg.path("maybe", where=IS_BUY),
    "engaged": agg.engaged_time(cap="5 seconds"),
    "engaged_briefly": agg.engaged_time(cap="7 seconds", within="16 seconds"),
    "engaged_in_buys": agg.engaged_time(cap="5 seconds", within="15 seconds", where=IS_BUY),
    "steps": agg.steps("kind", "see", "buy"),
    "steps_of_numbers": agg.steps("light", math.nan, 0.0, at_most=3, where="is_good"),
    "steps_of_colours": agg.steps("colour", Colour.RED, Colour.BLUE),
    "top_kind": agg.top("kind", 1),
    "top_weights": agg.top("weight", 2, where=IS_BUY),
    "top_colours": agg.top("colour", 9),
    "top_few": agg.top("maybe", 2, at_most=2),
    "top_counts": agg.top("day", 2, counts=True, at_most=3),
    "by_kind": agg.count_by("kind"),
    "by_number": agg.count_by("number", at_most=2, rest=2, where="is_good"),
    "by_maybe": agg.count_by("maybe", at_most=1),
    "by_colour": agg.count_by("colour", at_most=1, rest=Colour.BLUE, where=IS_BUY),
    "median": agg.percentile("number", 0.5),
    "upper": agg.percentile("light", 0.8, where="is_good"),
    "median_in_two": agg.percentile("weight", 0.5, relative_error=0.5, at_most=2),
    "spent_mostly": agg.percentile("spent", 0.9),
    "rate": agg.count() / (agg.duration() / timedelta(minutes=1)),
    "rate_of_buys": agg.count(where=IS_BUY) / (agg.duration() / timedelta(seconds=1)),
    "entry": agg.first("raw"),
    "exit": agg.last("kind", where="is_good"),
    "is_bounce": (agg.count() < 3) & (agg.duration() < timedelta(seconds=5)),
    "is_bounce_of_good": agg.count(where="is_good") < 2,
    "any_buy": agg.any(IS_BUY),
    "any_bad": agg.any("is_bad"),
    "all_good": agg.all("is_good", where=IS_BUY),
    "all_bad": agg.all("is_bad"),
    "lasted": agg.duration(),
    "is_engaged": presets.ga4_engaged(page_view=IS_BUY, key_event="is_bad"),
    "is_viewed": presets.ga4_engaged(page_view="is_good", longer_than="4 seconds"),
    "is_dear": ((agg.max("light") > 100.0) & agg.any("is_good")).fill_null(value=False),
    "span": agg.max("number") - agg.min("number"),
    "squared": agg.sum("number") * agg.sum("number"),
    "ratio": agg.sum("maybe") / agg.count("maybe"),
    "paid_each": agg.sum("price") / agg.count(),
    "back": agg.sum("rebate") - agg.sum("price") * 2,
    "share_spent": agg.sum("spent") / agg.duration(where=IS_BUY),
    "until": agg.max("at") - agg.duration(),
    "least_of_all": agg.least(agg.min("number"), agg.max("maybe"), agg.max("light")),
    "most_of_all": agg.greatest(agg.min("number"), agg.max("maybe"), agg.max("light")),
    "deviation": agg.stddev("weight"),
    "variance": agg.stddev("light", variance=True, population=True, where="is_good"),
    "lasted_in_buys": agg.duration(where=IS_BUY),
    "few": agg.count(at_most=2),
    "took": agg.funnel_times(FUNNELS["far"], between=("seen", "bought")),
    "took_strictly": agg.funnel_times(FUNNELS["far_strictly"], between=("good", "bought")),
    "most_soon": agg.most_within("5 seconds"),
    "most_buys": agg.most_within("10 seconds", at_most=2, where=IS_BUY),
    "most_good": agg.most_within("1 microsecond", at_most=3, where="is_bad"),
    "three_soon_at": agg.reached_within(3, "10 seconds"),
    "two_buys_at": agg.reached_within(2, "5 seconds", where=IS_BUY),
    "first_bad_at": agg.reached_within(1, "5 seconds", where="is_bad"),
    "soon": agg.counts_within("5 seconds"),
    "soon_of_three": agg.counts_within("15 seconds", at_most=3, where="is_good"),
    "good_time": agg.time_between("is_good", IS_BUY),
    "good_time_of_bad": agg.time_between("is_good", IS_BUY, where="is_bad", at_most=2),
    "bad_time": agg.time_between("is_bad", pc.field("kind") == "see", at_most=3),
    "bad_share": agg.time_between("is_bad", "is_good") / agg.duration(),
    **{f"{name}_next": agg.funnel_next(funnel, "kind") for name, funnel in FUNNELS.items()},
    "far_next_light": agg.funnel_next(FUNNELS["far"], "light", where="is_good"),
    "far_next_maybe": agg.funnel_next(FUNNELS["far_of_bad"], "maybe", where=IS_BUY),
    **FUNNELS,
    **{f"{name}_at": agg.funnel_times(funnel) for name, funnel in FUNNELS.items()},
}
FIELDS: Final[dict[str, Kind]] = {
    "number": "int",
    "maybe": "int",
    "weight": "float",
    "light": "float",
    "spent": "span",
    "at": "instant",
    "kind": "str",
    "is_good": "bool",
    "is_bad": "bool",
    "colour": "Colour",
    "price": (9, 2),
    "rebate": (38, 18),
}
"""The types of the fields that expressions are over."""
RESULTS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("count", "funnel", "count_distinct", "steps", "most_within"), "int"),
    **dict.fromkeys(("mean", "stddev"), "float"),
    **dict.fromkeys(("duration", "engaged_time", "funnel_times", "time_between"), "span"),
    **dict.fromkeys(("any", "all"), "bool"),
}
"""The types of aggregates whose type isn't the type of their field."""

Moment = tuple[datetime, int]
"""The time of an event, and its place in the sequence of its instant: 0 without a sequence."""
Pair = tuple[Moment, Act]
Values = list[tuple[Moment, Any]]


def _is_buy(event: Act) -> bool:
    return event.kind == "buy"


ZEROS: Final[dict[Any, Any]] = {"weight": 0.0, "spent": timedelta(0)}
CONDITIONS: Final[dict[str, Callable[[Act], bool | None]]] = {
    repr(STEPS["seen"]): lambda event: event.kind == "see",
    repr(None): lambda event: True,
    repr(IS_BUY): _is_buy,
    repr("is_good"): lambda event: event.is_good,
    repr("is_bad"): lambda event: event.is_bad,
    repr(pc.field("number") > 0): lambda event: event.number > 0,
}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _compared(left: Any, right: Any) -> int:
    """Compare values; NaN is equal to itself and greater than all numbers."""
    nans = [isinstance(value, float) and math.isnan(value) for value in (left, right)]
    if any(nans):
        return nans[0] - nans[1]
    left, right = _plain(left), _plain(right)
    return int(left > right) - int(left < right)


by_value = cmp_to_key(_compared)


def _in_order(values: Values) -> list[Any]:
    return [value for _, value in sorted(values, key=lambda pair: (pair[0], by_value(pair[1])))]


def _distinct(values: list[Any], most: int) -> int | None:
    found: list[Any] = []
    for value in values:
        if not any(_compared(value, other) == 0 for other in found):
            found.append(value)
    return len(found) if len(found) <= most else None


def _engaged(aggregate: Any, events: Sequence[Pair]) -> timedelta:
    chosen = [at for (at, _), act in events if CONDITIONS[repr(aggregate.where)](act)]
    within = aggregate.within or timedelta()
    times = sorted(min(at, min(chosen) + within) for at in chosen)
    gaps = [after - before for before, after in pairwise(times)]
    return sum((min(gap, aggregate.cap or gap) for gap in gaps), timedelta())


def _listed(kind: str, values: list[Any]) -> list[Any]:
    if kind == "collect" or not values:
        return values
    return [values[0], *(after for before, after in pairwise(values) if _compared(before, after))]


def _steps(values: list[Any], aggregate: Any) -> int | None:
    pairs = [
        [_compared(value, end) for value, end in zip(pair, aggregate.between or (), strict=True)]
        for pair in pairwise(_listed("path", values))
    ]
    return None if len(values) > (aggregate.at_most or 0) else pairs.count([0, 0])


def _grouped(values: list[Any]) -> list[list[Any]]:
    """Return the lists of values that are equal, the least first."""
    found: list[list[Any]] = []
    for value in sorted(values, key=by_value):
        if found and _compared(found[-1][0], value) == 0:
            found[-1].append(value)
        else:
            found.append([value])
    return found


def _top(values: list[Any], aggregate: Any) -> Any:
    found = sorted(_grouped(values), key=len, reverse=True)
    if len(found) > aggregate.at_most:
        return None
    listed = {equal[0]: len(equal) for equal in found[: aggregate.n]}
    return listed if aggregate.counts else list(listed)


def _count_by(values: list[Any], aggregate: Any) -> dict[Any, int]:
    found = _grouped(values)
    counts = {equal[0]: len(equal) for equal in found[: aggregate.at_most]}
    others = sum(map(len, found[aggregate.at_most :]))
    if others and aggregate.rest is not None:
        counts[aggregate.rest] = counts.get(aggregate.rest, 0) + others
    return counts


def middle(value: float, relative_error: float) -> float:
    """Return what stands for the bin of a value; NaN, zero and the infinities do for theirs."""
    if value == 0 or not math.isfinite(value):
        return float(value)
    gamma = (1 + relative_error) / (1 - relative_error)
    power = math.ceil(math.log(abs(value)) / math.log(gamma))
    return math.copysign(2 * gamma**power / (gamma + 1), value)


def _percentile(values: list[Any], aggregate: Any) -> Any:
    """Round each value, take the one at the rank, and leave it out if it's too low."""
    if not values:
        return None
    micro = timedelta(microseconds=1)
    numbers = [value / micro if isinstance(value, timedelta) else value for value in values]
    numbers.sort(key=by_value)
    rounded = [middle(number, aggregate.relative_error or 0) for number in numbers]
    found = rounded[max(0, math.ceil(Fraction(str(aggregate.share)) * len(values)) - 1)]
    above = [value for value in rounded if _compared(value, found) > 0]
    if _distinct(above, (aggregate.at_most or 0) - 1) is None:
        return None
    return round(found) * micro if isinstance(values[0], timedelta) else found


def _mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None


def _deviation(values: list[Any], aggregate: Any) -> float | None:
    """Return the deviation from exact squares."""
    free = len(values) - (not aggregate.population)
    if free < 1 or not all(map(math.isfinite, values)):
        return None if free < 1 else math.nan
    mean = Fraction(sum(map(Fraction, values)), len(values))
    variance = float(sum((Fraction(value) - mean) ** 2 for value in values) / free)
    return variance if aggregate.variance else math.sqrt(variance)


def _funnel(aggregate: Any, events: Sequence[Pair]) -> list[Moment] | None:
    """Return the moments of the steps that are reached, by the rules of `windowFunnel`."""
    asked = [condition for _, condition in aggregate.steps]
    asked += [] if aggregate.not_between is None else [aggregate.not_between]
    found = []
    for at, act in events:
        if CONDITIONS[repr(aggregate.where)](act):
            hit = [n for n, condition in enumerate(asked) if CONDITIONS[repr(condition)](act)]
            if hit or "order" in aggregate.strict:
                found.append((at, hit))
    # Where no single event matters, all of an instant are one.
    if aggregate.strict <= {"increase"}:
        found = [
            (at, sorted({n for when, hit in found if when == at for n in hit}))
            for at in sorted({at for at, _ in found})
        ]
    found.sort(key=lambda pair: (pair[0], sum(2**step for step in pair[1])))
    most = aggregate.at_most
    hits = sorted((at, step) for at, hit in found[:most] for step in hit or [-1])
    best = _best_chain(aggregate, hits)
    if len(found) > most and len(best) < len(aggregate.steps):
        return None
    return [at for at, _ in best]


def _next(aggregate: Any, events: Sequence[Pair]) -> Any:
    """Return the least value at the first moment after the last step."""
    chain = _funnel(aggregate, events)
    values = [
        (at, getattr(act, aggregate.of))
        for at, act in events
        if CONDITIONS[repr(aggregate.where)](act) and CONDITIONS[repr(aggregate.then)](act)
    ]
    values = [(at, value) for at, value in values if value is not None]
    known = sorted({at for at, _ in values})[: aggregate.at_most]
    later = [at for at in known if chain and at > chain[-1]]
    if not later:
        return None
    return min((value for at, value in values if at == later[0]), key=by_value)


def _within(aggregate: Any, events: Sequence[Pair]) -> Any:
    """Count at each event those before it, one of an instant after the other."""
    times = sorted(at for (at, _), act in events if CONDITIONS[repr(aggregate.where)](act))
    counts = [
        sum(at - before <= aggregate.within for before in times[: 1 + place])
        for place, at in enumerate(times)
    ]
    match aggregate.kind:
        case "counts_within":
            return counts[: aggregate.at_most]
        case "most_within":
            return min(max(counts, default=0), aggregate.at_most)
        case _:
            return next((at for at, n in zip(times, counts, strict=True) if n >= aggregate.n), None)


def _between(aggregate: Any, events: Sequence[Pair]) -> timedelta | None:
    """Go from moment to moment; one that opens and closes changes nothing."""
    changes: dict[Moment, set[str]] = {}
    for at, act in events:
        if CONDITIONS[repr(aggregate.where)](act):
            for name in ("opened", "closed"):
                if CONDITIONS[repr(getattr(aggregate, name))](act):
                    changes.setdefault(at, set()).add(name)
    if len(changes) > aggregate.at_most:
        return None
    total, since = timedelta(), None
    for at, names in sorted(changes.items()):
        if names == {"opened"} and since is None:
            since = at[0]
        elif names == {"closed"} and since is not None:
            total, since = total + (at[0] - since), None
    end = max(at for (at, _), _ in events)
    return total if since is None else total + (end - since)


def _best_chain(aggregate: Any, hits: Sequence[Any]) -> list[Any]:
    strict, steps = aggregate.strict, len(aggregate.steps)
    # The latest chain that has reached each step.
    chains: list[list[list[Any]]] = [[] for _ in range(steps)]
    best: list[Any] = []
    for hit in hits:
        at, step = hit
        if step == steps:
            chains = [[chain for chain in of_step if chain[-1][0] == at] for of_step in chains]
            continue
        is_early = step == -1 or (step and not chains[step - 1])
        is_passed = "order" not in strict or (aggregate.allow_reentry and step >= 0)
        is_repeat = step > 0 and "deduplication" in strict and chains[step]
        if is_repeat or (is_early and chains[0] and not is_passed):
            break
        if grown := [] if is_early else _grown(aggregate, chains[step - 1] if step else [[]], hit):
            chains[step] = grown
            # Of several that come as far, the one that began last.
            best = max(grown) if step >= len(best) else best
        if len(best) == steps:
            break
    return best


def _grown(aggregate: Any, chains: list[list[Any]], hit: Any) -> list[list[Any]]:
    """Return the chains that may go on with a hit."""
    at, _ = hit
    return [
        [*chain, hit]
        for chain in chains
        if not chain
        or (
            (aggregate.within is None or at[0] - chain[0][0][0] <= aggregate.within)
            and ("increase" not in aggregate.strict or chain[-1][0] < at)
        )
    ]


def _naive(aggregate: Any, events: Sequence[Pair]) -> Any:
    chosen = [(at, act) for at, act in events if CONDITIONS[repr(aggregate.where)](act)]
    if aggregate.kind in {"any", "all"}:
        holds = [CONDITIONS[repr(aggregate.of)](act) for _, act in chosen]
        known = [flag for flag in holds if flag is not None]
        return any(known) if aggregate.kind == "any" else all(known)
    if aggregate.kind == "duration":
        times = [at for (at, _), _ in chosen]
        return max(times) - min(times) if times else None
    if aggregate.of is None:
        return len(chosen)
    pairs = [(at, getattr(act, aggregate.of)) for at, act in chosen]
    pairs = [(at, value) for at, value in pairs if value is not None]
    return _of_values(aggregate, _in_order(pairs))


def _of_values(aggregate: Any, values: list[Any]) -> Any:
    match aggregate.kind:
        case "count":
            return len(values)
        case "sum":
            with localcontext(prec=80):  # more digits than any sum here has
                return sum(values, ZEROS.get(aggregate.of, 0))
        case "mean" | "stddev":
            return _deviation(values, aggregate) if aggregate.kind == "stddev" else _mean(values)
        case "min" | "max":
            pick = min if aggregate.kind == "min" else max
            return pick(values, key=by_value) if values else None
        case "first" | "last":
            return values[0 if aggregate.kind == "first" else -1] if values else None
        case "count_distinct":
            return _distinct(values, aggregate.at_most or 0)
        case "top" | "count_by":
            return (_top if aggregate.kind == "top" else _count_by)(values, aggregate)
        case "steps":
            return _steps(values, aggregate)
        case "percentile":
            return _percentile(values, aggregate)
        case _:
            return _listed(aggregate.kind, values[: aggregate.at_most])


def by_aggregates(timeout: EventTimeGap, **options: Any) -> SessionSpec[Act, Any, Any]:
    return SessionSpec.aggregate(
        Act, AGGREGATES, keys={"key": str}, event_time="ts", timeout=timeout, **options
    )


MADE: Final = by_aggregates(EventTimeGap("1 minute"), watermark_delay="1 minute").result
# A class of this module, which executors find by its name.
Row: Any = attrs.make_class(
    "Row", {field.name: attrs.field(type=field.type) for field in attrs.fields(MADE)}, frozen=True
)


@attrs.define
class Kept:
    times: list[datetime] = attrs.field(factory=list)
    acts: list[Act] = attrs.field(factory=list)


def _update(state: Kept, event: Act, time: datetime) -> None:
    state.times.append(time)
    state.acts.append(event)


def _merge(left: Kept, right: Kept) -> None:
    left.times += right.times
    left.acts += right.acts


def naive_row(events: Sequence[tuple[datetime, Act]], sequence: str | None = None) -> Any:
    """Return the row of a session from its events, in any order."""
    placed = [((at, getattr(act, sequence) if sequence else 0), act) for at, act in events]
    return Row(**{name: of_session(aggregate, placed) for name, aggregate in AGGREGATES.items()})


def of_session(aggregate: Any, events: Sequence[Pair]) -> Any:
    """Return the value of an aggregate from the events of a session."""
    if aggregate.kind == "expression":
        return naive(aggregate.operation, lambda part: (_type(part), of_session(part, events)))
    if aggregate.kind == "engaged_time":
        return _engaged(aggregate, events)
    if aggregate.kind.endswith("_within"):
        return _within(aggregate, events)
    if aggregate.kind == "time_between":
        return _between(aggregate, events)
    if aggregate.kind == "funnel_next":
        return _next(aggregate, events)
    if "funnel" in aggregate.kind:
        moments = _funnel(aggregate, events)
        times = None if moments is None else [at for at, _ in moments]
        if aggregate.kind == "funnel" or times is None:
            return None if times is None else len(times)
        if aggregate.between is None:
            return times
        first, last = ([name for name, _ in aggregate.steps].index(n) for n in aggregate.between)
        return times[last] - times[first] if len(times) > last else None
    return _naive(aggregate, events)


def _type(aggregate: Any) -> Kind:
    kind = RESULTS.get(aggregate.kind) or FIELDS[aggregate.of]
    if isinstance(kind, str) or aggregate.kind != "sum":
        return kind
    return 38, kind[1]


def _finish(session: Session, state: Kept) -> Any:
    return naive_row(list(zip(state.times, state.acts, strict=True)))


def _finish_in_sequence(session: Session, state: Kept) -> Any:
    return naive_row(list(zip(state.times, state.acts, strict=True)), "number")


def by_functions(timeout: EventTimeGap, **options: Any) -> SessionSpec[Act, Kept, Any]:
    finish = _finish if options.get("sequence") is None else _finish_in_sequence
    logic = Functions(
        event=Act, state=Kept, result=Row, update=_update, merge=_merge, finish=finish
    )
    return SessionSpec(logic=logic, keys={"key": str}, event_time="ts", timeout=timeout, **options)
