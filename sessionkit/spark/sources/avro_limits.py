"""
What a payload of Avro asks for, found out before fastavro decodes it.

fastavro calls itself for each level, so a deep payload ends the process by a segmentation fault;
it makes an item of no bytes as often as a payload says; and its time for a decimal grows with the
square of the bytes. Here nothing is built, and nothing calls itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from sessionkit.spark.sources.payloads import Avro

__all__ = ["LimitError", "checker"]

Kind: TypeAlias = Literal["fixed", "number", "bytes", "union", "record", "pair", "array", "map"]

SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
NUMBERS: Final = frozenset({"int", "long", "enum"})
MOST_DIGITS: Final = 10
MOST_DECIMAL_BYTES: Final = 10_000
"""A decimal of as many bytes takes fastavro 20 ms, and one of ten times as many a hundred times."""


class LimitError(ValueError):
    """A payload asks for more than it may; the message is the whole reason."""


@attrs.define(eq=False)
class Node:
    """A type of the schema; one that contains itself is among its own parts."""

    kind: Kind
    size: int = 0
    parts: list["Node"] = attrs.field(factory=list, repr=False)
    is_decimal: bool = False


def checker(payload: Avro, schema: Any) -> Callable[[bytes, int], None]:
    """Return what raises a LimitError for a payload that asks for too much, from a place on."""
    nodes: list[Node] = []
    root = _node(schema, {}, nodes)
    harmless = _harmless_bytes(payload, nodes)

    def check(data: bytes, start: int) -> None:
        if len(data) > harmless:
            _Walk(data, payload, start).over(root)

    return check


def _harmless_bytes(payload: Avro, nodes: list[Node]) -> int:
    """Return how many bytes can't meet a limit, whatever they are."""
    # An item takes a byte, and a record of a union may be one of them.
    most = payload.max_items // 2
    if any(node.is_decimal for node in nodes):
        most = min(most, MOST_DECIMAL_BYTES)
    if any(_reaches(node, node) for node in nodes):
        # From a record into itself it's a byte at least, with every other record between.
        records = sum(node.kind == "record" for node in nodes)
        most = min(most, payload.max_depth // (records + 1))
    takes_none = any(node.kind == "array" and _takes_none(node.parts[0]) for node in nodes)
    return -1 if takes_none else most


def _reaches(start: Node, goal: Node) -> bool:
    todo, seen = [*start.parts], set[int]()
    while todo:
        node = todo.pop()
        if node is goal:
            return True
        if id(node) not in seen:
            seen.add(id(node))
            todo += node.parts
    return False


def _takes_none(node: Node) -> bool:
    """Return whether a value may take no byte; a record in itself is behind a union or an array."""
    if node.kind == "record":
        return all(map(_takes_none, node.parts))
    return node.kind == "fixed" and not node.size


def _node(schema: Any, named: dict[str, Node], nodes: list[Node]) -> Node:
    """Return the node of a parsed schema, in which a name stands for what it has named before."""
    while isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        schema = schema["type"]
    if isinstance(schema, str):
        schema = {"type": schema}
    if isinstance(schema, Mapping) and schema["type"] in named:
        return named[schema["type"]]
    if isinstance(schema, list):
        node, parts = Node("union"), schema
    else:
        node, parts = _typed(schema)
    nodes.append(node)
    if isinstance(schema, Mapping) and "name" in schema:
        named[schema["name"]] = node
    node.parts += [_node(part, named, nodes) for part in parts]
    if node.kind == "map":
        node.parts = [Node("pair", parts=[Node("bytes"), *node.parts])]
    return node


def _typed(schema: Mapping[str, Any]) -> tuple[Node, list[Any]]:
    match schema["type"]:
        case "record" | "error":
            return Node("record"), [field["type"] for field in schema["fields"]]
        case "array":
            return Node("array"), [schema["items"]]
        case "map":
            return Node("map"), [schema["values"]]
        case "fixed":
            return Node("fixed", schema["size"]), []
        case "bytes" | "string":
            return Node("bytes", is_decimal=schema.get("logicalType") == "decimal"), []
        case str(name) if name in SIZES:
            return Node("fixed", SIZES[name]), []
        case _:
            return Node("number"), []


@attrs.define
class _Walk:
    """A way over the bytes of a payload, from value to value."""

    data: bytes
    limits: Avro
    at: int
    items: int = 0

    def over(self, root: Node) -> None:
        """Pass all values; those still to pass are on a stack, with their depth and how often."""
        todo: list[tuple[Node, int, int]] = [(root, 1, 1)]
        while todo:
            node, depth, times = todo.pop()
            if depth > self.limits.max_depth:
                text = f"its payload is deeper than the {self.limits.max_depth} of `max_depth`"
                raise LimitError(text)
            if times > 1:
                todo.append((node, depth, times - 1))
            match node.kind:
                case "fixed":
                    self.skip(node.size)
                case "number":
                    self.number()
                case "bytes":
                    self.text(node)
                case "union":
                    todo.append((self.chosen(node), depth, 1))
                case "record" | "pair":
                    inner = depth + (node.kind == "record")
                    todo += [(part, inner, 1) for part in reversed(node.parts)]
                case _:
                    todo += self.block(node, depth)

    def number(self) -> int:
        """Pass a number, and return it."""
        found = 0
        for place in range(MOST_DIGITS):
            self.skip(1)
            digit = self.data[self.at - 1]
            found |= (digit & 0x7F) << 7 * place
            if digit < 0x80:  # noqa: PLR2004 (the highest bit says that more follow)
                return (found >> 1) ^ -(found & 1)
        text = "its payload isn't Avro of this schema: a number has more than ten bytes"
        raise LimitError(text)

    def skip(self, size: int) -> None:
        """Pass so many bytes."""
        self.at += size
        if size < 0 or self.at > len(self.data):
            text = "its payload isn't Avro of this schema: it ends within a value"
            raise LimitError(text)

    def text(self, node: Node) -> None:
        """Pass text or bytes."""
        size = self.number()
        self.skip(size)
        if node.is_decimal and size > MOST_DECIMAL_BYTES:
            text = f"its payload has a decimal of {size} bytes, more than {MOST_DECIMAL_BYTES}"
            raise LimitError(text)

    def chosen(self, union: Node) -> Node:
        """Return which of its types the value of a union has."""
        place = self.number()
        if not 0 <= place < len(union.parts):
            text = f"its payload isn't Avro of this schema: a union has no type {place}"
            raise LimitError(text)
        self.count(union.parts[place].kind == "record")
        return union.parts[place]

    def block(self, node: Node, depth: int) -> list[tuple[Node, int, int]]:
        """Return what follows in an array or a map: nothing, or items and another block."""
        count = self.number()
        if count < 0:
            self.number()
        self.count(abs(count))
        (item,) = node.parts
        if item.kind != "fixed":
            return [(node, depth, 1), (item, depth + 1, abs(count))] if count else []
        self.skip(abs(count) * item.size)
        return [(node, depth, 1)] if count else []

    def count(self, items: int) -> None:
        """Add up the items."""
        self.items += items
        if self.items > self.limits.max_items:
            text = f"its payload has more items than the {self.limits.max_items} of `max_items`"
            raise LimitError(text)
