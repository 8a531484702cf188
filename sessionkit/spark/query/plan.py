"""What kind of query a streaming DataFrame is, read from its analyzed plan."""

import re
from collections.abc import Iterator
from typing import Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sessionkit.spark._output_rules import QueryType
from sessionkit.spark._plan_tree import PlanNode, analyzed_plan, plan_lines, plan_tree

WATERMARK: Final = "EventTimeWatermark"
WRAPPERS_OF_EXPLAIN: Final = 3
STATELESS: Final = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "CollectMetrics",
        "DeserializeToObject",
        WATERMARK,
        "Filter",
        "Generate",
        "LocalLimit",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "PythonMapInArrow",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
    }
)
DEDUPLICATIONS: Final[dict[str, QueryType]] = {
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication_within_watermark",
}
JOINS: Final[dict[str, QueryType]] = {
    "Inner": "inner_join",
    "Cross": "inner_join",
    "LeftSemi": "semi_join",
    "LeftOuter": "outer_join",
    "RightOuter": "outer_join",
    "FullOuter": "outer_join",
}
STATEFUL: Final = "FlatMapGroupsInPandasWithState"
STATEFUL_MODES: Final[dict[str, QueryType]] = {"Append": "stateful", "Update": "stateful_update"}
STATEFUL_END: Final = re.compile(r", (?P<mode>Append|Update), \w+$")
PROCESSING_TIME: Final = re.compile(r"\bProcessingTime(?:Timeout)?\b")
TIMED: Final = frozenset({STATEFUL, "FlatMapGroupsWithState"})
TIMED_PREFIX: Final = "TransformWithState"

WATERMARKED: Final = re.compile(r".*#\d+L?-T\d+ms", re.DOTALL)
SESSION_WINDOW: Final = re.compile(r"session_window#(?P<id>\d+)(?:-T\d+ms)?")
LEFT_OUT: Final = re.compile(r"\.\.\. \d+ more fields")

# The names of the operators in `state-metadata`.
NAMES_IN_CHECKPOINT: Final[dict[str, str]] = {
    "Deduplicate": "dedupe",
    "DeduplicateWithinWatermark": "dedupeWithinWatermark",
    "GlobalLimit": "globalLimit",
    "Join": "symmetricHashJoin",
    STATEFUL: "applyInPandasWithState",
}


@attrs.frozen
class Plan:
    """
    What is known about a streaming query before it starts.

    Attributes:
        query: The type of the query; None if it isn't a known type.
        stateful_operators: The names of its stateful operators as in checkpoints, sorted; None if
            the type of the query isn't known.
        has_processing_time_timeout: Whether an operator waits for processing time.
        ends_in_python_state: Whether the rows come straight from `applyInPandasWithState`.
        has_aggregation: Whether the stream is aggregated.
        is_watermarked_late: Whether a watermark is declared after an aggregation.
    """

    query: QueryType | None = None
    stateful_operators: tuple[str, ...] | None = None
    has_processing_time_timeout: bool = False
    ends_in_python_state: bool = False
    has_aggregation: bool = False
    is_watermarked_late: bool = False


def query_type_of(frame: DataFrame) -> QueryType | None:
    """Return the type of a streaming query; None if it isn't a known type."""
    return plan_of(frame).query


def plan_of(frame: DataFrame) -> Plan:
    """Return what the analyzed plan of a streaming DataFrame says, without running anything."""
    try:
        text = analyzed_plan(frame)
    except PySparkException:
        return Plan()  # Spark can't explain it; let Spark say whether it can run it
    root = plan_tree(text)
    return _read_by_line(text) if root is None else _read(root)


def _read_by_line(text: str) -> Plan:
    """Return what is certain about a plan that can't be parsed: whether it would never end."""
    return Plan(has_processing_time_timeout=any(map(_waits, plan_lines(text))))


