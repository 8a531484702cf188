"""Why a session closes, and what lets it close, for people."""

from datetime import datetime, timedelta

from sessionkit._engine.boundaries import event_that_moves_to
from sessionkit._instants import duration_text, instant_of, micros_of
from sessionkit.spec.session import AnySessionSpec
from sessionkit.timeouts import ClosedBy, SessionRules


def event_that_closes(spec: AnySessionSpec, closes: datetime) -> datetime:
    """Return the earliest event time that moves the watermark to where a session closes."""
    return instant_of(event_that_moves_to(micros_of(closes), spec.delay_ms or 0))


def rule_text(spec: AnySessionSpec, rule: ClosedBy) -> str:
    """Return what is so where a rule of a spec closes a session."""
    rules = spec.rules
    if rules is None or rule == "gap":
        return _gap_text(spec)
    return _cut_text(rules, rule)


def _gap_text(spec: AnySessionSpec) -> str:
    extends = spec.rules is not None and spec.rules.extends is not None
    event = "no event that extends it" if extends else "no event"
    if spec.rules is not None and spec.rules.state_gap is not None:
        longest = duration_text(spec.timeout.longest)
        return f"{event} within the gap by its state, of at most {longest}"
    if callable(spec.timeout.gap):
        return f"{event} within the gaps of its events"
    return f"{event} for {duration_text(spec.timeout.longest)}"


def _cut_text(rules: SessionRules, rule: ClosedBy) -> str:
    if rule == "midnight":
        return f"midnight in {rules.midnight}"
    if rule == "max_duration":
        return f"it has lasted {duration_text(rules.max_duration or timedelta(0))}"
    if rule == "max_events":
        return f"it has {rules.max_events:,} event{'s' if rules.max_events != 1 else ''}"
    if rule == "idle":
        span = duration_text(rules.close_idle_after or timedelta(0))
        return f"nothing has moved the watermark for {span} of processing time"
    if rule == "changes_of":
        return f"an event has another {' or '.join(f'`{name}`' for name in rules.changes_of)}"
    return "an event ends it" if rule == "until" else "an event starts the next session"
