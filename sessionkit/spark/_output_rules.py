"""The table of query types, output modes and sinks: which go together, and why others don't."""

from itertools import product
from typing import Final, Literal, TypeAlias, get_args

import attrs

from sessionkit._arguments import explains
from sessionkit.errors import SpecError, with_hint

QueryType: TypeAlias = Literal[
    "stateless",
    "sorted",
    "limit",
    "aggregation",
    "watermarked_aggregation",
    "sorted_aggregation",
    "session_window",
    "watermarked_session_window",
    "chained_aggregation",
    "deduplication",
    "deduplication_within_watermark",
    "inner_join",
    "semi_join",
    "outer_join",
    "stateful",
    "stateful_update",
]
"""
What a query does, as far as Spark's output modes depend on it.

`start_query` reads it from the plan of the frame. A query of `sessionize` or `apply_with_state` is
`"stateful"`: its operator emits rows in mode `append`. `"stateful_update"` is one of your own that
was declared with mode `update`.
"""

OutputMode: TypeAlias = Literal["append", "update", "complete"]
"""
Which rows of its result a query writes after a micro-batch.

`"append"`: those that will never change. `"update"`: those that this micro-batch has changed.
`"complete"`: all of them, which only an aggregation keeps.
"""

Sink: TypeAlias = Literal["file", "foreach", "foreachBatch", "console", "memory", "kafka"]
"""
Where a query writes, as far as Spark's output modes depend on it.

For `start_query`, `Files` is a `"file"`; a sink that takes micro-batches whole, such as `Routes`,
is a `"foreachBatch"`.
"""

QUERY_TYPES: Final[tuple[QueryType, ...]] = get_args(QueryType)
OUTPUT_MODES: Final[tuple[OutputMode, ...]] = get_args(OutputMode)
SINKS: Final[tuple[Sink, ...]] = get_args(Sink)


@attrs.frozen
class OutputRule:
    """
    One cell of the table: a query type, an output mode and a sink.

    Attributes:
        query: The type of the query.
        mode: The output mode.
        sink: The sink.
        refused: Why Spark refuses the combination; None if it accepts it.
        hint: What to change; None if there is nothing to change.
        since: The first Spark version that accepts the combination, where Spark 3.5 refuses it;
            None if every version since 3.5 gives the same answer.
    """

    query: QueryType
    mode: OutputMode
    sink: Sink
    refused: str | None
    hint: str | None
    since: str | None = None


@attrs.frozen
class Refusal:
    """A reason that holds for all of these query types, modes and sinks."""

    reason: str
    hint: str
    modes: tuple[OutputMode, ...]
    queries: tuple[QueryType, ...] = QUERY_TYPES
    sinks: tuple[Sink, ...] = SINKS
    hint_for_files: str | None = None

    def advice(self, sink: Sink | None) -> str:
        """Return the hint; file sinks support only append, and may need a hint of their own."""
        return self.hint_for_files or self.hint if sink == "file" else self.hint

    def covers(self, query: QueryType | None, mode: OutputMode, sink: Sink | None) -> bool:
        """Return whether it holds, whatever the unknown values are."""
        holds_for_query = self.queries == QUERY_TYPES if query is None else query in self.queries
        holds_for_sink = self.sinks == SINKS if sink is None else sink in self.sinks
        return mode in self.modes and holds_for_query and holds_for_sink


WITHOUT_WATERMARK: Final = (
    "no watermark says when a group is final, so append mode would never know when to write it"
)
WITHOUT_AGGREGATION: Final = (
    "complete mode rewrites the whole result, and only an aggregation keeps its whole result"
)

