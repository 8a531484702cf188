"""Arguments of functions and classes: checks, conversions, errors for misspelt names."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, get_args, get_origin

import attrs
import pyarrow as pa

from sessionkit._shown import as_call
from sessionkit.errors import SpecError

T = TypeVar("T")
P = ParamSpec("P")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
WORD: Final = re.compile(r"[A-Z]?[a-z]+")
FROZEN: Final = attrs.make_class("_Frozen", [], frozen=True).__setattr__
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
RECEIVERS: Final = ("self", "cls")
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
    """Convert one name or several to a tuple, as an attrs converter; `names` checks them."""
    is_one = isinstance(names, str | bytes) or not isinstance(names, Iterable)
    return (names,) if is_one else tuple(names)  # type: ignore[return-value]  # checked


def names(_: Any, attribute: "attrs.Attribute[Any]", value: Collection[object] | None) -> None:
    """Check an attribute that takes one name or several, or None as the default."""
    for name in value or ():
        if not isinstance(name, str) or not name:
            found = f"`{attribute.name}` must be a name, or several, as text; found {name!r}"
            raise SpecError(found, f'write {attribute.name}="page", or a list of such names')


def explained(
    examples: Mapping[str, str] = NONE, *, shows_call: bool = True
) -> Callable[[type[T]], type[T]]:
    """
    Decorate a class to raise a `SpecError` with a hint for wrong or missing arguments.

    Args:
        examples: What to write for missing arguments, by name.
        shows_call: Whether its objects are shown as the calls that make them, unless it has
            `repr=False`.
    """

    def explain(cls: Any) -> Any:
        cls.__init__ = _explaining(cls.__init__, cls.__name__, examples)
        if cls.__setattr__ is FROZEN:
            cls.__setattr__ = _never_changes
        if shows_call and "__repr__" in vars(cls):
            cls.__repr__ = as_call
        return cls

    return explain


class NeverChangesError(SpecError, attrs.exceptions.FrozenInstanceError):
    """Raised where a part of a spec would be changed."""


def _never_changes(value: object, name: str, _: object) -> NoReturn:
    """Refuse to set an attribute of a frozen value."""
    called = type(value).__name__
    found = f"a {called} never changes, so `{name}` can't be set"
    raise NeverChangesError(found, f"make another one: attrs.evolve(value, {name}=...)")


def explained_methods(cls: type[T]) -> type[T]:
    """Decorate a class to explain the arguments of its public methods, as `explains` does."""
    for name, member in [*vars(cls).items()]:
        function = getattr(member, "__func__", member)
        is_explained = hasattr(function, "__wrapped__")
        if inspect.isfunction(function) and not is_explained and not name.startswith("_"):
            call = _explaining(function, name, NONE)
            setattr(cls, name, call if member is function else type(member)(call))
    return cls


def explains(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to raise a `SpecError` with a hint for wrong or missing arguments."""
    return explains_with()(function)


