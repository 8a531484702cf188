"""What only the analyzed plan of a streaming DataFrame says of it, read from its text."""

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile
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
"""After a header comes the projection that EXPLAIN makes of `*`."""

STREAMING_LEAF: Final = "Streaming"
AGGREGATE: Final = "Aggregate"
WATERMARK: Final = "EventTimeWatermark"
DEDUPLICATE: Final = "DeduplicateWithinWatermark"
DROP_LATE_ROWS: Final = frozenset({AGGREGATE, DEDUPLICATE, "Join"})
SETS_EVENT_TIME: Final = "UpdateEventTimeWatermarkColumn"
"""By the event time that it sets, the rows of the operator below are in time for those above."""
STATE_OF_PYTHON: Final = re.compile(r"FlatMapGroupsInPandasWithState|TransformWithState\w*")
FOLDER: Final = re.compile(r"\bFileSource\[(.*?)\], \[")
SOURCE_NAME: Final = re.compile(r'\bname="(\w+)"$')
EVENT_TIME: Final = re.compile(r"\bEventTime(?:Timeout)?\b")
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
        """Whether it or one of its inputs is a stream."""
        if not self.inputs:
            return self.operator.startswith(STREAMING_LEAF)
        return any(node.is_streaming for node in self.inputs)

    @property
    def readings(self) -> tuple[int, ...]:
        """The number of the source of each reading of a stream: one may be read twice."""
        leaves = [(node.operator, node.text) for node in self.walk() if not node.inputs]
        streams = [leaf for leaf in leaves if leaf[0].startswith(STREAMING_LEAF)]
        numbers = {leaf: number for number, leaf in enumerate(dict.fromkeys(streams))}
        return tuple(numbers[leaf] for leaf in streams)

    @property
    def source_names(self) -> set[str]:
        """The names of the streams that are read, where Spark asks for names."""
        found = [SOURCE_NAME.search(node.text) for node in self.walk() if not node.inputs]
        return {one[1] for one in found if one}

    @property
    def folders(self) -> set[str]:
        """The paths of the folders that are read as streams, as the user wrote them."""
        found = [FOLDER.search(node.text) for node in self.walk() if not node.inputs]
        return {one[1] for one in found if one}

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
        """Whether it or a node below it aggregates a stream, rather than a table joined to it."""
        return any(node.operator == AGGREGATE and node.is_streaming for node in self.walk())

    @property
    def is_watermarked_late(self) -> bool:
        return any(node.operator == WATERMARK and node.aggregates_stream for node in self.walk())

    @property
    def watermarked_twice(self) -> Sequence["PlanNode"] | None:
        """
        The operators from a watermark down to another one, which Spark doesn't let it follow.

        Such a query ends in its first micro-batch; if an aggregation or timers wait for the lower
        one, it runs, and the upper one stays at 1970. Below a function with state and no timers in
        event time there may be one: nothing of it goes on.
        """
        for node in self.walk():
            if node.operator == WATERMARK:
                for path in node.paths():
                    if path[-1].operator == WATERMARK and path[-1].is_streaming:
                        return path
        return None

    @property
    def loses_rows_of_python_state(self) -> str | None:
        """
        A stateful operator that would drop rows of one of Python below it as late.

        That one closes sessions as the watermark passes their ends, so its rows are behind, unless
        their end is their event time. Without an event-time timeout, a watermark may be declared on
        the rows it returns.
        """
        for node in self.walk():
            if not node.is_python_state and node.operator not in DROP_LATE_ROWS:
                continue
            goes_on_in_time = node.operator in {AGGREGATE, DEDUPLICATE}
            walked = node.walk(until=SETS_EVENT_TIME if goes_on_in_time else None)
            below = [one for one in walked if one is not node and one.is_python_state]
            of_streams = all(one.is_streaming for one in node.inputs)
            if of_streams and any(EVENT_TIME.search(one.text) for one in below):
                return node.operator
        return None

    def paths(self) -> Iterator[list["PlanNode"]]:
        """Yield the operators down to each one below it, unless the event time ends on the way."""
        for node in self.inputs:
            yield [node]
            if not node.is_python_state or EVENT_TIME.search(node.text):
                yield from ([node, *path] for path in node.paths())

    def walk(self, *, until: str | None = None) -> Iterator["PlanNode"]:
        """Yield this node, then those below it; of an operator named `until`, none of these."""
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
        return None  # let Spark say whether it can run it
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
