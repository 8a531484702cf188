"""
The rule for classes that holds wherever one is read: what a class declares is one of its fields.

`attrs` and `dataclass` make fields of what the class that they decorate declares. A subclass
without a decorator of its own has the fields of its base: it may add methods, but what it declares
would be neither read nor stored. Nor would the fields of a dataclass in a subclass that attrs
decorates, or the other way round.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import attrs

from sessionkit.errors import SpecError

FOREIGN: Final = sys.stdlib_module_names | {"numpy", "pandas", "pyarrow", "pyspark"}
"""Packages whose classes users can't decorate."""
MARKS: Final = {"__attrs_attrs__": "attrs", "__dataclass_fields__": "dataclasses", "_fields": ""}
"""The attributes by which a class has fields, and the package that sets each."""
PLACEHOLDERS: Final = (type(attrs.field()), dataclasses.Field)
CONSTANT: Final = re.compile(r"""['"]?(?:[\w.]*Annotated\[)?(?:\w+\.)*(ClassVar|Final)\b""")


def check_declared(cls: type[Any], fields: Collection[str]) -> None:
    """Raise a `SpecError` if a class, or a base of it, declares what isn't one of its fields."""
    mark = next(mark for mark in MARKS if hasattr(cls, mark))
    nearer = set[str]()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in FOREIGN:
            continue
        own = _made_of(base, mark)
        nearer |= own
        lost = list(dict.fromkeys(_lost(base, own, fields, nearer)))
        if lost:
            raise SpecError(*_finding(cls, base, mark, lost, again=fields))


def _made_of(base: type[Any], mark: str) -> set[str]:
    """Return the names that a decorator has read in the body of a class."""
    made = vars(base).get(mark)
    if made is None:
        return set()
    if mark == "__attrs_attrs__":
        own = {field.name for field in made if not field.inherited}
        # A cached property of a class with slots is one of these, and attrs annotates it.
        return own.union(vars(base).get("__slots__", ()))
    # `_: KW_ONLY` is no name of a field; those of ClassVar and InitVar are.
    return {*made, "_"} & {"_", *annotations_of(base)} if isinstance(made, dict) else {*made}


def _lost(
    base: type[Any], own: Collection[str], fields: Collection[str], nearer: set[str]
) -> Iterator[str]:
    """Yield the names that a class declares, and of which no field is made."""
    body, annotations = vars(base), annotations_of(base)
    for name, annotation in annotations.items():
        if name in own or _is_special(name) or _is_constant(annotation, has_value=name in body):
            continue
        # A class without a decorator may say which fields it needs of the class that has them.
        is_needed = name in fields and (name in nearer or (bool(nearer) and name not in body))
        if not is_needed:
            yield name
    for name, value in body.items():
        if name in nearer or name in annotations:
            continue
        if (name in fields and not hasattr(value, "__get__")) or isinstance(value, PLACEHOLDERS):
            yield name


def annotations_of(cls: type[Any]) -> Mapping[str, Any]:
    """Return the annotations in the body of a class, as they were written."""
    annotations: Mapping[str, Any] = inspect.get_annotations(cls)
    return annotations


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_constant(annotation: Any, *, has_value: bool) -> bool:
    """Return whether an annotation declares a constant of the class, also as text."""
    text = annotation if isinstance(annotation, str) else repr(annotation)
    found = CONSTANT.match(text)
    return found is not None and (found[1] == "ClassVar" or has_value)


def _finding(
    cls: Any, base: type[Any], mark: str, lost: list[str], *, again: Collection[str]
) -> tuple[str, str]:
    """Return the problem and its hint; a name in `again` is that of a field of another class."""
    names = " and ".join(f"`{base.__name__}.{name}`" for name in lost)
    of = "" if base is cls else f" of {cls.__name__}"
    if set(lost) <= set(again):
        found = f"{names} doesn't change the field{of}: its type and default are those of its class"
    else:
        are = "isn't a field" if len(lost) == 1 else "aren't fields"
        found = f"{names} {are}{of}, and would be neither read nor stored"
    package, bases = MARKS[mark], [part.__name__ for part in base.__bases__ if part is not object]
    if not package:
        return found, f"declare all fields in one class: `class {cls.__name__}(NamedTuple):`"
    if mark in vars(base):
        value = "attrs.field(default=...)" if package == "attrs" else "..."
        return found, f"write `{lost[0]}: ... = {value}`, with its type"
    write = "@attrs.define" if package == "attrs" else "@dataclass"
    if package == "dataclasses" and cls.__dataclass_params__.frozen:
        write = "@dataclass(frozen=True)"  # else Python refuses a subclass
    inside = f"({', '.join(bases)})" if bases else ""
    hint = f"write `{write}` above `class {base.__name__}{inside}:`"
    others = [other for mark, other in MARKS.items() if other and mark in vars(base)]
    if others:
        return found, f"{hint}, in place of that of {others[0]}"
    found = f"{found}: {base.__name__} has no decorator of its own"
    return found, f"{hint}; a constant is a ClassVar"