REFUSALS: Final[tuple[Refusal, ...]] = (
    Refusal(
        "a file sink only adds files, and can't change rows that it has written",
        "use mode 'append' if the query supports it, or merge the rows into a table with "
        "foreachBatch",
        modes=("update", "complete"),
        sinks=("file",),
    ),
    Refusal(
        "an endless stream can't be sorted: only a complete result can",
        "remove the sort, and sort when you read from the sink",
        modes=OUTPUT_MODES,
        queries=("sorted",),
    ),
    Refusal(
        "a sort needs the whole result, which only complete mode writes",
        "use mode 'complete', or remove the sort",
        modes=("append", "update"),
        queries=("sorted_aggregation",),
        hint_for_files="remove the sort, and sort when you read the files",
    ),
    Refusal(
        "update mode would replace rows that the limit has already counted",
        "use mode 'append'",
        modes=("update",),
        queries=("limit",),
    ),
    Refusal(
        WITHOUT_WATERMARK,
        "declare a watermark on the event time before the aggregation and group by that column "
        "or a window over it, or use mode 'update' or 'complete'",
        modes=("append",),
        queries=("aggregation",),
        hint_for_files="declare a watermark on the event time before the aggregation, and group by "
        "that column or a window over it",
    ),
    Refusal(
        WITHOUT_WATERMARK,
        "declare a watermark on the event time before the aggregation, or use mode 'complete'",
        modes=("append",),
        queries=("session_window",),
        hint_for_files="declare a watermark on the event time before the aggregation",
    ),
    Refusal(
        "a session that grows or merges changes its key, so no row can be updated",
        "use mode 'append' with a watermark, or mode 'complete'",
        modes=("update",),
        queries=("session_window", "watermarked_session_window"),
    ),
    Refusal(
        "the first aggregation would send rows that it corrects later, and the second one can't "
        "take them back",
        "use mode 'append' with a watermark, or write the first result to a table and start a "
        "second query on it",
        modes=("update", "complete"),
        queries=("chained_aggregation",),
    ),
    Refusal(
        WITHOUT_AGGREGATION,
        "use mode 'append'",
        modes=("complete",),
        queries=("limit", "outer_join", "stateful"),
    ),
    Refusal(
        WITHOUT_AGGREGATION,
        "use mode 'update', which the function was declared with",
        modes=("complete",),
        queries=("stateful_update",),
    ),
    Refusal(
        WITHOUT_AGGREGATION,
        "use mode 'append' or 'update'",
        modes=("complete",),
        queries=(
            "stateless",
            "deduplication",
            "deduplication_within_watermark",
            "inner_join",
            "semi_join",
        ),
    ),
    Refusal(
        "a row without a match is written only once the watermark shows that none will come, so "
        "there is nothing to update",
        "use mode 'append'",
        modes=("update",),
        queries=("outer_join",),
    ),
    Refusal(
        "the function was declared with output mode append, and the query must use the same",
        "use mode 'append'",
        modes=("update",),
        queries=("stateful",),
    ),
    Refusal(
        "the function was declared with output mode update, and the query must use the same",
        "use mode 'update'",
        modes=("append",),
        queries=("stateful_update",),
        hint_for_files="declare the function with output mode append",
    ),
)

# Spark 3.5 to 4.1 refuse these with "Join between two streaming DataFrames/Datasets is not
# supported in Update output mode"; all other combinations are the same in 3.5 and 4.3.
SINCE: Final = {("inner_join", "update"): "4.2", ("semi_join", "update"): "4.2"}


def output_rules() -> tuple[OutputRule, ...]:
    """Return the whole table: every query type in every output mode with every sink."""
    return tuple(_rule(*cell) for cell in product(QUERY_TYPES, OUTPUT_MODES, SINKS))


@explains
def check_output(query: QueryType | None, mode: OutputMode, sink: Sink | None = None) -> None:
    """
    Check that a query of this type may write in this mode to this sink.

    Args:
        query: The type of the query; with None, only what no query may do is refused.
        mode: The output mode.
        sink: The sink; with None, only what no sink allows is refused.

    Raises:
        SpecError: The mode doesn't exist, or Spark refuses the combination. The message says why,
            and what to change.
    """
    if mode not in OUTPUT_MODES:
        found = f"`mode` must be one of {', '.join(OUTPUT_MODES)}, found {mode!r}"
        raise SpecError(with_hint(found, "most queries use 'append'"))
    refusal = refusal_of(query, mode, sink)
    if refusal is None:
        return
    subject = "a query" if query is None else f"a query of type {query}"
    target = "" if sink is None else f" to the {sink} sink"
    found = f"{subject} can't write{target} in mode {mode!r}: {refusal.reason}"
    raise SpecError(with_hint(found, refusal.advice(sink)))


def _rule(query: QueryType, mode: OutputMode, sink: Sink) -> OutputRule:
    refusal = refusal_of(query, mode, sink)
    if refusal is None:
        return OutputRule(query, mode, sink, None, None, SINCE.get((query, mode)))
    return OutputRule(query, mode, sink, refusal.reason, refusal.advice(sink))


def refusal_of(query: QueryType | None, mode: OutputMode, sink: Sink | None) -> Refusal | None:
    return next((each for each in REFUSALS if each.covers(query, mode, sink)), None)
