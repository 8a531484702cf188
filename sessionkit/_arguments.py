"""Arguments of functions and classes: checks, conversions, errors for misspelt names."""

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

from sessionkit._shown import as_call
from sessionkit.errors import SpecError

T = TypeVar("T")
P = ParamSpec("P")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
WORD: Final = re.compile(r"[A-Z]?[a-z]+")
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
REST: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def quoted(name: str) -> str:
    """Quote a column name for Spark's SQL."""
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
    """Return the Spark SQL type of a column of `spec.input_schema`."""
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
    """Convert one name or several to a tuple, as an attrs converter."""
    return (names,) if isinstance(names, str) else tuple(names)


def explained(examples: Mapping[str, str] = NONE) -> Callable[[type[T]], type[T]]:
    """
    Decorate a class to raise a `SpecError` with a hint for wrong or missing arguments.

    Its objects are shown as the calls that make them, unless it has `repr=False`.

    Args:
        examples: What to write for missing arguments, by name.
    """

    def explain(cls: Any) -> Any:
        cls.__init__ = _explaining(cls.__init__, cls.__name__, examples)
        if "__repr__" in vars(cls):
            cls.__repr__ = as_call
        return cls

    return explain


def explains(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to raise a `SpecError` with a hint for wrong or missing arguments."""
    call: Callable[P, T]
    call = _explaining(function, function.__name__, NONE)
    return call


def _explaining(function: Any, name: str, examples: Mapping[str, str]) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*positional: Any, **keywords: Any) -> Any:
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            raise _misfit(name, signature, positional, keywords, examples) from None
        return function(*positional, **keywords)

    return call


def _misfit(
    called: str,
    signature: inspect.Signature,
    positional: Sized,
    keywords: Mapping[str, object],
    examples: Mapping[str, str],
) -> SpecError:
    """Return the error for arguments that don't fit a signature."""
    all_parameters = signature.parameters.items()
    parameters = {name: argument for name, argument in all_parameters if argument.kind not in REST}
    places = [name for name, argument in parameters.items() if argument.kind in POSITIONAL]
    kinds = {argument.kind for _, argument in all_parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in [name for name in keywords if name not in parameters]:
            return SpecError(f"{called} has no argument `{name}`", _meant(name, parameters))
    if len(positional) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown = [f"`{name}`" for name in places if name != "self"]
        unnamed = [name for name in parameters if name not in {*places, *keywords}]
        unnamed = unnamed[: len(positional) - len(places)] or ["name"]
        count = len(positional) - len(places) + len(shown)
        found = f"{called} takes {'only ' if shown else 'nothing'}{', '.join(shown)} without a name"
        hint = f"name the others, such as {', '.join(f'{name}=...' for name in unnamed)}"
        if inspect.Parameter.VAR_KEYWORD in kinds and not parameters.keys() - {"self"}:
            hint = f"name each, such as .{called}(n=...)"
        return SpecError(f"{found}, found {count} values", hint)
    passed = {*keywords, *places[: len(positional)]}
    required = [name for name, argument in parameters.items() if argument.default is argument.empty]
    missing = [name for name in required if name not in passed]
    if not missing:
        twice = next(name for name in places if name in keywords)
        return SpecError(f"{called} is given `{twice}` twice", "leave one of them out")
    found = f"{called} needs {', '.join(f'`{name}`' for name in missing)}"
    added = ", ".join(examples.get(name, f"{name}=...") for name in missing)
    return SpecError(found, f"add {added}")


def _meant(name: str, known: Mapping[str, inspect.Parameter]) -> str:
    """Return the hint for an unknown argument, which may be in a group such as `Inputs`."""
    places = {
        field: f"{argument.name}={group.__name__}({field}=...)"
        for argument in known.values()
        for group in reversed(_groups(argument))
        for field in inspect.signature(group).parameters
    } | {argument: f"{argument}=..." for argument in known}
    if name in places:
        return f"write {places[name]}"
    words = (word.lower() for word in WORD.findall(name))  # such as `outputMode`
    near = nearest(name, places) or next((word for word in words if word in places), None)
    names = ", ".join(argument for argument in known if argument != "self")
    return f"it has {names}" if near is None else f"did you mean `{places[near]}`?"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """
    Return the known name closest to a misspelt one; None if there is none.

    Every word must match: `max_gap` isn't a misspelt `max_step`.
    """
    words = name.lower().split("_")
    likely = [
        known
        for known in names
        if all(get_close_matches(word, known.lower().split("_"), n=1) for word in words)
    ]
    return next(iter(get_close_matches(name, likely, n=1)), None)


def _groups(argument: inspect.Parameter) -> list[type[Any]]:
    """Return the attrs classes of an argument: of its default, or in its annotation."""
    if argument.default is not argument.empty:
        return [type(argument.default)] if attrs.has(type(argument.default)) else []
    parts = [get_origin(part) or part for part in get_args(argument.annotation)]
    return [cls for cls in parts if isinstance(cls, type) and attrs.has(cls)]


def spelled_out(function: Any, cls: type[Any], *, but: str) -> None:
    """Show the arguments of a class, except `but`, in place of `**settings` in `help()`."""
    signature = inspect.signature(function)
    shown = [part for part in signature.parameters.values() if part.kind is not part.VAR_KEYWORD]
    settings = [part for part in inspect.signature(cls).parameters.values() if part.name != but]
    shown += sorted(settings, key=lambda part: part.default is not part.empty)
    function.__signature__ = signature.replace(parameters=shown)


def choice(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute annotated with a `Literal` of texts."""
    one_of(get_args(attribute.type), attribute.name, value, f"the default is {attribute.default!r}")


def one_of(options: Collection[str], name: str, value: object, hint: str) -> None:
    """Check an argument that takes one of several texts."""
    if not isinstance(value, str) or value not in options:
        found = f"`{name}` must be one of {', '.join(map(repr, options))}, found {value!r}"
        raise SpecError(found, hint)


def group(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a group of settings, of the class of its default."""
    cls = type(attribute.default)
    if not isinstance(value, cls):
        found = f"`{attribute.name}` must be a {cls.__name__}, found {value!r}"
        raise SpecError(found, f"write {attribute.name}={cls.__name__}(...)")


def at_least_one(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a whole number from 1, or None as the default."""
    if value is None and attribute.default is None:
        return
    if type(value) is not int or value < 1:
        found = f"`{attribute.name}` must be a whole number from 1, found {value!r}"
        default = attribute.default if type(attribute.default) in (int, type(None)) else 1
        hint = "leave it out" if default is None else f"leave it out for the default, {default}"
        raise SpecError(found, hint)


def column_name(_: Any, attribute: "attrs.Attribute[str]", value: object) -> None:
    """Check that an argument is the name of a column."""
    check_column(attribute.name, value, "ts")


def check_column(name: str, value: object, example: str) -> None:
    """Check an argument that takes the name of a column, not an expression."""
    if not isinstance(value, str) or not value:
        found = f"`{name}` must be the name of a column, found {value!r}"
        computed = "" if isinstance(value, str) else ", and add a computed column before"
        raise SpecError(found, f'write {name}="{example}"{computed}')


def columns_named(name: str, value: object, example: str) -> tuple[str, ...]:
    """Return the column names of an argument that takes one name or several."""
    names: Any = (value,)
    if isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping):
        names = tuple(value)
    for column in names:
        check_column(name, column, example)
    return tuple(names)


def columns(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes types, or names of fields, by the names of columns."""
    if not isinstance(value, dict) or not all(isinstance(column, str) for column in value):
        name = attribute.name
        found = f"`{name}` must be a dict of column names and types, found {value!r}"
        raise SpecError(found, f'write {name}={{"user_id": str}}')


def check_field(name: object, what: str, hint: str) -> None:
    """Check a name of a field, which goes into generated code of a class."""
    is_name = isinstance(name, str) and name.isidentifier() and not iskeyword(name)
    if not is_name or name == "self":
        raise SpecError(f"{what}{name!r} can't be the name of a field", hint)


def flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        found = f"`{attribute.name}` must be True or False, found {value!r}"
        raise SpecError(found, f"leave it out for {attribute.default}")
