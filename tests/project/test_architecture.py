"""The shape of the package: what it exports, what it loads, and what is documented."""

import ast
import fnmatch
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePath
from types import ModuleType

import pytest

import sessionkit
import sessionkit.testing
from tests.support.public_names import PUBLIC

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sessionkit"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

MOST_AT_THE_ROOT = 25
MOST_NAMES = 122
CATALOGS = {"sessionkit.aggregates", "sessionkit.addons.presets"}
"""The lists of ready-made values, which cost no reader anything: they may grow."""

every_facade = pytest.mark.parametrize(
    "facade", [sessionkit, sessionkit.testing], ids=lambda facade: facade.__name__
)


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def address_of(public: str) -> str:
    path = public.replace(".", "/")
    return f"{path}.py" if f"{path}.py" in MODULES else f"{path}/__init__.py"


def exported_by(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=names):
                return list(ast.literal_eval(names))
    return None


def exported(public: str) -> list[str]:
    return list(importlib.import_module(public).__all__)


def typed_imports_of(facade: ModuleType) -> list[ast.ImportFrom]:
    """Return the imports of a facade that only type checkers follow."""
    (block,) = [
        node
        for node in tree_of(f"{facade.__name__.replace('.', '/')}/__init__.py").body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return [node for node in block.body if isinstance(node, ast.ImportFrom)]


def typed_names_of(facade: ModuleType) -> set[str]:
    """Return the public names that type checkers see."""
    names = {alias.name for node in typed_imports_of(facade) for alias in node.names}
    return {name for name in names if not name.startswith("_")}


@every_facade
def test_a_facade_exports_exactly_its_public_names(facade: ModuleType) -> None:
    """`__all__` is sorted and lists every name that type checkers see, and nothing else."""
    assert sorted(facade.__all__) == facade.__all__
    assert typed_names_of(facade) == set(facade.__all__)
    assert set(facade.__all__) <= set(dir(facade))


@every_facade
def test_a_facade_has_what_type_checkers_see(facade: ModuleType) -> None:
    """Every name of the block for type checkers is the object of the module that it names."""
    for node in typed_imports_of(facade):
        module = importlib.import_module(str(node.module))
        for alias in node.names:
            assert getattr(module, alias.name) is getattr(facade, alias.name)


@every_facade
def test_a_facade_refuses_an_unknown_name(facade: ModuleType) -> None:
    """As every module does; tools ask modules for names that they may not have."""
    with pytest.raises(AttributeError, match=f"module '{facade.__name__}' has no attribute 'nope'"):
        _ = facade.nope


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from sessionkit import *", {"pyspark", "py4j"}),
        ("from sessionkit.testing import *", {"pyspark", "py4j", "hypothesis"}),
        ("import sessionkit.testing.plugin", {"pyspark", "pandas", "pyarrow", "numpy", "attrs"}),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement: str, absent: set[str]) -> None:
    """In a process of its own, none of these is loaded, and nothing is printed."""
    program = (
        f"import sys\n{statement}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        f"print(sorted(loaded & {absent!r}))"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("[]\n", "", 0) == (run.stdout, run.stderr, run.returncode)


def test_an_addon_imports_public_names_only() -> None:
    """Those of an `__all__`, and those that the core lends; from its own room what it likes."""
    addons = [module for module in MODULES if module.startswith("sessionkit/addons/")]
    imports = [
        (module, node)
        for module in addons
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sessionkit")
    ]
    assert [] == [
        f"{module}: from {node.module} import {alias.name}"
        for module, node in imports
        if not str(node.module).startswith("sessionkit.addons")
        for alias in node.names
        if f"{node.module}.{alias.name}" not in PUBLIC
        and alias.name not in getattr(importlib.import_module(str(node.module)), "__all__", ())
    ]


def test_no_worker_reads_a_clock() -> None:
    """What workers run goes by the clock of the micro-batch, so their own may be wrong."""
    rooms = ("_engine", "spec", "state", "timeouts", "aggregates", "_instants", "_arrays")
    own = [name for name in MODULES if name.startswith(tuple(f"sessionkit/{one}" for one in rooms))]
    assert 80 < len(own)
    clocks = {"import time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
    assert [] == [
        f"{module}: {ast.unparse(node)}"
        for module in own
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Import | ast.Attribute) and ast.unparse(node) in clocks
    ]


def test_only_public_addresses_list_their_names() -> None:
    """Elsewhere a name without an underscore in front is what a module offers, said once."""
    listing = {module for module in MODULES if exported_by(tree_of(module)) is not None}
    lent = {"sessionkit/_for_addons.py"}  # what add-ons may import; no promise to users
    assert {*map(address_of, PUBLIC), *lent} == listing


def test_public_names_are_few_and_each_has_one_address() -> None:
    """Outside of the catalogs, a new name displaces another one; each name has one address."""
    public = Counter(name for address in PUBLIC for name in exported(address))
    counted = [name for address in {*PUBLIC} - CATALOGS for name in exported(address)]
    assert {*PUBLIC} > CATALOGS
    assert len(sessionkit.__all__) <= MOST_AT_THE_ROOT
    assert len(counted) <= MOST_NAMES
    assert {} == {name: count for name, count in public.items() if count > 1}


def test_a_name_without_an_underscore_is_defined_in_one_module() -> None:
    """
    Who reads a name knows what it is.

    Each command of an add-on is added by a function of the same name, which the program looks for.
    """
    defined = {
        (node.name, module)
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if (PurePath(module).name, node.name) != ("command.py", "add_to")
    }
    times = Counter(name for name, _ in defined)
    assert [] == sorted(f"{name}: {module}" for name, module in defined if times[name] > 1)


def test_users_are_told_of_mistakes_by_errors() -> None:
    """No module asserts: an assertion is gone under `python -O`, and has no hint."""
    assert [] == [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Assert)
    ]


