"""The shape of the package: what it exports, what it loads, and how large its parts may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessionkit

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sessionkit"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))
LONGEST_MODULE = 400
LONGEST_FUNCTION = 50

every_module = pytest.mark.parametrize("module", MODULES)


def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions of a module, those inside others included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def exported_by(tree: ast.Module) -> list[str] | None:
    """Return what `__all__` of a module lists."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=names):
                return list(ast.literal_eval(names))
    return None


def public_names_of(tree: ast.Module) -> set[str]:
    """Return what a module defines or imports at its top level under a public name."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def test_the_facade_exports_exactly_its_public_names() -> None:
    """`__all__` of the package is sorted and lists every public name, and nothing else."""
    assert sorted(sessionkit.__all__) == sessionkit.__all__
    tree = tree_of("sessionkit/__init__.py")
    assert public_names_of(tree) == set(sessionkit.__all__)
    assert all(hasattr(sessionkit, name) for name in sessionkit.__all__)


@pytest.mark.parametrize("package", ["sessionkit", "sessionkit.testing"])
def test_importing_the_core_loads_no_spark(package: str) -> None:
    """In a process of its own, neither pyspark nor py4j is loaded, and nothing is printed."""
    program = (
        f"import sys, {package}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'pyspark', 'py4j'}))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("[]\n", "", 0) == (run.stdout, run.stderr, run.returncode)


@every_module
def test_a_module_says_what_it_is_and_what_it_exports(module: str) -> None:
    """Every module has a docstring, and an `__all__` where it defines anything."""
    tree = tree_of(module)
    exported = exported_by(tree)
    assert ast.get_docstring(tree)
    if len(tree.body) > 1:
        assert exported is not None
        assert len(set(exported)) == len(exported)


@every_module
def test_a_module_is_short(module: str) -> None:
    """A module has fewer than 400 lines."""
    assert LONGEST_MODULE > len((ROOT / module).read_text(encoding="utf-8").splitlines())


@every_module
def test_a_function_is_short(module: str) -> None:
    """The body of a function has at most 50 lines."""
    long = [f.name for f in functions_of(tree_of(module)) if body_lines(f) > LONGEST_FUNCTION]
    assert [] == long


@every_module
def test_users_are_told_of_mistakes_by_errors(module: str) -> None:
    """No module asserts: an assertion is gone under `python -O`, and has no hint."""
    asserts = [node.lineno for node in ast.walk(tree_of(module)) if isinstance(node, ast.Assert)]
    assert [] == asserts


@every_module
def test_what_is_public_is_documented(module: str) -> None:
    """Every public class and function that a module exports has a docstring."""
    tree = tree_of(module)
    exported = exported_by(tree) or []
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name in exported
        and not _is_overload(node)
        and not ast.get_docstring(node)
    ]
    assert [] == silent


def _is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
