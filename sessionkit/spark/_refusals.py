"""Refuse queries by the plan of a frame, before Spark would find out late, or never."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, get_args

from sessionkit.errors import SessionkitError, SpecError
from sessionkit.spark._causes import first_cause, hint_of
from sessionkit.spark._other_runs import FOUND, HINT, OTHER_RUN
from sessionkit.spark._paths import folder_of, is_read_with
from sessionkit.spark._plan import AGGREGATE, SETS_EVENT_TIME, PlanNode
from sessionkit.spark.sinks import OutputMode
from sessionkit.spark.sinks.batches import Part, place_of
from sessionkit.spark.sinks.values import StreamSink, described

TWO_QUERIES: Final = "write the rows of each spec to a table, and start another query on it"
LIST: Final = "docs/how-to/after-sessions.md lists what works in one query"
SHOWN_AS: Final[dict[str | None, str]] = {
    "Aggregate": "an aggregation",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Join": "a join of two streams",
}
"""The operators of a plan, as users write them."""
AFTER_WINDOWS: Final = "call .with_window_time() on windows before it, which keeps the watermark"
AT_START: Final = {
    "dropDuplicatesWithinWatermark is not supported on streaming": (
        "dropDuplicatesWithinWatermark reads rows without a watermark",
        f"declare one before it with declare_watermark; or {AFTER_WINDOWS}",
    ),
    "streaming aggregations without watermark": (
        "an aggregation reads rows without a watermark, so in mode 'append' no row would come",
        f"declare one before it with declare_watermark; or {AFTER_WINDOWS}",
    ),
    "query with same id is already active|CONCURRENT_QUERY": (
        "a query of another session of this Spark is using the checkpoint",
        "stop that query first, or pass another checkpoint",
    ),
    OTHER_RUN: (FOUND, HINT),
}


def check_mode(mode: OutputMode, plan: PlanNode | None) -> None:
    """Refuse an output mode that the operators of the frame don't have."""
    named: object = mode
    if not isinstance(named, str) or named not in get_args(OutputMode):
        modes = "'append', 'update' or 'complete'"
        raise SpecError(f"`mode` must be {modes}, found {mode!r}", "leave it out for 'append'")
    if plan is None or mode == "append":
        return
    found, hint = f"mode={mode!r} doesn't fit the frame", "leave `mode` out"
    if plan.returns_final_rows:
        raise SpecError(f"{found}: the rows of a spec are written once, as they come", hint)
    if mode == "complete" and not plan.aggregates_stream:
        raise SpecError(f"{found}: only an aggregation keeps all of its rows", hint)


def check_folders(
    plan: PlanNode | None, parts: Sequence[Part], sink: StreamSink, location: str, root: str
) -> None:
    """Refuse a sink or a checkpoint whose files the query, or a sink's reader, takes for rows."""
    sources = {} if plan is None else {folder_of(path, root): path for path in plan.folders}
    sinks = [part.route.sink for part in parts] if parts else [sink]
    outside = "a folder outside of it"
    for target in sinks:
        place = place_of(target, root)
        if not isinstance(place, PurePosixPath):
            continue
        for source, path in sources.items():
            if is_read_with(place, source):
                found = f"the query reads the folder {path}, and would read its own rows in "
                hint = f"write to {outside}"
                raise SpecError(f"{found}{described(target)}", hint)
        if is_read_with(folder_of(location, root), place):
            found = (
                f"the checkpoint {location} is in {described(target)}, to which the query writes: "
            )
            hint = f"pass checkpoint={outside}"
            raise SpecError(f"{found}readers would take its files for rows", hint)
    for source, path in sources.items():
        if is_read_with(folder_of(location, root), source):
            found = f"the checkpoint {location} is in the folder {path}, which the query reads: "
            hint = f"pass checkpoint={outside}"
            raise SpecError(f"{found}it would take its files for events", hint)


def check_one_state(plan: PlanNode | None) -> None:
    """Refuse an operator after a spec in the same query: it would drop the spec's rows as late."""
    if plan is None:
        return
    after = plan.loses_rows_of_python_state
    if after is None and plan.watermarked_twice is not None:
        raise _second_watermark(plan.watermarked_twice)
    if after is None and sum(node.is_python_state for node in plan.walk()) <= 1:
        return
    found = "a query has one stateful operator of Python, and this one has two or more"
    if after in SHOWN_AS:
        found = f"{SHOWN_AS[after]} reads the rows of a spec in the same query: they come once the"
        found += " watermark has passed the end of their session, so it would drop them as late"
    raise SpecError(found, f"{TWO_QUERIES}; {LIST}")


def _second_watermark(path: Sequence[PlanNode]) -> SpecError:
    over = [node for node in path if node.operator == AGGREGATE or node.is_python_state]
    if not over:
        found = "a watermark is declared on a frame that has one, which Spark doesn't take"
        hint = "remove withWatermark from the frame, or from one that it is a union of; the "
        return SpecError(found, f"{hint}`watermark_delay` of a spec declares it")
    what = "windows" if over[0].operator == AGGREGATE else "a spec"
    found = f"a watermark is declared on the rows of {what} in the same query, which waits for an "
    found += "earlier one: no row would ever come"
    if over[0].operator == AGGREGATE:
        hint = "remove it, and add .with_window_time() to the windows: the time `window_time` has "
        return SpecError(found, f"{hint}the watermark")
    if any(node.operator == SETS_EVENT_TIME for node in path):
        return SpecError(
            found, "remove withWatermark: under `carries_watermark`, the spec's own goes on"
        )
    return SpecError(found, f"{TWO_QUERIES}; {LIST}")


@contextmanager
def said_at_start() -> Iterator[None]:
    """Raise our error for what Spark, the machine or a server refuses as a query starts."""
    try:
        yield
    except SessionkitError:
        raise
    except Exception as error:
        text = str(error)
        for sign, ours in AT_START.items():
            if re.search(sign, text):
                raise SpecError(*ours) from None
        cause = first_cause(error)
        if (hint := hint_of(cause)) is None:
            raise
        first, *_ = cause.splitlines()
        raise SessionkitError(f"the query couldn't start: {first}", hint) from error
