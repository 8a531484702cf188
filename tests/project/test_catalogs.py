"""
What a catalog has is known to its model, its page and its types.

Catalogs are the aggregates, the rules, the verdicts on events, and the add-ons.

The lists come from the code, so a new entry fails here until all of them know it.
"""

import ast
import importlib
import inspect
import re
import tomllib
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from sessionkit import SessionRules, SessionSpec, SpecError
from sessionkit import aggregates as agg
from sessionkit._engine.counts import DECLARED
from sessionkit._engine.sessions import verdicts
from sessionkit.spark import Routes
from sessionkit.testing.drivers.results import REJECTIONS
from sessionkit.timeouts import _rules as rules_room
from sessionkit.timeouts._rule import Rule
from sessionkit.timeouts._rules import OpensWith
from sessionkit.timeouts._session_rules import CLOSED_BY, RULES
from tests.support import naive_aggregates

ROOT: Final = Path(__file__).resolve().parents[2]
FUNCTIONS: Final = [name for name in agg.__all__ if inspect.isfunction(getattr(agg, name))]
OPTIONS: Final = [field.alias or field.name for field in attrs.fields(SessionRules) if field.init]
FIRST_CODE_OF_TESTS: Final = 100
FORMER_CODES: Final[frozenset[int]] = frozenset()
"""The codes of rules that are gone, which checkpoints may still have."""


@cache
def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


def calls(path: str, module: str) -> dict[str, list[ast.Call]]:
    """Return the calls in a file of the functions of a module, by their names."""
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=function)):
                if name == module:
                    found.setdefault(function, []).append(node)
    return found


def keywords_of(path: str) -> set[str]:
    """Return the names of the arguments that calls in a file pass, and the keys of its dicts."""
    nodes = [*ast.walk(tree_of(path))]
    passed = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    keys = (key for node in nodes if isinstance(node, ast.Dict) for key in node.keys)
    return passed | {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def first_cells(page: str) -> str:
    """Return the first column of the tables of a page."""
    return "\n".join(re.findall(r"^\| (.+?) \|", text_of(page), re.MULTILINE))


# -- aggregates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_aggregate_is_in_the_model(name: str) -> None:
    """The properties compare it with plain Python, written from its page."""
    assert name in calls("tests/support/naive_aggregates.py", "agg")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_aggregate_has_its_row_on_the_page(name: str) -> None:
    """It says what it takes, what it gives, without a value too, and what an open session keeps."""
    assert f"`{name}(" in first_cells("docs/reference/aggregates.md")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_aggregate_has_its_place_in_the_reference(name: str) -> None:
    """A reader meets it in one of the tables."""
    text = (ROOT / "docs/reference/api/sessionkit.aggregates.md").read_text("utf-8")
    listed = [one for names in re.findall(r": ((?:[a-z_]+,?\s*)+)", text) for one in names.split()]
    assert name in {one.rstrip(",") for one in listed}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_type_checkers_accept_an_aggregate(name: str) -> None:
    """A call in `right.py`, which mypy and others read."""
    assert name in calls("tests/typing/right.py", "agg")


class Wrong:
    """A value that no argument takes."""


ARGUMENTS: Final = [
    (name, parameter)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(agg, name)).parameters
]


@pytest.mark.parametrize(("name", "parameter"), ARGUMENTS)
def test_an_aggregate_refuses_a_wrong_argument(name: str, parameter: str) -> None:
    """Each, by an error with a hint: when it's made, or when a spec binds it to its event."""
    function = getattr(agg, name)
    (call, *_) = calls("tests/support/naive_aggregates.py", "agg")[name]
    bound = inspect.signature(function).bind_partial(
        *(value_of(node) for node in call.args),
        **{str(node.arg): value_of(node.value) for node in call.keywords},
    )
    kind = inspect.signature(function).parameters[parameter].kind
    is_rest = kind is inspect.Parameter.VAR_POSITIONAL
    bound.arguments[parameter] = (Wrong(), Wrong()) if is_rest else Wrong()
    with pytest.raises(SpecError, match="\n\nHint: ") as refused:
        SessionSpec.aggregate(
            naive_aggregates.Act,
            {"found": function(*bound.args, **bound.kwargs)},
            keys={"key": str},
            event_time="ts",
            gap="1 minute",
            watermark_delay="1 minute",
        )
    assert re.search(f"Wrong|`{parameter}`", str(refused.value))


