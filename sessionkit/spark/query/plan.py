"""What kind of query a streaming DataFrame is, read from its analyzed plan."""

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from typing import Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sessionkit.spark.query.rules import QueryType

__all__ = ["Plan", "plan_of", "query_type_of"]

# Spark has no public value for a plan. Its text is public: of EXPLAIN, which returns it, and of
# `frame.explain`, which prints it, so that reading it would redirect the output of every thread.
EXPLAIN: Final = "EXPLAIN EXTENDED SELECT * FROM {frame}"
ANALYZED: Final = "== Analyzed Logical Plan =="
BEHIND_ANALYZED: Final = "== Optimized Logical Plan =="
LINE: Final = re.compile(
    r"(?P<branch>(?:[: ] {2})*(?:[:+]- )?)~?(?P<operator>[A-Z]\w*)(?P<text>.*)"
)
BRANCH_WIDTH: Final = 3

STREAMING_LEAF: Final = "Streaming"
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

# How Spark calls the operators in `state-metadata`.
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
    What is known of a streaming query before it starts.

    Attributes:
        query: The type of the query; None where it is none of those that are known.
        stateful_operators: The names of its stateful operators as checkpoints hold them, sorted;
            None where the type of the query is not known.
        has_processing_time_timeout: Whether an operator waits for processing time.
        ends_in_python_state: Whether the rows are those of `applyInPandasWithState` as they are.
        has_aggregation: Whether the stream is aggregated.
        is_watermarked_late: Whether a watermark is declared on rows that are aggregated already.
    """

    query: QueryType | None = None
    stateful_operators: tuple[str, ...] | None = None
    has_processing_time_timeout: bool = False
    ends_in_python_state: bool = False
    has_aggregation: bool = False
    is_watermarked_late: bool = False


@attrs.frozen
class _Node:
    """A line of the plan: an operator, what stands behind its name, and its inputs."""

    operator: str
    text: str
    inputs: "tuple[_Node, ...]"

    @property
    def is_streaming(self) -> bool:
        if not self.inputs:
            return self.operator.startswith(STREAMING_LEAF)
        return any(node.is_streaming for node in self.inputs)

    def walk(self) -> "Iterator[_Node]":
        """Yield this node, then those below."""
        yield self
        for node in self.inputs:
            yield from node.walk()


def query_type_of(frame: DataFrame) -> QueryType | None:
    """Return the type of a streaming query; None where it is none of those that are known."""
    return plan_of(frame).query


def plan_of(frame: DataFrame) -> Plan:
    """Return what the analyzed plan of a streaming DataFrame tells; nothing is run for it."""
    try:
        rows = frame.sparkSession.sql(EXPLAIN, frame=frame).collect()
    except PySparkException:
        return Plan()  # Spark cannot explain it; whether it can run it is for Spark to say
    text = str(rows[0][0]).partition(ANALYZED)[2].partition(BEHIND_ANALYZED)[0]
    root = _tree(text)
    return _read_by_line(text) if root is None else _read(root)


def _read_by_line(text: str) -> Plan:
    """Return what is certain of a plan that has no shape: a query that never ends is worth it."""
    lines = filter(None, map(LINE.fullmatch, text.splitlines()))
    nodes = [_Node(line["operator"], line["text"], ()) for line in lines]
    return Plan(has_processing_time_timeout=any(map(_waits, nodes)))


def _tree(text: str) -> _Node | None:
    """Return the root; None where a text of the user, such as a literal, breaks a line."""
    lines: list[tuple[int, str, str]] = []
    for line in dropwhile(_is_header, text.strip().splitlines()):
        found = LINE.fullmatch(line)
        if found is None:
            return None
        depth = len(found["branch"]) // BRANCH_WIDTH
        if not (0 < depth <= lines[-1][0] + 1 if lines else depth == 0):
            return None
        lines.append((depth, found["operator"], found["text"].strip()))
    return _nodes(lines, 0)[0] if lines else None


def _is_header(line: str) -> bool:
    """Tell the columns, which stand first, from the projection that EXPLAIN makes of `*`."""
    return not line.startswith(("Project [", "~Project ["))


def _nodes(lines: list[tuple[int, str, str]], depth: int) -> tuple[_Node, ...]:
    """Return the nodes of this depth, each with those that follow it further in."""
    starts = [place for place, line in enumerate(lines) if line[0] == depth]
    nodes = []
    for start, end in pairwise([*starts, len(lines)]):
        _, operator, text = lines[start]
        nodes.append(_Node(operator, text, _nodes(lines[start + 1 : end], depth + 1)))
    return tuple(nodes)


def _read(root: _Node) -> Plan:
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


def _aggregates(node: _Node) -> bool:
    """Tell the aggregation of a stream from that of a table which is joined to it."""
    return node.operator == "Aggregate" and node.is_streaming


def _is_stateless(node: _Node) -> bool:
    if node.operator == "Join":
        return not all(side.is_streaming for side in node.inputs)
    return node.operator in STATELESS or not node.inputs


def _waits(node: _Node) -> bool:
    is_timed = node.operator in TIMED or node.operator.startswith(TIMED_PREFIX)
    return is_timed and PROCESSING_TIME.search(node.text) is not None


def _type(operators: list[_Node]) -> QueryType | None:
    """Return the type by the operators that are not stateless, from the sink to the source."""
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


def _aggregation(node: _Node) -> QueryType | None:
    grouping = _first_list(node.text)
    is_watermarked = any(WATERMARKED.fullmatch(column) for column in grouping)
    if not is_watermarked and any(LEFT_OUT.search(column) for column in grouping):
        return None
    if any(_is_session_window(column, node) for column in grouping):
        return "watermarked_session_window" if is_watermarked else "session_window"
    return "watermarked_aggregation" if is_watermarked else "aggregation"


def _first_list(text: str) -> list[str]:
    """Return the columns of the first list in brackets; brackets within them are theirs."""
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


def _is_session_window(column: str, node: _Node) -> bool:
    """Tell a session window from a column that is only called so: it is made right below."""
    found = SESSION_WINDOW.fullmatch(column)
    if found is None:
        return False
    made = re.compile(rf"named_struct\(start, .* AS session_window#{found['id']}\b")
    return any(made.search(each.text) for each in node.walk() if each.operator == "Project")


def _stateful(operators: list[_Node]) -> Iterator[str]:
    for node in operators:
        if node.operator == "Aggregate":
            session = any(_is_session_window(each, node) for each in _first_list(node.text))
            yield "sessionWindowStateStoreSaveExec" if session else "stateStoreSave"
        elif node.operator in NAMES_IN_CHECKPOINT and not _keeps_no_state(node):
            yield NAMES_IN_CHECKPOINT[node.operator]


def _keeps_no_state(limit: _Node) -> bool:
    """Tell a limit of complete mode: behind an aggregation it begins anew in each batch."""
    return limit.operator == "GlobalLimit" and any(
        node.operator == "Aggregate" for node in limit.walk()
    )
