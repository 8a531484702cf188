"""The arguments of functions and classes: checks, conversions, and errors for a misspelt name."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from difflib import get_close_matches
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, get_args, get_origin

import attrs
import pyarrow as pa

from sessionkit.errors import SpecError

T = TypeVar("T")
P = ParamSpec("P")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
WORD: Final = re.compile(r"[A-Z]?[a-z]+")
REST: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def quoted(name: str) -> str:
    """Return a column name quoted, so that Spark reads none of its characters as syntax."""
    return f"`{name.replace('`', '``')}`"


SQL: Final = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp_ltz",  # a session may say that `timestamp` has no zone
    pa.date32(): "date",
    pa.duration("us"): "interval day to second",
}


def sql_type(kind: pa.DataType) -> str:
    """Return the type in Spark's SQL of a column that a spec reads, as in `spec.input_schema`."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{quoted(part.name)}:{sql_type(part.type)}' for part in kind)}>"
    return SQL[kind]


def names_of(names: Iterable[str] | str) -> tuple[str, ...]:
    """Return names, or one, as a tuple: what attrs takes as a converter."""
    return (names,) if isinstance(names, str) else tuple(names)


def explained(examples: Mapping[str, str] = NONE) -> Callable[[type[T]], type[T]]:
    """
    Let a class say which arguments are meant, and which are missing.

    Args:
        examples: What to write for arguments that are missing, by their names.
    """

    def explain(cls: Any) -> Any:
        cls.__init__ = _explaining(cls.__init__, cls.__name__, examples)
        return cls

    return explain


