"""The analyzed plan of a streaming DataFrame, as a tree of operators."""

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise
from typing import Final
from uuid import uuid4

import attrs
from pyspark.sql import DataFrame, Row

# Spark has no public value for a plan, but its text is public: EXPLAIN returns it, and
# `frame.explain` prints it, which we could only read by redirecting the output of every thread.
EXPLAIN: Final = "EXPLAIN EXTENDED SELECT * FROM"
ANALYZED: Final = "== Analyzed Logical Plan =="
AFTER_ANALYZED: Final = "== Optimized Logical Plan =="
LINE: Final = re.compile(
    r"(?P<branch>(?:[: ] {2})*(?:[:+]- )?)~?(?P<operator>[A-Z]\w*)(?P<text>.*)"
)
BRANCH_WIDTH: Final = 3

STREAMING_LEAF: Final = "Streaming"


@attrs.frozen
class PlanNode:
    """A line of the plan: an operator, the text after its name, and its inputs."""

    operator: str
    text: str
    inputs: "tuple[PlanNode, ...]"

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
    """Return the text of the analyzed plan, without running anything."""
    rows = _explained(frame)
    return str(rows[0][0]).partition(ANALYZED)[2].partition(AFTER_ANALYZED)[0]


def _explained(frame: DataFrame) -> list[Row]:
    # On Connect, `sql` of Spark 3.5 takes no frames.
    name, spark = f"explained_{uuid4().hex}", frame.sparkSession
    frame.createTempView(name)
    try:
        return spark.sql(f"{EXPLAIN} {name}").collect()
    finally:
        spark.catalog.dropTempView(name)


def plan_lines(text: str) -> list[PlanNode]:
    """Return the operators of a plan without their inputs, where the text has any."""
    lines = filter(None, map(LINE.fullmatch, text.splitlines()))
    return [PlanNode(line["operator"], line["text"], ()) for line in lines]


def plan_tree(text: str) -> PlanNode | None:
    """Return the root; None if the user's text, such as a literal, contains a line break."""
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
    """Return whether a line comes before the projection that EXPLAIN makes of `*`."""
    return not line.startswith(("Project [", "~Project ["))


def _nodes(lines: list[tuple[int, str, str]], depth: int) -> tuple[PlanNode, ...]:
    """Return the nodes at this depth, each with the deeper nodes that follow it."""
    starts = [place for place, line in enumerate(lines) if line[0] == depth]
    nodes = []
    for start, end in pairwise([*starts, len(lines)]):
        _, operator, text = lines[start]
        nodes.append(PlanNode(operator, text, _nodes(lines[start + 1 : end], depth + 1)))
    return tuple(nodes)
