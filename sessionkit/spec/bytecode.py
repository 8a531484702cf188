"""
Static checks of bytecode: whether a function returns a value, and whether it loses a state.

Only certain findings are reported. A call may change its arguments in any way, unless the called
function is known to make a new object.
"""

import copy
import dataclasses
import dis
import inspect
import re
from collections.abc import Iterator
from dis import Instruction
from itertools import chain, pairwise
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

import attrs

Plain: TypeAlias = FunctionType | MethodType
"""A function, which type checkers take for a method where a class attribute holds it."""
MAKERS: Final = (attrs.evolve, dataclasses.replace, copy.copy, copy.deepcopy)
PURE: Final = (
    *(abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, len, list, max, min),
    *(range, reversed, round, set, sorted, str, sum, tuple, zip),
)
"""Functions of Python that only make values of others."""
UNCERTAIN: Final = re.compile(
    "RAISE_.*|LOAD_ASSERTION_ERROR|IMPORT_.*|BEFORE_.*|MAKE_FUNCTION|YIELD_VALUE|SEND|RERAISE"
)
"""What may have another purpose than a value: a check, a context, a function of its own."""
COMPUTED: Final = re.compile(
    "(BINARY|COMPARE|CONTAINS|IS|UNARY|BUILD|FORMAT|CALL|LIST|SET|DICT)(_.*)?"
)
JUMPS: Final = {*dis.hasjrel, *dis.hasjabs}
CHANGE: Final = re.compile("(STORE|DELETE)_(ATTR|SUBSCR|SLICE|GLOBAL|DEREF)")
CALL: Final = re.compile("CALL(_KW|_FUNCTION_EX)?")
LOCAL: Final = re.compile("(LOAD|STORE|DELETE)_FAST")


def ends_in_none(plain: Plain) -> bool:
    """Return whether every return of a function returns None."""
    ends = [pair for pair in _pairs(plain.__code__) if pair[1].opname.startswith("RETURN_")]
    return bool(ends) and all(_is_none(before, end) for before, end in ends)


def _is_none(before: Instruction, end: Instruction) -> bool:
    if end.opname == "RETURN_CONST":
        return end.argval is None
    # A jump target may be reached with the value of another branch.
    is_constant = before.opname == "LOAD_CONST" and before.argval is None
    return end.opname == "RETURN_VALUE" and is_constant and not end.is_jump_target


def loses(plain: Plain, name: str, cls: type[Any]) -> bool:
    """Return whether a function makes a new state in place of a parameter and drops it."""
    return _assigns_last(plain, name) or (ends_in_none(plain) and _only_makes(plain, cls))


def _assigns_last(plain: Plain, name: str) -> bool:
    """Return whether a function never reads the last value it assigns to a parameter."""
    steps = list(dis.get_instructions(plain))
    # In a loop, an earlier step may read it. Some comprehensions restore the parameter.
    for step in steps:
        if step.opname == "LOAD_FAST_AND_CLEAR" or (
            step.opcode in JUMPS and step.argval <= step.offset
        ):
            return False
    return [how for _, how, of in _accesses(steps) if of == name][-1:] == ["STORE"]


def _only_makes(plain: Plain, cls: type[Any]) -> bool:
    """Return whether a function only makes objects of a class, or copies, and changes nothing."""
    makers, pairs = set(map(id, (*MAKERS, cls))), list(_pairs(plain.__code__))
    made = sum(_called(plain, *pair) in makers for pair in pairs)
    # If all calls make objects, dropped values change nothing.
    only = made == sum(_is_call(step) for step, _ in pairs)
    return made > 0 and not changes(plain) and (only or not calls(plain, dropped=True))


def _called(plain: Plain, step: Instruction, after: Instruction) -> int | None:
    """Return the `id` of the object that a name, or an attribute of a module, refers to."""
    if step.opname not in {"LOAD_GLOBAL", "LOAD_DEREF"}:
        return None
    known = inspect.getclosurevars(plain)
    value = {**known.builtins, **known.globals, **known.nonlocals}.get(step.argval)
    if after.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
        value = getattr(value, after.argval, None) if isinstance(value, ModuleType) else None
    return id(value)


def computes_in_vain(plain: Plain) -> bool:
    """
    Return whether a function only computes values, of which it keeps none and returns none.

    Such as `state.pages + 1`, or `pages = max(left.pages, right.pages)`.
    """
    pairs = list(_pairs(plain.__code__))
    if changes(plain) or not ends_in_none(plain):
        return False
    pure = sum(_called(plain, *pair) in set(map(id, PURE)) for pair in pairs)
    if any(UNCERTAIN.fullmatch(step.opname) for step, _ in pairs):
        return False
    return pure == sum(_is_call(step) for step, _ in pairs) and any(map(_is_dropped, pairs))


def _is_dropped(pair: tuple[Instruction, Instruction]) -> bool:
    """Return whether a value is computed, and then dropped or given a local name."""
    step, after = pair
    if after.opname == "POP_TOP":
        return COMPUTED.fullmatch(step.opname) is not None
    is_named = after.opname == "STORE_FAST" and not after.argval.startswith("_")
    return is_named and (step.opname == "LOAD_ATTR" or COMPUTED.fullmatch(step.opname) is not None)


def changes(plain: Plain) -> bool:
    """Return whether a function sets an attribute, item or outer name, or assigns in place."""
    return any(
        CHANGE.fullmatch(step.opname) or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))
        for step, _ in chain.from_iterable(map(_pairs, _codes(plain.__code__)))
    )


def calls(plain: Plain, *, dropped: bool = False) -> bool:
    """Return whether a function makes a call; with `dropped`, a call whose value it drops."""
    return any(
        _is_call(step) and (not dropped or after.opname == "POP_TOP")
        for step, after in chain.from_iterable(map(_pairs, _codes(plain.__code__)))
    )


def attributes_alone(plain: Plain, name: str) -> set[str] | None:
    """Return the attributes a function reads of a parameter; None if it may do more with it."""
    steps, attributes = list(dis.get_instructions(plain)), set[str]()
    for number, how, of in _accesses(steps):
        if of != name:
            continue
        step, after = steps[number], steps[number + 1]
        is_last = not isinstance(step.argval, tuple) or step.argval[-1] == name
        if how != "LOAD" or not is_last or after.opname not in {"LOAD_ATTR", "LOAD_METHOD"}:
            return None
        attributes.add(after.argval)
    return None if name in plain.__code__.co_cellvars else attributes


def _is_call(step: Instruction) -> bool:
    return CALL.fullmatch(step.opname) is not None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all code objects nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _pairs(code: CodeType) -> Iterator[tuple[Instruction, Instruction]]:
    return pairwise(dis.get_instructions(code))


def _accesses(steps: list[Instruction]) -> Iterator[tuple[int, str, str]]:
    """Yield each access to a name: the step, LOAD, STORE or DELETE, and the name."""
    for number, step in enumerate(steps):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        for how, name in zip(LOCAL.findall(step.opname), names, strict=False):
            yield number, how, name
