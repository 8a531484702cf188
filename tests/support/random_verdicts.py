"""Random streams in which every reason for which an event doesn't count meets every other one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random
from typing import Any, NamedTuple, TypeAlias

import attrs
import pyarrow.compute as pc

from sessionkit import Functions, Inputs, Lateness, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit.testing import SessionDriver
from tests.support import naive_verdicts as naive
from tests.support.naive_rules import Click
from tests.support.naive_verdicts import NaiveVerdicts, Settings

GAP = timedelta(seconds=10)
MICRO = timedelta(microseconds=1)
START = datetime(2026, 3, 8, 4, 59, 30, tzinfo=UTC)
END = START + timedelta(days=3)
ZONE = "America/New_York"


def _is_accepted(_: object, __: object, value: bool) -> None:
    if value:
        raise ValueError("this event is refused")


@attrs.frozen
class Plain:
    """The fields of an event; aggregates build no objects, so its class refuses none."""

    value: int
    ends: bool
    begins: bool
    keeps: bool
    campaign: str | None
    seq: int
    opens: bool
    name: int
    refused: bool
    gap: float


@attrs.frozen
class Shown(Plain):
    """An event whose class refuses some."""

    refused: bool = attrs.field(validator=_is_accepted)


@attrs.define
class Listed:
    """A state that lists the values of its session; a text in it can't be stored."""

    items: list[int] = attrs.field(factory=list)


def updated(items: list[Any], value: int) -> list[Any] | None:
    """Add a value: some fail, some leave what can't be stored, and some take that away."""
    if (len(items) + value) % 7 == 3:
        return None
    if value % 6 == 5:
        items = [item for item in items if isinstance(item, int)]
    return [*items, str(value) if value % 5 == 4 else value]


def is_fit(items: list[Any]) -> bool:
    return all(isinstance(item, int) for item in items)


def merges(left: list[Any], right: list[Any]) -> bool:
    return (len(left) + len(right)) % 3 != 0


def gap_fails(items: list[Any]) -> bool:
    return len(items) % 6 == 5


def gap_by_items(state: Any) -> timedelta:
    """Return the gap by what a state lists, or by the list itself, as the model has it."""
    items = getattr(state, "items", state)
    if isinstance(state, Listed) and gap_fails(items):
        raise ValueError(items)
    return GAP / (1 + len(items) % 3)


def gap_of(event: Plain) -> timedelta:
    """Return the gap of an event, of which some aren't valid, or raise where it's below 0."""
    if event.gap < 0:
        raise ValueError(event.gap)
    return timedelta(seconds=event.gap)


def create(_: Any, event: Shown) -> Listed:
    return update(Listed(), event)


def update(state: Listed, event: Shown) -> Listed:
    """Add an event in place, and only then fail: what was changed must be undone."""
    added = updated(state.items, event.value)
    if added is None:
        state.items.append(-1)
        raise ValueError(event.value)
    state.items[:] = added
    return state


def merge(left: Listed, right: Listed) -> Listed:
    fails = not merges(left.items, right.items)
    left.items += right.items
    if fails:
        raise ValueError(left.items)
    return left


FUNCTIONS = naive.Functions(updated, merges, is_fit, gap_fails)
HARMLESS = naive.Functions(
    lambda items, value: [*items, value], lambda _, __: True, is_fit, lambda _: False
)