@pytest.mark.parametrize("public", PUBLIC)
def test_what_is_public_is_documented(public: str) -> None:
    """Every public class and function has a docstring, and each public method of a class."""
    module = importlib.import_module(public)
    values = {name: getattr(module, name) for name in module.__all__}
    silent = [name for name, value in values.items() if not said_of(value)]
    for name, cls in values.items():
        methods = methods_of(cls) if inspect.isclass(cls) else {}
        silent += [f"{name}.{method}" for method, texts in methods.items() if not any(texts)]
    assert [] == silent


def said_of(value: object) -> bool:
    is_described = inspect.isclass(value) or inspect.isroutine(value)
    return not is_described or bool(inspect.getdoc(value))


def methods_of(cls: type) -> dict[str, list[str | None]]:
    """Return the docstrings of each public method or property, from the class and its bases."""
    found: dict[str, list[str | None]] = {}
    for base in cls.__mro__:
        if base.__module__.split(".")[0] == "sessionkit":
            for node in class_node(base).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(ast.get_docstring(node))
    return found


def class_node(cls: type) -> ast.ClassDef:
    """Return the source of a class: attrs hides its cached properties at run time."""
    (node,) = (
        node
        for node in tree_of(address_of(cls.__module__)).body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    return node


@pytest.mark.parametrize("public", PUBLIC)
def test_a_public_type_or_constant_says_what_it_means(public: str) -> None:
    """Such a value has no docstring of its own: the text right below its definition says it."""
    module = importlib.import_module(public)
    values = {name: getattr(module, name) for name in module.__all__}
    assert [] == [
        name
        for name, value in values.items()
        if not (inspect.isclass(value) or inspect.isroutine(value)) and name not in texts_below()
    ]


@cache
def texts_below() -> dict[str, str]:
    """Return the texts below the assignments of the package, by the names that are assigned."""
    found: dict[str, str] = {}
    for module in MODULES:
        for node, below in pairwise(tree_of(module).body):
            match node, below:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = text
    return found


def test_the_index_of_rules_leads_to_tests() -> None:
    """`tests/README.md` says where a rule is tested: by file, or by file and test."""
    tests = ROOT / "tests"
    index = re.findall(
        r"^\| .* \| `(\S+\.py)(?:::(\w+))?` \|$", (tests / "README.md").read_text(), re.MULTILINE
    )
    assert len(index) > 20
    for file, name in index:
        tree = ast.parse((tests / file).read_text("utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in names, f"{file}::{name}"


def test_a_module_has_its_tests_where_the_map_says() -> None:
    """In a file of its own name, or in files that `tests/README.md` names."""
    tests = ROOT / "tests"
    table = (tests / "README.md").read_text().partition("## Where a module is tested")[2]
    rows = re.findall(r"^\| (`.*) \| (`.*) \|$", table, re.MULTILINE)
    elsewhere = [name for modules, _ in rows for name in re.findall("`(.+?)`", modules)]
    files = [file for _, named in rows for file in re.findall("`(.+?)`", named)]
    own = [PurePath(module).relative_to("sessionkit").with_suffix("") for module in MODULES]
    names = {module.as_posix(): module for module in own if module.name != "__init__"}
    mirrored = {
        name
        for name, module in names.items()
        for *folders, last in [[part.lstrip("_") for part in module.parts]]
        if tests.joinpath(*folders, f"test_{last}.py").exists()
    }
    mapped = {name for pattern in elsewhere for name in fnmatch.filter(names, pattern)}
    assert [] == [file for file in files if not (tests / file).exists()]
    assert [] == [pattern for pattern in elsewhere if not fnmatch.filter(names, pattern)]
    assert set() == names.keys() - mirrored - mapped
