"""The cases of `cases.json` as sessionkit runs them: which, under which options, or why not."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import pyarrow as pa

from sessionkit import (
    Aggregates,
    EventTimeGap,
    Functions,
    Inputs,
    Lateness,
    Results,
    Session,
    SessionRules,
    SessionSpec,
    Storage,
)
from sessionkit import aggregates as agg
from sessionkit.addons import presets

Case: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

CASES: Final[list[Case]] = json.loads((Path(__file__).parent / "cases.json").read_text())

# Cases count from 0, and Spark has no watermark at or before 1970.
ORIGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Longer than any case, so that only the steps of a case move its watermark.
LONG_DELAY: Final = timedelta(days=60)
# The key of the events that move it; keys of cases are JSON, so none of them has this one.
CLOCK: Final = "clock"

SCHEMA: Final = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "value": pa.string(),
        "gap_ms": pa.int64(),
        "shown": pa.string(),
    }
)


@attrs.frozen
class Dialect:
    """
    The rules of a system, as options of sessionkit.

    Attributes:
        gap_inclusive: See `EventTimeGap`.
        late: See `SessionSpec`.
        watermark_ms: What its watermark means here. Flink's says that no event at that
            millisecond will come any more, so it is one more here. Kafka's is the latest event, and
            a session closes after it.
        lateness: What its lateness is here. Spark has none, Kafka's grace delays the watermark.
        reopens: Whether a closed session goes on with an event that isn't late.
    """

    gap_inclusive: bool = True
    judged_by: Literal["event", "session"] = "event"
    watermark_ms: int = 0
    lateness: Literal["none", "allowed", "delay"] = "none"
    reopens: bool = False

    def options(self, case: Case) -> dict[str, Any]:
        lateness_ms = case["allowed_lateness_ms"] if self.lateness == "allowed" else 0
        return {
            "lateness": Lateness(
                judged_by=self.judged_by,
                allowed=timedelta(milliseconds=lateness_ms) if lateness_ms else None,
                reopen_within=RETENTION if self.reopens else None,
            )
        }

    def watermark(self, case: Case, watermark_ms: int) -> datetime:
        """Return what a watermark of a case is here."""
        delay_ms = case["allowed_lateness_ms"] if self.lateness == "delay" else 0
        return instant(watermark_ms + self.watermark_ms - delay_ms)


DIALECTS: Final = {
    "spark": Dialect(),
    "beam": Dialect(gap_inclusive=False, lateness="allowed"),
    "flink": Dialect(judged_by="session", watermark_ms=1, lateness="allowed"),
    "kafka": Dialect(judged_by="session", watermark_ms=-1, lateness="delay", reopens=True),
}

# When the cases about early results give rows, and about a trigger that fires once.
TRIGGERS: Final = {
    "AfterWatermark(early=count>=2, late=count>=1), accumulating": "every 2 events",
    "count>=4, purging": "every 4 events",
    "fires once, then finished": "on_close",
}

# The rules that a case about a product or a midnight follows, by how its name begins.
POLICIES: Final = {
    "midnight": SessionRules("30 minutes", midnight="UTC"),
    "posthog": presets.posthog(),
    "segment": presets.segment(),
}
# Its answer is that after all events.
AFTER_ALL: Final = ORIGIN + LONG_DELAY
# Longer than any case, so that what has closed in it is still there.
RETENTION: Final = timedelta(days=1)

OTHERS: Final = ("timeout", "processing_time", "dedup")

REASONS: Final = {
    "discarding": "Rows have all events of their session, not only those since its last row",
    "bytewax": "Bytewax's rule, late = event time < the watermark of its key, is not an option",
}


def _sorted_values(values: Iterable[str]) -> list[str]:
    return sorted(values)


def _sorted_windows(windows: Iterable["Window"]) -> list["Window"]:
    return sorted(windows, key=repr)


def _sorted_events(events: Iterable[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    return sorted(events)


@attrs.frozen
class Window:
    """A session of a case; its values in any order."""

    key: str
    start_ms: int
    end_ms: int
    values: list[str] = attrs.field(converter=_sorted_values)


@attrs.frozen
class Outcome:
    """
    What a case comes to, in any order.

    Attributes:
        closed: The sessions that have closed.
        still_open: The sessions that have not.
        late: Key, time and value of each late event.
        quarantined: The values of the events without a time, or whose gap is not positive.
        emissions: Where a case has them, all rows in order: sessions, and whether they're early.
    """

    closed: list[Window] = attrs.field(converter=_sorted_windows)
    still_open: list[Window] = attrs.field(converter=_sorted_windows)
    late: list[tuple[str, int, str]] = attrs.field(converter=_sorted_events)
    quarantined: list[str] = attrs.field(converter=_sorted_values)
    emissions: list[tuple["Window", bool]] | None = None


@attrs.frozen
class Batch:
    """A step of a case: events come, as rows by column name."""

    rows: list[dict[str, Any]]


@attrs.frozen
class Watermark:
    """A step of a case: the watermark moves to this instant."""

    instant: datetime


@attrs.frozen
class Restart:
    """A step of a case: the query stops, and starts again."""


Step: TypeAlias = Batch | Watermark | Restart


@attrs.frozen
class Run:
    """A case under the rules of one system, and the answer by these."""

    name: str
    dialect: str
    spec: SessionSpec[Any, Any, Any]
    steps: list[Step]
    expected: Outcome


@attrs.frozen
class NotRun:
    """A case that is not run, and why."""

    name: str
    reason: str


@attrs.frozen
class Event:
    value: str
    gap_ms: int | None


@attrs.define
class State:
    """The values of a session, in the order in which they were folded."""

    values: list[str]


@attrs.frozen
class Result:
    values: list[str]


def create(key: Any, event: Event) -> State:
    return State([event.value])


def update(state: State, event: Event) -> State:
    state.values.append(event.value)
    return state


def merge(left: State, right: State) -> State:
    return State(left.values + right.values)


def finish(session: Session, state: State) -> Result:
    return Result(state.values)


def from_aggregates(run: "Run") -> "Run":
    """Return the case with a spec that lists the values without functions."""
    logic: Aggregates[Any, Any] = Aggregates(
        run.spec.event, {"values": agg.collect("value", at_most=1_000)}
    )
    return attrs.evolve(run, spec=attrs.evolve(run.spec, logic=logic))


def own_gap(event: Event) -> timedelta:
    """Return the gap that the event itself carries."""
    return timedelta(milliseconds=event.gap_ms or 0)


def planned() -> Iterator[Run | NotRun]:
    """
    Return the cases about sessions, by Spark's rules and by others that give another answer.

    What sessionkit has no rules for comes with the reason. The cases about timeouts and processing
    time are in `keyed`, those about deduplication in `dedup`.
    """
    for case in CASES:
        if case["kind"] in OTHERS:
            continue
        if case["kind"] == "policy":
            yield _policy(case)
            continue
        if _discards(case):
            yield NotRun(case["name"], REASONS["discarding"])
            continue
        if case["kind"] != "session":
            yield _triggered(case)
            continue
        answers = _answers(case)
        for dialect, answer in answers.items():
            if dialect == "spark" or not _same(answer, answers.get("spark")):
                yield _planned(case, dialect, answer)


def _policy(case: Case) -> Run:
    (rules,) = (rules for name, rules in POLICIES.items() if case["name"].startswith(name))
    spec = attrs.evolve(
        _spec(case, Dialect()), timeout=rules, order="event_time" if rules.in_order else "arrival"
    )
    steps = [*(_step(case, step, Dialect()) for step in case["steps"]), Watermark(AFTER_ALL)]
    return Run(case["name"], "policy", spec, steps, _outcome(case, case))


def _discards(case: Case) -> bool:
    trigger: str = case.get("trigger", "")
    return case.get("accumulation") == "discarding" or trigger.endswith(", discarding")


def _triggered(case: Case) -> Run:
    """Return a case about when rows come; one whose trigger fires once allows no lateness."""
    rules = DIALECTS[case["dialect"]]
    if case["kind"] == "finished_trigger":
        rules = attrs.evolve(rules, lateness="none")
    emit = TRIGGERS[case["trigger"]] if "trigger" in case else "on_close"
    spec = attrs.evolve(_spec(case, rules), results=Results(emit=emit))
    steps = [_step(case, step, rules) for step in case["steps"]]
    outcome = _with_emissions(case, _outcome(case, case))
    return Run(case["name"], case["dialect"], spec, steps, outcome)


def _with_emissions(case: Case, outcome: Outcome) -> Outcome:
    if "emissions" not in case:
        return outcome
    rows = [(_window(row), row["pane"] == "early") for row in case["emissions"]]
    return attrs.evolve(outcome, emissions=rows)


def _answers(case: Case) -> dict[str, Case]:
    others: dict[str, Case] = case.get("by_dialect", {})
    return dict.fromkeys(case.get("agrees_with", [case["dialect"]]), case) | others


def _same(answer: Case, other: Case | None) -> bool:
    names = ("expected", "expected_open", "late")
    return other is not None and all(answer[name] == other[name] for name in names)


def _planned(case: Case, dialect: str, answer: Case) -> Run | NotRun:
    name = case["name"] if dialect == "spark" else f"{case['name']}-as-{dialect}"
    if dialect not in DIALECTS:
        return NotRun(name, REASONS[dialect])
    rules = DIALECTS[dialect]
    steps = [_step(case, step, rules) for step in case["steps"]]
    outcome = _outcome(case, answer)
    if dialect == case["dialect"]:
        outcome = _with_emissions(case, outcome)
    return Run(name, dialect, _spec(case, rules), steps, outcome)


def _step(case: Case, step: dict[str, Any], rules: Dialect) -> Step:
    if "add" in step:
        return Batch([_row(*event) for event in step["add"]])
    if "watermark" in step:
        return Watermark(rules.watermark(case, step["watermark"]))
    return Restart()


def _row(key: Any, time_ms: int | None, value: Any, gap_ms: int | None = None) -> dict[str, Any]:
    return {
        "key": json.dumps(key),
        "at": None if time_ms is None else instant(time_ms),
        "value": json.dumps(value),
        "gap_ms": gap_ms,
        "shown": json.dumps(value),
    }


def instant(time_ms: int) -> datetime:
    """Return the instant that a case means by a time."""
    return ORIGIN + timedelta(milliseconds=time_ms)


def _spec(case: Case, rules: Dialect) -> SessionSpec[Event, State, Result]:
    gaps = [event[3] for event in _events(case) if len(event) > len(("key", "time", "value"))]
    if gaps:
        longest = timedelta(milliseconds=max(gaps))
        timeout = EventTimeGap(own_gap, max_gap=longest, gap_inclusive=rules.gap_inclusive)
    else:
        timeout = EventTimeGap(
            timedelta(milliseconds=case["gap_ms"]), gap_inclusive=rules.gap_inclusive
        )
    delay_ms = case.get("watermark_delay_ms")
    return SessionSpec(
        logic=Functions(
            event=Event,
            state=State,
            result=Result,
            create=create,
            update=update,
            merge=merge,
            finish=finish,
        ),
        keys={"key": str},
        event_time="at",
        timeout=timeout,
        watermark_delay=LONG_DELAY if delay_ms is None else timedelta(milliseconds=delay_ms),
        inputs=Inputs(max_future_skew=None, passthrough={"shown": str}),
        storage=Storage(bucket_count=2),
        **rules.options(case),
    )


def _events(case: Case) -> Iterator[list[Any]]:
    for step in case["steps"]:
        yield from step.get("add", [])


def _outcome(case: Case, answer: Case) -> Outcome:
    bad = [
        json.dumps(value)
        for _, time_ms, value, *gap in _events(case)
        if time_ms is None or (gap and gap[0] <= 0)
    ]
    return Outcome(
        closed=list(map(_window, answer["expected"])),
        still_open=list(map(_window, answer["expected_open"])),
        late=[(json.dumps(key), time_ms, json.dumps(v)) for key, time_ms, v in answer["late"]],
        quarantined=bad,
    )


def _window(session: Case) -> Window:
    values = map(json.dumps, session["values"])
    return Window(json.dumps(session["key"]), session["start_ms"], session["end_ms"], list(values))
