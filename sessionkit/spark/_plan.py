"""Read the analyzed plan of a streaming DataFrame from its text."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, dropwhile
from typing import Final
from uuid import uuid4

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

# Spark has no public value for a plan, but its text is public: EXPLAIN returns it, and
# `frame.explain` prints it, which we could only read by redirecting the output of every thread.
EXPLAIN: Final = "EXPLAIN EXTENDED SELECT * FROM"
ANALYZED: Final = "== Analyzed Logical Plan =="
AFTER_ANALYZED: Final = "== Optimized Logical Plan =="
LINE: Final = re.compile(
    r"(?P<branch>(?:[: ] {2})*(?:[:+]- )?)~?(?P<operator>[A-Z]\w*)(?P<text>.*)"
)
BRANCH_WIDTH: Final = 3
FIRST_LINE: Final = ("Project [", "~Project [")
"""The start of the projection that EXPLAIN makes of `*`, after a header."""

STREAMING_LEAF: Final = "Streaming"
AGGREGATE: Final = "Aggregate"
WATERMARK: Final = "EventTimeWatermark"
DEDUPLICATE: Final = "DeduplicateWithinWatermark"
DROP_LATE_ROWS: Final = frozenset({AGGREGATE, DEDUPLICATE, "Join"})
SETS_EVENT_TIME: Final = "UpdateEventTimeWatermarkColumn"
"""The operator that sets an event time by which the rows below aren't late for operators above."""
STATE_OF_PYTHON: Final = re.compile(r"FlatMapGroupsInPandasWithState|TransformWithState\w*")
FOLDER: Final = re.compile(r"\bFileSource\[(.*?)\], \[")
SOURCE_NAME: Final = re.compile(r'\bname="(\w+)"$')
EVENT_TIME: Final = re.compile(r"\bEventTime(?:Timeout)?\b")
DEFAULT_BUCKETS: Final = "default_buckets_"
"""The alias, with a number after it, of rows whose bucket count comes from a setting."""
APPEND: Final = re.compile(r"\bAppend\b")
PROCESSING_TIME: Final = re.compile(r"\bProcessingTime(?:Timeout)?\b")