def value_of(node: ast.expr) -> Any:
    return eval(ast.unparse(node), vars(naive_aggregates))  # noqa: S307 (a test's own source)


# -- rules ---------------------------------------------------------------------------------------


def rules_of_the_room() -> list[type[Rule]]:
    found = (value for value in vars(rules_room).values() if inspect.isclass(value))
    return [rule for rule in found if issubclass(rule, Rule) and "code" in vars(rule)]


def test_a_rule_of_the_room_is_in_the_list() -> None:
    """A rule in the room and in no list would never be asked for; `opens_with` ends nothing."""
    assert {*RULES, OpensWith} == {*rules_of_the_room()}
    assert tuple(rule.name for rule in RULES) == CLOSED_BY


def test_the_codes_of_rules_have_no_hole_and_no_double() -> None:
    """No code is missing or taken twice; those of tests' own rules are out of the way."""
    codes = sorted([rule.code for rule in rules_of_the_room()] + [*FORMER_CODES])
    free = next(code for code in count() if code not in codes)
    assert [*range(len(codes))] == codes, f"the next free code is {free}"
    assert len(codes) < FIRST_CODE_OF_TESTS
    of_tests = [
        int(ast.literal_eval(node.value))
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) == "code"
        and isinstance(node.value, ast.Constant)
    ]
    assert of_tests
    assert [] == [code for code in of_tests if not FIRST_CODE_OF_TESTS <= code < 2**7]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_its_row_on_the_page(rule: type[Rule]) -> None:
    """It says when the rule fires, and to which session an event of that instant belongs."""
    assert f"`{rule.name}`" in first_cells("docs/how-to/cut-sessions.md")


IN_PROCESSING_TIME: Final = "close_idle_after"
"""The model of rules has no processing time: this one is compared on the driver and on Spark."""


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_rules_is_in_the_model(option: str) -> None:
    """The model reads it, and the properties draw it."""
    if option == IN_PROCESSING_TIME:
        assert option in keywords_of("tests/support/random_lives.py")
        return
    read = {
        node.attr
        for node in ast.walk(tree_of("tests/support/naive_rules.py"))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rules"
    }
    drawn = keywords_of("tests/support/ruled_sessions.py")
    drawn |= keywords_of("tests/properties/test_session_rules.py")
    assert option in drawn
    # Each event of the model says its own gap.
    assert option in {"gap", "max_gap"} | read


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_rules_is_on_the_pages(option: str) -> None:
    """The list of options names it, and so does the page that shows how to use it."""
    for page in ("docs/reference/spec.md", "docs/how-to/cut-sessions.md"):
        text = (ROOT / page).read_text("utf-8")
        assert re.search(rf"`{option}`|\b{option}=|\({option},", text), page


@pytest.mark.parametrize("option", OPTIONS)
def test_type_checkers_accept_an_option_of_rules(option: str) -> None:
    """A call in `right.py` passes it."""
    passed = set[str]()
    for node in ast.walk(tree_of("tests/typing/right.py")):
        match node:
            case ast.Call(func=ast.Name(id="SessionRules"), args=args, keywords=keywords):
                passed |= {str(keyword.arg) for keyword in keywords} | {*["gap"][: len(args)]}
    assert option in passed


# -- verdicts ------------------------------------------------------------------------------------

KINDS: Final = [count.name for count in DECLARED if count.is_rejected and count.is_end]
"""The verdicts on events that don't count."""
ROOMS: Final = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("sessionkit/**/*.py"))


