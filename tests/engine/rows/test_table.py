"""What follows from a value is made once."""

import gc

import attrs

from sessionkit._engine.rows.table import remembered


@attrs.frozen
class Unhashable:
    """A value as a spec is one: frozen, with a dict in it."""

    content: dict[str, int]


def test_a_value_is_asked_once() -> None:
    """Another one, equal or not, is asked anew."""
    asked: list[Unhashable] = []

    @remembered
    def size(value: Unhashable) -> int:
        asked.append(value)
        return len(value.content)

    one, equal = Unhashable({"a": 1}), Unhashable({"a": 1})

    assert [1, 1, 1] == [size(one), size(equal), size(one)]
    assert [id(one), id(equal)] == list(map(id, asked))


def test_nothing_is_remembered_of_a_value_that_is_gone() -> None:
    """Its place in memory may become that of another value."""

    @remembered
    def content(value: Unhashable) -> dict[str, int]:
        return value.content

    for number in range(100):
        assert {"a": number} == content(Unhashable({"a": number}))
        gc.collect(0)