@attrs.frozen
class PlanNode:
    """A line of the plan: an operator, the text after its name, and its inputs."""

    operator: str
    text: str
    inputs: "list[PlanNode]" = attrs.field(factory=list)

    @property
    def is_streaming(self) -> bool:
        if not self.inputs:
            return self.operator.startswith(STREAMING_LEAF)
        return any(node.is_streaming for node in self.inputs)

    @property
    def readings(self) -> tuple[int, ...]:
        """The source number of each reading of a stream: a source may be read twice."""
        leaves = [(node.operator, node.text) for node in self.walk() if not node.inputs]
        streams = [leaf for leaf in leaves if leaf[0].startswith(STREAMING_LEAF)]
        numbers = {leaf: number for number, leaf in enumerate(dict.fromkeys(streams))}
        return tuple(numbers[leaf] for leaf in streams)

    @property
    def source_names(self) -> set[str]:
        """The names of the streams that are read, where Spark asks for names."""
        matches = [SOURCE_NAME.search(node.text) for node in self.walk() if not node.inputs]
        return {match[1] for match in matches if match}

    @property
    def default_buckets(self) -> int | None:
        """The bucket count that the frame has from a setting; None if a spec or a seed says it."""
        named = (node.text for node in self.walk() if node.operator == "SubqueryAlias")
        counts = [text for text in named if text.startswith(DEFAULT_BUCKETS)]
        return int(counts[0].removeprefix(DEFAULT_BUCKETS)) if counts else None

    @property
    def folders(self) -> set[str]:
        """The paths of the folders that are read as streams, as the user wrote them."""
        matches = [FOLDER.search(node.text) for node in self.walk() if not node.inputs]
        return {match[1] for match in matches if match}

    @property
    def is_python_state(self) -> bool:
        return STATE_OF_PYTHON.fullmatch(self.operator) is not None

    @property
    def waits_for_clock(self) -> bool:
        """Whether a stateful operator of Python has timers in processing time."""
        return any(
            node.is_python_state and PROCESSING_TIME.search(node.text) for node in self.walk()
        )

    @property
    def returns_final_rows(self) -> bool:
        """Whether a stateful operator of Python returns its rows in mode `append`."""
        return any(node.is_python_state and APPEND.search(node.text) for node in self.walk())

    @property
    def aggregates_stream(self) -> bool:
        """Whether this node or one below aggregates a stream, rather than a table joined to it."""
        return any(node.operator == AGGREGATE and node.is_streaming for node in self.walk())

    @property
    def is_watermarked_late(self) -> bool:
        return any(node.operator == WATERMARK and node.aggregates_stream for node in self.walk())

    @property
    def watermarked_twice(self) -> Sequence["PlanNode"] | None:
        """
        The operators from a watermark down to a second one, which Spark doesn't support.

        Such a query ends in its first micro-batch; if an aggregation or timers use the lower
        watermark, it runs, and the upper one stays at 1970. A watermark below a stateful function
        without event-time timers is allowed, since it ends there.
        """
        upper = (node for node in self.walk() if node.operator == WATERMARK)
        for path in chain.from_iterable(node.paths() for node in upper):
            if path[-1].operator == WATERMARK and path[-1].is_streaming:
                return path
        return None

    @property
    def loses_rows_of_python_state(self) -> str | None:
        """
        The operator that would drop rows of a stateful operator of Python below it as late.

        The lower operator closes sessions as the watermark passes their ends, so its rows are late,
        unless their end is their event time. Without an event-time timeout, a watermark may be
        declared on its rows.
        """
        for node in self.walk():
            if not node.is_python_state and node.operator not in DROP_LATE_ROWS:
                continue
            keeps_event_time = node.operator in {AGGREGATE, DEDUPLICATE}
            walked = node.walk(until=SETS_EVENT_TIME if keeps_event_time else None)
            below = [lower for lower in walked if lower is not node and lower.is_python_state]
            of_streams = all(lower.is_streaming for lower in node.inputs)
            if of_streams and any(EVENT_TIME.search(lower.text) for lower in below):
                return node.operator
        return None

    def paths(self) -> Iterator[list["PlanNode"]]:
        """Yield the operators down to each node below, as far down as the event time lasts."""
        for node in self.inputs:
            yield [node]
            if not node.is_python_state or EVENT_TIME.search(node.text):
                yield from ([node, *path] for path in node.paths())

    def walk(self, *, until: str | None = None) -> Iterator["PlanNode"]:
        """Yield this node, then the nodes below, except below an operator named `until`."""
        yield self
        for node in self.inputs if self.operator != until else ():
            yield from node.walk(until=until)


def plan_of(frame: DataFrame) -> PlanNode | None:
    """Return the root of the analyzed plan, without running anything; None if it can't be read."""
    # On Connect, `sql` of Spark 3.5 takes no frames.
    name, spark = f"explained_{uuid4().hex}", frame.sparkSession
    try:
        frame.createTempView(name)
    except PySparkException:
        return None  # a declarative pipeline makes no views while it's read
    try:
        rows = spark.sql(f"{EXPLAIN} {name}").collect()
    except PySparkException:
        return None  # Spark refuses the frame itself when the query starts
    finally:
        spark.catalog.dropTempView(name)
    return plan_tree(str(rows[0][0]).partition(ANALYZED)[2].partition(AFTER_ANALYZED)[0])


def plan_tree(text: str) -> PlanNode | None:
    """Return the root; None if the user's text, such as a literal, contains a line break."""
    path: list[PlanNode] = []  # from the root to the line before
    for line in dropwhile(lambda line: not line.startswith(FIRST_LINE), text.strip().splitlines()):
        match = LINE.fullmatch(line)
        depth = -1 if match is None else len(match["branch"]) // BRANCH_WIDTH
        if match is None or not (0 < depth <= len(path) if path else depth == 0):
            return None
        node = PlanNode(match["operator"], match["text"].strip())
        del path[depth:]
        if path:
            path[-1].inputs.append(node)
        path.append(node)
    return path[0] if path else None