def test_the_engine_gives_no_verdict_that_the_list_lacks() -> None:
    """A new reason is a count, or its rows would be of a kind that nobody knows."""
    makers = {"SideOutput", "chosen", "with_reasons", "with_failures"}
    given = {"event"}
    for path in ROOMS:
        for node in ast.walk(tree_of(path)) if path.startswith("sessionkit/_engine") else ():
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in makers:
                    first = node.args[0]
                    given |= {str(first.value)} if isinstance(first, ast.Constant) else set()
                case ast.Tuple(
                    elts=[ast.Attribute(value=ast.Name(id="Verdict")), ast.Constant(value=kind), *_]
                ):
                    given.add(str(kind))
    assert given == {*REJECTIONS, "event"}


def test_the_page_has_the_table_of_verdicts_in_its_order() -> None:
    """The page, and the module that reads like it."""
    page = (ROOT / "docs/explanation/boundaries.md").read_text("utf-8")
    table = page.split("## The verdict on an event")[1].split("## ")[0]
    in_page = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    in_module = re.findall(r"^    (\w+)   +\S", verdicts.__doc__ or "", re.MULTILINE)

    assert in_page == in_module
    assert {*in_page} == {*KINDS, "processed"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_verdict_has_its_rows_on_the_pages(kind: str) -> None:
    assert f"`{kind}`" in first_cells("docs/how-to/rejected-rows.md")
    assert f"`sessionkit_{kind}_total`" in first_cells("docs/reference/metrics.md")
    (rejected,) = re.findall(
        r"^\| rejected .*", text_of("docs/reference/glossary.md"), re.MULTILINE
    )
    assert kind in re.findall(r"\w+", rejected)


@pytest.mark.parametrize("kind", REJECTIONS)
def test_a_kind_of_rows_has_its_sink_and_its_panel(kind: str) -> None:
    assert kind in {field.name for field in attrs.fields(Routes)}
    if kind in KINDS:
        assert f"sessionkit_{kind}_total" in text_of("sessionkit/addons/monitor/dashboard.json")


@pytest.mark.parametrize("kind", KINDS)
def test_a_verdict_is_in_the_model(kind: str) -> None:
    """The random streams compare it with the table as a loop, next to each other one."""
    nodes = ast.walk(tree_of("tests/support/naive_verdicts.py"))

    assert kind in {node.value for node in nodes if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("path", [*ROOMS, "docs/how-to/number-events.md"])
def test_a_text_that_lists_verdicts_lists_all(path: str) -> None:
    """Two of them side by side are a list."""
    text = " ".join((ROOT / path).read_text("utf-8").split())
    listed = f"`(?:{'|'.join(['event', *REJECTIONS])})`"
    for found in re.findall(rf"{listed}(?:,? (?:or )?{listed})+", text):
        assert {*KINDS} <= {*re.findall(r"\w+", found)}, found


# -- add-ons -------------------------------------------------------------------------------------


def test_the_contract_of_add_ons_names_every_room() -> None:
    """The linter refuses a room that it doesn't name; and an add-on has its page and its tests."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (own,) = [
        one for one in contracts["contracts"] if one.get("containers") == ["sessionkit.addons"]
    ]
    assert own["exhaustive"]
    first, *shared = [layer.split(" | ") for layer in own["layers"]]
    modules = {path.stem for path in (ROOT / "sessionkit/addons").iterdir() if path.stem[0] != "_"}
    assert modules == {*first, *(name for names in shared for name in names)}
    tests_of = ROOT / "tests/addons"
    for name in first:
        assert importlib.import_module(f"sessionkit.addons.{name}").__all__
        assert (ROOT / f"docs/reference/api/sessionkit.addons.{name}.md").exists()
        tests = [tests_of / f"test_{name}.py", *tests_of.glob(f"{name}/test_*.py")]
        assert any(test.exists() for test in tests)