def explains_with(**examples: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return `explains` with what to write for missing arguments, by name."""

    def explain(function: Callable[P, T]) -> Callable[P, T]:
        call: Callable[P, T]
        call = _explaining(function, function.__name__, examples)
        return call

    return explain


def _explaining(function: Any, name: str, examples: Mapping[str, str]) -> Any:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*positional: Any, **keywords: Any) -> Any:
        try:
            return function(*positional, **keywords)
        except TypeError:  # a call that fits costs nothing
            if _fits(signature, positional, keywords):
                raise
            raise _misfit(name, signature, positional, keywords, examples) from None

    return call


def _fits(
    signature: inspect.Signature, positional: Sequence[object], keywords: Mapping[str, object]
) -> bool:
    try:
        signature.bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def _misfit(
    name: str,
    signature: inspect.Signature,
    positional: Sequence[object],
    keywords: Mapping[str, object],
    examples: Mapping[str, str],
) -> SpecError:
    """Return the error for arguments that don't fit a signature."""
    all_parameters = signature.parameters.items()
    called = _called(name, positional, [*signature.parameters])
    parameters = {name: argument for name, argument in all_parameters if argument.kind not in REST}
    places = [name for name, argument in parameters.items() if argument.kind in POSITIONAL]
    kinds = {argument.kind for _, argument in all_parameters}
    takes_any_name = inspect.Parameter.VAR_KEYWORD in kinds
    if not takes_any_name:
        for unknown in [unknown for unknown in keywords if unknown not in parameters]:
            return SpecError(f"{called} has no argument `{unknown}`", _meant(unknown, parameters))
    if len(positional) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown = [f"`{name}`" for name in places if name not in RECEIVERS]
        unnamed = [name for name in parameters if name not in {*places, *keywords}]
        unnamed = unnamed[: len(positional) - len(places)]
        count = len(positional) - len(places) + len(shown)
        found = f"{called} takes {'only ' if shown else 'nothing'}{', '.join(shown)} without a name"
        hint = f"name the others, such as {', '.join(f'{name}=...' for name in unnamed)}"
        if takes_any_name and not shown:
            hint = f"name each, such as .{name}(n=...)"
        elif not unnamed:
            hint = f"write {called}({', '.join(name for name in places if name not in RECEIVERS)})"
        return SpecError(f"{found}, found {count} value{'' if count == 1 else 's'}", hint)
    only_by_place = {
        name for name, argument in parameters.items() if argument.kind is argument.POSITIONAL_ONLY
    }
    passed = {*(name for name in keywords if name not in only_by_place)}
    passed |= {*places[: len(positional)]}
    required = [name for name, argument in parameters.items() if argument.default is argument.empty]
    missing = [name for name in required if name not in passed]
    if not missing:
        twice = next(name for name in places if name in keywords)
        return SpecError(f"{called} is given `{twice}` twice", "leave one of them out")
    found = f"{called} needs {', '.join(f'`{name}`' for name in missing)}"
    if not only_by_place.isdisjoint(missing):
        values = [examples.get(name, name) for name in places if name not in RECEIVERS]
        more = ", ..." if takes_any_name else ""
        return SpecError(found, f"write {called}({', '.join(values)}{more})")
    added = ", ".join(examples.get(name, f"{name}=...") for name in missing)
    return SpecError(found, f"add {added}")


def _called(name: str, positional: Sequence[object], names: Sequence[str]) -> str:
    """Return the name of what was called: a method's after that of its class."""
    if not positional or names[:1] not in (["self"], ["cls"]):
        return name
    receiver = positional[0]
    owner = receiver.__name__ if isinstance(receiver, type) else type(receiver).__name__
    return name if name == owner else f"{owner}.{name}"


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
    names = ", ".join(argument for argument in known if argument not in RECEIVERS)
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
        article = "an" if cls.__name__[0] in "AEIOU" else "a"
        found = f"`{attribute.name}` must be {article} {cls.__name__}, found {value!r}"
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


def carried(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes fields by the names of the new columns that carry them."""
    pairs = value.items() if isinstance(value, dict) else [(None, None)]
    if not all(isinstance(name, str) for pair in pairs for name in pair):
        name = attribute.name
        found = f"`{name}` must be a dict of new columns and fields of the result, found {value!r}"
        raise SpecError(found, f'write {name}={{"{name}_source": "source"}}')


def check_field(name: object, what: str, hint: str) -> None:
    """Check a name of a field, which goes into generated code of a class."""
    is_name = isinstance(name, str) and name.isidentifier() and not iskeyword(name)
    if not is_name or name == "self":
        raise SpecError(f"{what}{name!r} can't be the name of a field", hint)


def flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    """Check that an attribute is True or False."""
    check_flag(attribute.name, value, attribute.default)


def check_flag(name: str, value: object, default: object = False) -> None:  # noqa: FBT002 (shown)
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        found = f"`{name}` must be True or False, found {value!r}"
        raise SpecError(found, f"leave it out for {default}")


def text(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes a text, or None as the default."""
    if value is not None or attribute.default is not None:
        check_text(attribute.name, value)


def check_text(name: str, value: object) -> None:
    """Check that an argument is a text that isn't empty."""
    if not isinstance(value, str) or not value:
        raise SpecError(f"`{name}` must be a text, found {value!r}", f'write {name}="visits"')


def spark_options(_: Any, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Check an attribute that takes options of Spark."""
    check_options(attribute.name, value)


def check_options(name: str, value: object) -> None:
    """Check that an argument is a dict of Spark's options, each a text, a number or a bool."""
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(key, str) and isinstance(one, str | int | float) for key, one in pairs):
        found = f"`{name}` must be a dict of options and their values"
        hint = f'write {name}={{"maxFilesPerTrigger": "100"}}'
        raise SpecError(found if isinstance(value, Mapping) else f"{found}, found {value!r}", hint)
