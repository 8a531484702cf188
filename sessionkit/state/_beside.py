"""
The attributes of an object beside its fields, which nothing stores.

An object that is read from storage is made of its fields. So an attribute beside them would be
there in one micro-batch and gone in the next, unless every object with the same fields has it: what
a cached property, or `__attrs_post_init__`, makes of the fields.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from types import MemberDescriptorType
from typing import Any, Final

import attrs

from sessionkit._arguments import nearest
from sessionkit.errors import StateValueError
from sessionkit.state._declared import FOREIGN

OF_OTHERS: Final = frozenset({"__orig_class__", "_attrs_cached_hash"})
"""What Python sets on an object of a generic class, and attrs under `cache_hash`."""
IN_DICT: Final = attrgetter("__dict__")


class Unset:
    """The value of a field that was deleted, or never set: it fits no type."""


UNSET: Final = Unset()


@attrs.frozen
class Beside:
    """
    Where objects of a class have attributes beside the fields: in slots, or in a dict.

    `getters` read the fields, each from the dict or, if False, from the object; None where an
    attribute may be another value than the one that is held.
    """

    known: frozenset[str]
    slots: Mapping[str, MemberDescriptorType]
    has_dict: bool
    getters: Sequence[tuple[Callable[[Any], Any], bool]] | None

    @classmethod
    def of(cls, owner: type[Any], fields: Sequence[str]) -> "Beside | None":
        """Return None for a class whose only slots are its fields."""
        known = OF_OTHERS.union(fields)
        slots = {
            name: slot
            for base in owner.__mro__
            if base.__module__.partition(".")[0] not in FOREIGN
            for name, slot in vars(base).items()
            if isinstance(slot, MemberDescriptorType) and name not in known
        }
        has_dict = owner.__dictoffset__ != 0
        if not (slots or has_dict):
            return None
        if slots or any("__getattribute__" in vars(base) for base in owner.__mro__[:-1]):
            return cls(known, slots, has_dict, None)
        getters = list[tuple[Callable[[Any], Any], bool]]()
        for name in fields:
            of_class = inspect.getattr_static(owner, name, None)
            if isinstance(of_class, MemberDescriptorType):
                getters.append((attrgetter(name), False))
            elif hasattr(of_class, "__set__"):
                return cls(known, slots, has_dict, None)
            else:
                getters.append((itemgetter(name), True))
        return cls(known, slots, has_dict, getters)

    def columns_of(self, objects: Sequence[Any]) -> list[list[Any]] | None:
        """Return the values of each field, if no object has more attributes, or less."""
        if self.getters is None:
            return None
        dicts = list(map(IN_DICT, objects))
        # Each dict has all of its fields, or a getter fails below. So none has more.
        if sum(map(len, dicts)) != len(dicts) * sum(is_held for _, is_held in self.getters):
            return None
        try:
            return [
                list(map(getter, dicts if is_held else objects)) for getter, is_held in self.getters
            ]
        except (KeyError, AttributeError):
            return None

    def found_in(self, objects: Sequence[Any]) -> Sequence[Any]:
        """Return the objects with an attribute beside their fields."""
        return [value for value in objects if self._attributes(value)]

    def check(self, value: Any, made: Any, path: str) -> None:
        """Raise a `StateValueError` unless an object made of the same fields has the same."""
        for name, part in self._attributes(value).items():
            other = _attribute(made, name)
            if _are_same(part, other):
                continue
            cls, near = type(value).__name__, nearest(name, self.known - OF_OTHERS)
            found = f"`{path}.{name}` isn't a field of {cls}, and would be lost"
            hint = f"declare `{name}: ...` in {cls}, with its type"
            if other is not UNSET:
                found = f"`{path}.{name}` isn't what the fields of {cls} make of it, and isn't one"
                hint += ", or make it a property"
            elif near is not None:
                hint = f"write `{near}`, if it's meant; or {hint}"
            raise StateValueError(found, hint)

    def _attributes(self, value: Any) -> dict[str, Any]:
        held = vars(value).items() if self.has_dict else ()
        found = {name: part for name, part in held if name not in self.known}
        for name, slot in self.slots.items():
            part = _in_slot(slot, value)
            if part is not UNSET:
                found[name] = part
        return found


def _in_slot(slot: MemberDescriptorType, value: Any) -> Any:
    """Return what a slot holds; attrs would compute a cached property that is asked by its name."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return UNSET


def _attribute(made: Any, name: str) -> Any:
    try:
        return getattr(made, name)
    except Exception:  # noqa: BLE001 (the user's own cached property)
        return UNSET


def _are_same(part: Any, other: Any) -> bool:
    """Return whether two values are the same; True where objects of a class can't be compared."""
    if part is other or type(part) is not type(other):
        return part is other
    if "__eq__" not in {name for base in type(part).__mro__[:-1] for name in vars(base)}:
        return True
    try:
        return bool(part == other) or repr(part) == repr(other)
    except ValueError:  # arrays of more than one value
        return repr(part) == repr(other)
