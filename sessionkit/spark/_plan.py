"""The analyzed plan of a streaming DataFrame, and what kind of query it is."""

import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import Final
from uuid import uuid4

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sessionkit.spark._output_rules import QueryType

# Spark has no public value for a plan, but its text is public: EXPLAIN returns it, and
# `frame.explain` prints it, which we could only read by redirecting the output of every thread.
EXPLAIN: Final = "EXPLAIN EXTENDED SELECT * FROM"
OBSERVED: Final = "CollectMetrics"
BUCKET_STATS: Final = re.compile(r"\bconcat\((\d+)\|")
"""They begin with the number of buckets."""
ANALYZED: Final = "== Analyzed Logical Plan =="
AFTER_ANALYZED: Final = "== Optimized Logical Plan =="
LINE: Final = re.compile(
    r"(?P<branch>(?:[: ] {2})*(?:[:+]- )?)~?(?P<operator>[A-Z]\w*)(?P<text>.*)"
)
BRANCH_WIDTH: Final = 3
FIRST_LINE: Final = ("Project [", "~Project [")
"""After a header comes the projection that EXPLAIN makes of `*`."""
WRAPPERS_OF_EXPLAIN: Final = 3

STREAMING_LEAF: Final = "Streaming"
WATERMARK: Final = "EventTimeWatermark"
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
DEDUPLICATIONS: Final = {"Deduplicate", "DeduplicateWithinWatermark"}
OF_ONE_OPERATOR: Final[dict[str, QueryType]] = {
    "Sort": "sorted",
    "GlobalLimit": "limit",
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
EVENT_TIME: Final = re.compile(r"\bEventTime(?:Timeout)?\b")
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
class PlanNode:
    """A line of the plan: an operator, the text after its name, and its inputs."""

    operator: str
    text: str
    inputs: "list[PlanNode]" = attrs.field(factory=list)

    @property
    def is_streaming(self) -> bool:
        """Whether it or one of its inputs is a stream."""
        if not self.inputs:
            return self.operator.startswith(STREAMING_LEAF)
        return any(node.is_streaming for node in self.inputs)

    def walk(self) -> Iterator["PlanNode"]:
        """Yield this node, then those below it."""
        yield self
        for node in self.inputs:
            yield from node.walk()


def analyzed_plan(frame: DataFrame) -> str:
    """Return the text of the analyzed plan, without running anything; none if Spark refuses it."""
    # On Connect, `sql` of Spark 3.5 takes no frames.
    name, spark = f"explained_{uuid4().hex}", frame.sparkSession
    try:
        frame.createTempView(name)
        rows = spark.sql(f"{EXPLAIN} {name}").collect()
    except PySparkException:
        return ""  # let Spark say whether it can run it
    finally:
        spark.catalog.dropTempView(name)
    return str(rows[0][0]).partition(ANALYZED)[2].partition(AFTER_ANALYZED)[0]


def plan_tree(text: str) -> PlanNode | None:
    """Return the root; None if the user's text, such as a literal, contains a line break."""
    path: list[PlanNode] = []  # from the root to the line before
    for line in dropwhile(lambda line: not line.startswith(FIRST_LINE), text.strip().splitlines()):
        found = LINE.fullmatch(line)
        depth = -1 if found is None else len(found["branch"]) // BRANCH_WIDTH
        if found is None or not (0 < depth <= len(path) if path else depth == 0):
            return None
        node = PlanNode(found["operator"], found["text"].strip())
        del path[depth:]
        if path:
            path[-1].inputs.append(node)
        path.append(node)
    return path[0] if path else None


@attrs.frozen
class Plan:
    """What is known about a streaming query before it starts."""

    query: QueryType | None = None
    stateful_operators: tuple[str, ...] | None = None
    """Their names as in checkpoints, sorted; None if the type of the query isn't known."""
    has_processing_time_timeout: bool = False
    ends_in_python_state: bool = False
    """Whether the rows come straight from `applyInPandasWithState`."""
    has_aggregation: bool = False
    is_watermarked_late: bool = False
    """Whether a watermark is declared after an aggregation."""
    after_python_state: str | None = None
    """A stateful operator that reads the rows of one of Python, and would lose some of them."""
    python_states: int = 0
    """How many operators are `applyInPandasWithState`."""
    sources: tuple[int, int] | None = None
    """How many sources it has, at least and at most: of one that is read twice, Spark may make one
    or two. None if the plan isn't known."""
    buckets: int | None = None
    """Into how many buckets sessionkit hashes keys; None if that isn't known, or differs."""


def plan_of(frame: DataFrame) -> Plan:
    """Return what the analyzed plan of a streaming DataFrame says, without running anything."""
    text = analyzed_plan(frame)
    root = plan_tree(text)
    if root is None:
        # All that is certain is whether it would never end.
        lines = filter(None, map(LINE.fullmatch, text.splitlines()))
        nodes = [PlanNode(line["operator"], line["text"]) for line in lines]
        return Plan(has_processing_time_timeout=any(map(_waits, nodes)))
    streaming = [node for node in root.walk() if node.is_streaming]
    operators = [node for node in streaming if not _is_stateless(node)]
    query = _type(operators)
    last = [node.operator for node in streaming[WRAPPERS_OF_EXPLAIN:][:1]]
    observed = (node.text for node in streaming if node.operator == OBSERVED)
    leaves = [(node.operator, node.text) for node in streaming if not node.inputs]
    buckets = {int(count) for text in observed for count in BUCKET_STATS.findall(text)}
    return Plan(
        query=query,
        stateful_operators=None if query is None else tuple(sorted(_stateful(operators))),
        has_processing_time_timeout=any(map(_waits, operators)),
        ends_in_python_state=last == [STATEFUL],
        has_aggregation=any(node.operator == "Aggregate" for node in streaming),
        is_watermarked_late=any(
            node.operator == WATERMARK and any(map(_aggregates, node.walk())) for node in streaming
        ),
        after_python_state=next((node.operator for node in operators if _reads_late(node)), None),
        python_states=sum(node.operator == STATEFUL for node in operators),
        sources=(len({*leaves}), len(leaves)),
        buckets=buckets.pop() if len(buckets) == 1 else None,
    )


def _reads_late(node: PlanNode) -> bool:
    """
    Return whether a node drops what is behind the watermark of an operator of Python below it.

    That one closes sessions as the watermark passes their ends, so its rows are behind. Without an
    event-time timeout, a watermark may be declared on the rows it returns.
    """
    if node.operator in {"Deduplicate", "GlobalLimit", "Sort"}:
        return False  # these ask for no watermark
    below = (other for other in node.walk() if other is not node)
    return any(_is_python_state(other) and EVENT_TIME.search(other.text) for other in below)


def _is_python_state(node: PlanNode) -> bool:
    return node.operator == STATEFUL or node.operator.startswith(TIMED_PREFIX)


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
        case [operator] if operator in OF_ONE_OPERATOR:
            return OF_ONE_OPERATOR[operator]
        case ["Sort", "Aggregate"] | ["GlobalLimit", "Sort", "Aggregate"]:
            return "sorted_aggregation"
        case ["Aggregate"] | ["Aggregate", "Deduplicate" | "DeduplicateWithinWatermark"]:
            return _aggregation(operators[0])
        case ["Aggregate", "Aggregate", *more] if set(more) <= {"Aggregate"}:
            is_chain = any(node is operators[-1] for node in operators[0].walk())
            return "chained_aggregation" if is_chain else None
        case ["Join"]:
            return JOINS.get(operators[0].text.partition(",")[0])
        case ["FlatMapGroupsInPandasWithState", *more] if DEDUPLICATIONS.issuperset(more):
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
        elif node.operator == "GlobalLimit" and any(
            below.operator == "Aggregate" for below in node.walk()
        ):
            continue  # after an aggregation it starts over in each batch
        elif node.operator in NAMES_IN_CHECKPOINT:
            yield NAMES_IN_CHECKPOINT[node.operator]
