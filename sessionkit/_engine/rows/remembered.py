"""What follows from a frozen value, such as a spec, made once for as long as the value lives."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar
from weakref import ref

V = TypeVar("V")
T = TypeVar("T")


def remembered(make: Callable[[V], T]) -> Callable[[V], T]:
    """
    Make a function remember what it returned for each value.

    A spec holds dicts, so it has no hash, and `functools.cache` can't be used. Values are told
    apart by identity: a copy, such as one from a pickle, is another value.
    """
    made: dict[int, tuple[ref[Any], T]] = {}

    def found(value: V) -> T:
        place = id(value)
        try:
            return made[place][1]
        except KeyError:
            result = make(value)
            # The number of an object is free for another one when it's gone; so is the entry then.
            made[place] = (ref(value, lambda _: made.pop(place, None)), result)
            return result

    return update_wrapper(found, make)