def explains(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function say which arguments are meant, and which are missing."""
    call: Callable[P, T]
    call = _explaining(function, function.__name__, NONE)
    return call


def _explaining(function: Any, name: str, examples: Mapping[str, str]) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            signature.bind(*values, **named)
        except TypeError:
            raise _misfit(name, signature, values, named, examples) from None
        return function(*values, **named)

    return call


def _misfit(
    called: str,
    signature: inspect.Signature,
    values: Sized,
    named: Mapping[str, object],
    examples: Mapping[str, str],
) -> SpecError:
    """Return the error for arguments that a class or a function doesn't take."""
    parameters = {name: one for name, one in signature.parameters.items() if one.kind not in REST}
    places = [name for name, one in parameters.items() if one.kind is not one.KEYWORD_ONLY]
    kinds = {one.kind for one in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in [name for name in named if name not in parameters]:
            return SpecError(f"{called} has no argument `{name}`", _meant(name, parameters))
    if len(values) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        own = [f"`{name}`" for name in places if name != "self"]
        unnamed = [name for name in parameters if name not in {*places, *named}]
        unnamed = unnamed[: len(values) - len(places)] or ["name"]
        count = len(values) - len(places) + len(own)
        if not signature.parameters:
            return SpecError(f"{called} takes no argument, found {count}", f"write {called}()")
        found = f"{called} takes {'only ' if own else 'nothing'}{', '.join(own)} without a name"
        hint = f"name the others, such as {', '.join(f'{name}=...' for name in unnamed)}"
        if inspect.Parameter.VAR_KEYWORD in kinds and not parameters.keys() - {"self"}:
            hint = f"name each, such as .{called}(n=...)"
        return SpecError(f"{found}, found {count} values", hint)
    given = {*named, *places[: len(values)]}
    missing = [
        name for name, one in parameters.items() if one.default is one.empty and name not in given
    ]
    if not missing:
        twice = next(name for name in places if name in named)
        return SpecError(f"{called} is given `{twice}` twice", "leave one of them out")
    found = f"{called} needs {', '.join(f'`{name}`' for name in missing)}"
    added = ", ".join(examples.get(name, f"{name}=...") for name in missing)
    return SpecError(found, f"add {added}")


def _meant(name: str, known: Mapping[str, inspect.Parameter]) -> str:
    """Return the hint for an argument that isn't known: it may be one of a group."""
    places = {
        field: f"{one.name}={group.__name__}({field}=...)"
        for one in known.values()
        for group in reversed(_groups(one))
        for field in inspect.signature(group).parameters
    } | {argument: f"{argument}=..." for argument in known}
    if name in places:
        return f"write {places[name]}"
    words = (word.lower() for word in WORD.findall(name))  # such as `outputMode`
    near = nearest(name, places) or next((word for word in words if word in places), None)
    own = ", ".join(one for one in known if one != "self")
    otherwise = f"it has {own}" if own else "leave it out: it has no arguments"
    return otherwise if near is None else f"did you mean `{places[near]}`?"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """
    Return the name that is meant; None where none is near.

    One that has a word of it and lacks another, as `max_gap` for `max_step`, means something else.
    """
    words = name.lower().split("_")
    likely = [
        one
        for one in names
        if all(get_close_matches(word, one.lower().split("_"), n=1) for word in words)
    ]
    return next(iter(get_close_matches(name, likely, n=1)), None)


def _groups(argument: inspect.Parameter) -> list[type[Any]]:
    """Return the classes of values that an argument takes: that of its default, or those named."""
    if argument.default is not argument.empty:
        return [type(argument.default)] if attrs.has(type(argument.default)) else []
    named = [get_origin(one) or one for one in get_args(argument.annotation)]
    return [one for one in named if isinstance(one, type) and attrs.has(one)]


def spelled_out(function: Any, cls: type[Any], *, but: str) -> None:
    """Let `help()` show the arguments of a class, but for one, in place of `**settings`."""
    own, settings = inspect.signature(function), inspect.signature(cls).parameters.values()
    shown = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    added = [one for one in settings if one.name != but]
    shown += sorted(added, key=lambda one: one.default is not one.empty)
    function.__signature__ = own.replace(parameters=shown)


def choice(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes one of several texts: those of its `Literal`."""
    one_of(get_args(attribute.type), attribute.name, value, f"the default is {attribute.default!r}")


def one_of(options: Collection[str], name: str, value: object, hint: str) -> None:
    """Check an argument that takes one of several texts."""
    if not isinstance(value, str) or value not in options:
        found = f"`{name}` must be one of {', '.join(map(repr, options))}, found {value!r}"
        raise SpecError(found, hint)


def group(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a frozen value of others, such as its default."""
    cls = type(attribute.default)
    if not isinstance(value, cls):
        found = f"`{attribute.name}` must be a {cls.__name__}, found {value!r}"
        raise SpecError(found, f"write {attribute.name}={cls.__name__}(...)")


def at_least_one(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check, as a validator of attrs, a whole number from 1; None only where it's the default."""
    if value is None and attribute.default is None:
        return
    if type(value) is not int or value < 1:
        found = f"`{attribute.name}` must be a whole number from 1, found {value!r}"
        default = attribute.default if type(attribute.default) in (int, type(None)) else 1
        hint = "leave it out" if default is None else f"leave it out for the default, {default}"
        raise SpecError(found, hint)


def column_name(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
    check_column(attribute.name, value, "ts")


def check_column(name: str, value: object, example: str) -> None:
    """Check an argument that takes the name of a column, and no expression of Spark's."""
    if not isinstance(value, str) or not value:
        found = f"`{name}` must be the name of a column, found {value!r}"
        computed = "" if isinstance(value, str) else ", and add a computed column before"
        raise SpecError(found, f'write {name}="{example}"{computed}')


def columns_named(name: str, value: object, example: str) -> tuple[str, ...]:
    """Return the names of columns, or of one, that an argument takes."""
    names: Any = (value,)
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        names = tuple(value)
    for one in names:
        check_column(name, one, example)
    return tuple(names)


def columns(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a dict by the names of columns."""
    if not isinstance(value, dict) or not all(isinstance(column, str) for column in value):
        name = attribute.name
        found = f"`{name}` must be a dict of column names and types, found {value!r}"
        raise SpecError(found, f'write {name}={{"user_id": str}}')


def check_field(name: object, what: str, hint: str) -> None:
    """Check a name that becomes a field: classes are made by code that is written with it."""
    is_name = isinstance(name, str) and name.isidentifier() and not iskeyword(name)
    if not is_name or name == "self":
        raise SpecError(f"{what}{name!r} can't be the name of a field", hint)


def flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        found = f"`{attribute.name}` must be True or False, found {value!r}"
        raise SpecError(found, f"leave it out for {attribute.default}")