@attrs.frozen
class Stream:
    """Events in micro-batches, and the spec that takes them."""

    cut: Sequence[Sequence[Click]]
    rules: SessionRules
    in_order: bool
    by_session: bool
    event_id: str | None
    remembered_for: timedelta
    sequence: bool
    allowed: timedelta
    by_functions: bool
    creates: bool
    restart: bool
    delay: timedelta

    @property
    def settings(self) -> Settings:
        return Settings(
            rules=self.rules,
            functions=FUNCTIONS if self.by_functions else HARMLESS,
            in_order=self.in_order,
            by_session=self.by_session,
            drops_repeats=self.event_id is not None,
            sequence=self.sequence,
            allowed=self.allowed,
        )

    @property
    def spec(self) -> SessionSpec[Any, Any, Any]:
        settings: dict[str, Any] = {
            "keys": {"key": str},
            "event_time": "at",
            "timeout": self.rules,
            "watermark_delay": self.delay,
            "order": "event_time" if self.in_order else "arrival",
            "sequence": "seq" if self.sequence else None,
            "on_error": "reject",
        }
        if self.event_id is not None:
            settings["inputs"] = Inputs(
                event_id=self.event_id, drop_duplicates_for=self.remembered_for
            )
        if not self.in_order:
            settings["lateness"] = Lateness(
                judged_by="session" if self.by_session else "event", allowed=self.allowed or None
            )
        if not self.by_functions:
            return SessionSpec.aggregate(Plain, {"items": agg.collect("value")}, **settings)
        logic = Functions(
            event=Shown,
            state=Listed,
            result=Listed,
            create=create if self.creates else None,
            update=update,
            merge=merge,
        )
        return SessionSpec(logic=logic, **settings)


def ends(event: Plain) -> bool:
    return event.ends


def begins(event: Plain) -> bool:
    return event.begins


def keeps(event: Plain) -> bool:
    return event.keeps


def opens(event: Plain) -> bool:
    return event.opens


def stream_of(seed: int) -> Stream:
    """Draw a stream: few events, close together, under many options at once."""
    draw = Random(seed)
    in_order, by_functions = draw.random() < 0.5, draw.random() < 0.8
    sequence = in_order and draw.random() < 0.3
    by_session = not in_order and draw.random() < 0.5
    rules: dict[str, Any] = {"gap_inclusive": draw.random() < 0.5}

    def maybe(name: str, chance: float, *ways: Any) -> None:
        if draw.random() < chance:
            rules[name] = draw.choice(ways)

    maybe("opens_with", 0.5, "opens", pc.field("opens"), opens)
    maybe("extends", 0.4, "keeps", pc.field("keeps"), keeps)
    maybe("midnight", 0.2, ZONE)
    if in_order:
        maybe("max_events", 0.3, 1, 2, 3)
        maybe("until", 0.3, "ends", ends)
        maybe("starts_with", 0.3, "begins", begins)
        maybe("changes_of", 0.3, "campaign")
        maybe("max_duration", 0.3, GAP / 2, 2 * GAP)
        if by_functions:
            maybe("state_gap", 0.2, gap_by_items)
        if not (by_functions or rules.keys() - {"gap_inclusive", "extends", "midnight"}):
            # Without one of the other rules, an order has no effect on aggregates.
            rules["max_events"] = 2
    gap: Any = GAP
    gaps = [GAP]
    if "state_gap" not in rules and draw.random() < 0.3:
        # Of every six, two have gaps that aren't valid, and the function fails over one.
        gap, gaps = gap_of, [GAP, GAP, GAP / 2, timedelta(0), 2 * GAP, -GAP]
        rules["max_gap"] = GAP
    steps = [timedelta(0), timedelta(0), MICRO, GAP / 2, GAP - MICRO, GAP, GAP + MICRO, 3 * GAP]
    events, at = list[Click](), START
    drops_repeats = draw.random() < 0.6
    for value in range(draw.randint(2, 14)):
        at += draw.choice(steps)
        events.append(
            Click(
                "a",
                at,
                value + draw.choice([0, 100, 200]),
                draw.choice(gaps),
                ends=draw.random() < 0.3,
                begins=draw.random() < 0.3,
                keeps=draw.random() < 0.7,
                campaign=draw.choice([None, None, "x", "y"]),
                seq=draw.randint(-1, 1) if sequence else 0,
                opens=draw.random() < 0.5,
                name=draw.randint(0, 3),
                refused=by_functions and draw.random() < 0.12,
            )
        )
    cut: list[list[Click]] = [[] for _ in range(draw.randint(1, 4))]
    for number, event in enumerate(events):
        near = number * len(cut) // len(events)
        cut[near if draw.random() < 0.7 else draw.randrange(len(cut))].append(event)
    for batch in cut:
        draw.shuffle(batch)
    return Stream(
        cut=cut,
        rules=SessionRules(gap, **rules),
        in_order=in_order,
        by_session=by_session,
        event_id="name" if drops_repeats else None,
        remembered_for=draw.choice([timedelta(0), GAP, 100 * GAP]),
        sequence=sequence,
        allowed=draw.choice([timedelta(0), timedelta(0), GAP]) if not in_order else timedelta(0),
        by_functions=by_functions,
        creates=draw.random() < 0.5,
        restart=draw.random() < 0.3,
        delay=draw.choice([timedelta(0), GAP, 4 * GAP]),
    )


