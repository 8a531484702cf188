"""A windowed aggregation described in words: what a stream writes, keeps and drops."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, get_args

from sessionkit._instants import duration_text
from sessionkit.errors import SpecError
from sessionkit.spark.query.rules import OutputMode, QueryType, check_output
from sessionkit.spark.windows.shape import WindowShape

__all__ = ["explanation", "growth"]

MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)
WRITTEN: Final[dict[OutputMode, str]] = {
    "append": (
        "once, in the first micro-batch whose watermark has reached its end "
        "(window_end <= watermark)"
    ),
    "update": "in every micro-batch that changes it",
    "complete": "in every micro-batch, with all other windows, changed or not",
}
CLOSED: Final = "in the first micro-batch whose watermark has reached its end"


def explanation(
    shape: WindowShape,
    keys: tuple[str, ...],
    delay: timedelta | None,
    query: QueryType,
    mode: OutputMode,
) -> str:
    """Return the text that `WindowedAggregation.explain` shows."""
    lines = [
        ("windows", _windows(shape)),
        ("one row for", f"each window{''.join(f' and {key}' for key in keys)}"),
        ("watermark", _watermark(shape, delay)),
        ("query type", query),
        ("output mode", mode),
        *_modes(query, mode),
        ("written", WRITTEN[mode]),
        ("kept in state", _kept(mode, delay, shape)),
        ("late", _late(mode, delay, shape)),
        ("no window", _nowhere(shape)),
        ("on a batch", "every window once; output mode and watermark have no effect"),
    ]
    return "\n".join(f"{label + ':':<15}{text}" for label, text in lines)


def growth(mode: OutputMode, on: str) -> str:
    """Return the text of the warning that the state grows forever."""
    rows = "the state grows by one row for each key and window, forever"
    if mode == "complete":
        return f"mode 'complete' drops no window, with or without a watermark: {rows}"
    return f"no watermark is declared on `{on}`: {rows}"


def _windows(shape: WindowShape) -> str:
    if shape.kind == "session":
        gap = "its own gap" if shape.dynamic_gap is not None else duration_text(shape.length)
        return (
            f"sessions over `{shape.on}`; each row lasts for {gap}, and rows that overlap or "
            "touch form one session"
        )
    length, every = duration_text(shape.length), duration_text(shape.every)
    shift = f" + {duration_text(shape.start_time)}" if shape.start_time else ""
    return (
        f"{length} long, one every {every}, over `{shape.on}`, from 1970-01-01 00:00 UTC{shift} "
        "on; the start is inclusive, the end exclusive"
    )


def _watermark(shape: WindowShape, delay: timedelta | None) -> str:
    if delay is None:
        return f"none declared here; if the frame has one on `{shape.on}`, it applies"
    return f"the latest `{shape.on}` seen minus {duration_text(delay)}; it advances between batches"


def _modes(query: QueryType, mode: OutputMode) -> Iterator[tuple[str, str]]:
    for other in MODES:
        try:
            check_output(query, other)
        except SpecError as error:
            reason = str(error).partition("\n")[0].partition(": ")[2]
            yield f"  {other}", f"refused: {reason}"
        else:
            yield f"  {other}", "possible, chosen" if other == mode else "possible"


def _kept(mode: OutputMode, delay: timedelta | None, shape: WindowShape) -> str:
    if mode == "complete":
        return f"forever: {growth(mode, shape.on)}"
    if delay is None:
        return f"forever, unless the frame has a watermark: {growth(mode, shape.on)}"
    return f"until it closes, then dropped: {CLOSED}"


def _late(mode: OutputMode, delay: timedelta | None, shape: WindowShape) -> str:
    if mode == "complete":
        return "no row: complete mode counts every row into its window, however late"
    if delay is None:
        return "no row, unless the frame has a watermark"
    own = f"`{shape.on}` + gap" if shape.kind == "session" else "window_end"
    own_window = " (its own window, not the session it would join)" if own[0] == "`" else ""
    return (
        f"a row is dropped for a window where {own} <= the watermark of the batch before"
        f"{own_window}; numRowsDroppedByWatermark counts groups of late rows, not rows: one for "
        "each key and window of a partition"
    )


def _nowhere(shape: WindowShape) -> str:
    if shape.dynamic_gap is None:
        return f"rows whose `{shape.on}` is null: see `rejected`"
    return f"rows whose `{shape.on}` is null, or whose gap is null or not positive: see `rejected`"