def _read(root: PlanNode) -> Plan:
    streaming = [node for node in root.walk() if node.is_streaming]
    operators = [node for node in streaming if not _is_stateless(node)]
    query = _type(operators)
    last = [node.operator for node in streaming[WRAPPERS_OF_EXPLAIN:][:1]]
    return Plan(
        query=query,
        stateful_operators=None if query is None else tuple(sorted(_stateful(operators))),
        has_processing_time_timeout=any(_waits(node) for node in operators),
        ends_in_python_state=last == [STATEFUL],
        has_aggregation=any(_aggregates(node) for node in streaming),
        is_watermarked_late=any(
            node.operator == WATERMARK and any(map(_aggregates, node.walk())) for node in streaming
        ),
    )


def _aggregates(node: PlanNode) -> bool:
    """Return whether a node aggregates a stream, rather than a table that is joined to it."""
    return node.operator == "Aggregate" and node.is_streaming


def _is_stateless(node: PlanNode) -> bool:
    if node.operator == "Join":
        return not all(side.is_streaming for side in node.inputs)
    return node.operator in STATELESS or not node.inputs


def _waits(node: PlanNode) -> bool:
    is_timed = node.operator in TIMED or node.operator.startswith(TIMED_PREFIX)
    return is_timed and PROCESSING_TIME.search(node.text) is not None


def _type(operators: list[PlanNode]) -> QueryType | None:
    """Return the type, given the operators that aren't stateless, from sink to source."""
    match [node.operator for node in operators]:
        case []:
            return "stateless"
        case ["Sort"]:
            return "sorted"
        case ["GlobalLimit"]:
            return "limit"
        case ["Sort", "Aggregate"] | ["GlobalLimit", "Sort", "Aggregate"]:
            return "sorted_aggregation"
        case ["Aggregate"] | ["Aggregate", "Deduplicate" | "DeduplicateWithinWatermark"]:
            return _aggregation(operators[0])
        case ["Aggregate", "Aggregate", *more] if set(more) <= {"Aggregate"}:
            is_chain = any(node is operators[-1] for node in operators[0].walk())
            return "chained_aggregation" if is_chain else None
        case ["Deduplicate" | "DeduplicateWithinWatermark" as deduplicate]:
            return DEDUPLICATIONS[deduplicate]
        case ["Join"]:
            return JOINS.get(operators[0].text.partition(",")[0])
        case ["FlatMapGroupsInPandasWithState", *more] if set(more) <= set(DEDUPLICATIONS):
            found = STATEFUL_END.search(operators[0].text)
            return None if found is None else STATEFUL_MODES[found["mode"]]
        case _:
            return None


def _aggregation(node: PlanNode) -> QueryType | None:
    grouping = _first_list(node.text)
    is_watermarked = any(WATERMARKED.fullmatch(column) for column in grouping)
    if not is_watermarked and any(LEFT_OUT.search(column) for column in grouping):
        return None
    if any(_is_session_window(column, node) for column in grouping):
        return "watermarked_session_window" if is_watermarked else "session_window"
    return "watermarked_aggregation" if is_watermarked else "aggregation"


def _first_list(text: str) -> list[str]:
    """Return the columns of the first bracketed list; a column may contain brackets too."""
    columns, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth == 0:
            break
        if depth == 1 and letter == ",":
            columns.append("")
        elif depth > 1 or letter != "[":
            columns[-1] += letter
    return [column.strip() for column in columns]


def _is_session_window(column: str, node: PlanNode) -> bool:
    """Return whether a column is a session window, made right below, and not just named so."""
    found = SESSION_WINDOW.fullmatch(column)
    if found is None:
        return False
    made = re.compile(rf"named_struct\(start, .* AS session_window#{found['id']}\b")
    return any(made.search(each.text) for each in node.walk() if each.operator == "Project")


def _stateful(operators: list[PlanNode]) -> Iterator[str]:
    for node in operators:
        if node.operator == "Aggregate":
            session = any(_is_session_window(each, node) for each in _first_list(node.text))
            yield "sessionWindowStateStoreSaveExec" if session else "stateStoreSave"
        elif node.operator in NAMES_IN_CHECKPOINT and not _keeps_no_state(node):
            yield NAMES_IN_CHECKPOINT[node.operator]


def _keeps_no_state(limit: PlanNode) -> bool:
    """Return whether it is a limit after an aggregation, which starts over in each batch."""
    return limit.operator == "GlobalLimit" and any(
        node.operator == "Aggregate" for node in limit.walk()
    )