class Seen(NamedTuple):
    """The sessions of a stream, and in each micro-batch the events that don't count, with why."""

    sessions: list[tuple[Any, ...]]
    verdicts: list[dict[int, str]]


Runs: TypeAlias = list[tuple[Sequence[Click], datetime | None]]
"""The events of each micro-batch that ran, and its watermark."""
FIELDS = [field.name for field in attrs.fields(Shown)]


def row_of(event: Click) -> dict[str, Any]:
    """Return an event as a row of a frame."""
    shown = {name: getattr(event, name) for name in FIELDS}
    return {"key": event.key, "at": event.at, **shown, "gap": event.gap.total_seconds()}


def found(stream: Stream) -> tuple[Seen, Runs]:
    """Return what the driver says of a stream."""
    driver, rows, verdicts = SessionDriver(stream.spec), dict[str, Any](), list[dict[int, str]]()
    runs: Runs = []

    def runs_one(batch: Sequence[Click]) -> bool:
        for event in batch:
            driver.add_row(row_of(event))
        watermark = driver.watermark
        if driver.run_batch().batch_id is None:
            return False
        runs.append((batch, watermark))
        taken = driver.take_rows()
        rows.update({row.session_id: row for row in taken})
        for row in taken:
            # A session that closed in this micro-batch may be superseded in it.
            for old in getattr(row, "supersedes", ()):
                del rows[old]
        rejections = driver.take_rejections()
        verdicts.append({one.event["value"]: one.kind for one in rejections if one.event})
        return True

    for batch in stream.cut:
        runs_one(batch)
        if stream.restart:
            driver = SessionDriver.restore(stream.spec, driver.snapshot())
    driver.advance_watermark_to(END)
    while runs_one(()):
        pass
    assert driver.counts.is_balanced
    assert not driver.open_sessions()
    sessions = [
        (row.session_start, row.session_end, sorted(row.result.items), row.closed_by)
        for row in rows.values()
    ]
    return Seen(sorted(sessions), verdicts), runs


def expected(stream: Stream, runs: Runs) -> Seen:
    """Return what the model says of the same micro-batches."""
    model, verdicts = NaiveVerdicts(stream.settings, stream.remembered_for), list[dict[int, str]]()
    for batch, watermark in runs:
        judged = model.run(batch, watermark)
        verdicts.append({event.value: verdict for event, verdict in judged.items()})
    sessions = [(one.start, one.end, sorted(one.state), min(one.fired)[-1]) for one in model.closed]
    return Seen(sorted(sessions), verdicts)


def compared(stream: Stream) -> tuple[Seen, Seen]:
    """Return what the driver says, and what the model says."""
    seen, runs = found(stream)
    return seen, expected(stream, runs)


def run(seeds: Iterable[int]) -> Counter[tuple[str, ...]]:
    """Compare streams; return how many had each pair of reasons on their key."""
    pairs = Counter[tuple[str, ...]]()
    for seed in seeds:
        seen, by_model = compared(stream_of(seed))
        assert by_model == seen, f"stream {seed}"
        kinds = {kind for verdicts in seen.verdicts for kind in verdicts.values()}
        pairs.update(combinations(sorted(kinds), 2))
    return pairs
