"""
Every Python block of the README and of docs/ runs, or says in its first line why not.

So does all code in the docstrings of public modules and names.
"""

import ast
import importlib
import inspect
import io
import re
import tomllib
from collections.abc import Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionkit._engine.counts import DECLARED
from sessionkit.spark.checkpoints.changes import COLUMNS as CHANGES
from sessionkit.spark.checkpoints.reading import OWN_COLUMNS
from sessionkit.spec.columns import (
    CLOSED_BY_FIELD,
    MEMORY_FIELDS,
    REJECTED_COLUMNS,
    REVISION_FIELDS,
    SESSION_COLUMNS,
)
from tests.support.pages import BLOCK, NOT_RUN, ROOT, name_of, run_blocks, run_tests
from tests.support.public_names import PUBLIC, members_of

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
ONLY_IN_A_CHECKOUT = re.compile(
    r"^ *(?:from|import) +(?:examples|tests|benchmarks|scripts)\b.*$", re.MULTILINE
)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
EXAMPLE = re.compile(r"^Example:\n((?:    .*(?:\n|\Z)|\n)+)", re.MULTILINE)
BELOW_A_PARAGRAPH = re.compile(r"^\S.*\n\n((?:    .*(?:\n|\Z)|\n)+)", re.MULTILINE)
NOT_CODE = {"sessionkit.errors"}
"""Whose docstring has a tree of classes."""
GIVEN_BY_SPARK = {"spark", "stream", "views"}
"""What a test on Spark gives an example: a session, and the events of the README."""
DEFINED_FIRST = ("sessionkit.aggregates", "SessionSpec.of", "StatefulSpec")
"""Whose examples define and import what the others use."""
WORDS_OF_THE_SITE = 66_000
WORDS_OF_A_PAGE = 1_500
FOLDERS = re.compile(r'"/(?=(?:data|checkpoints)/)')


def needs_spark(page: Path) -> bool:
    """Return whether a block that runs imports pyspark."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return any("pyspark" in block for block in blocks if not block.startswith(NOT_RUN))


@pytest.mark.parametrize("page", [p for p in PAGES if not needs_spark(p)], ids=name_of)
def test_blocks_without_spark_run(page: Path) -> None:
    """The blocks run, and the tests that they define pass."""
    assert BLOCK.search(page.read_text(encoding="utf-8")) is None or run_blocks(page)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.parent.name == "tutorial" else pytest.mark.nightly)
        for page in PAGES
        if needs_spark(page) and page != README
    ],
    ids=name_of,
)
def test_blocks_with_spark_run(page: Path, spark: Any) -> None:
    """
    The blocks run on the session that the tests share.

    The README writes to the folder where a reader is: tests/as_users runs it, in an empty one.
    """
    assert run_blocks(page)["spark"] is spark


def names_taken(code: str) -> set[str]:
    """Return the names that some code reads and doesn't set."""
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - own


def examples() -> dict[str, str]:
    """Return the code in the docstrings of public modules and names, what defines names first."""
    modules = [importlib.import_module(name) for name in PUBLIC]
    values: list[Any] = [getattr(module, name) for module in modules for name in module.__all__]
    named: list[tuple[str, object]] = [
        (module.__name__, module) for module in modules if module.__name__ not in NOT_CODE
    ]
    named += [
        (name if member is value else f"{value.__name__}.{name}", member)
        for value in values
        for name, member in members_of(value)
    ]
    found = {name: code for name, one in named if (code := code_in(inspect.getdoc(one) or ""))}
    return {name: found[name] for name in DEFINED_FIRST} | found


def code_in(docstring: str) -> str:
    """Return the example of a docstring, and the code below its paragraphs."""
    blocks = [*BELOW_A_PARAGRAPH.findall(docstring), *EXAMPLE.findall(docstring)]
    return "\n".join(map(dedent, blocks))


EXAMPLES = examples()
ON_SPARK = [name for name, code in EXAMPLES.items() if GIVEN_BY_SPARK & names_taken(code)]


def run_example(name: str, given: dict[str, Any], folder: Path) -> None:
    """Run an example as someone who has those names, with folders below this one."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for each in dict.fromkeys([*DEFINED_FIRST, name]):
        namespace |= given
        code = FOLDERS.sub(f'"{folder}/', EXAMPLES[each])
        with redirect_stdout(io.StringIO()):
            exec(compile(code, f"the example of {each}", "exec"), namespace)  # noqa: S102 (our own)
    run_tests(namespace)
    if query := namespace.get("query"):
        query.stop()
        assert query.exception() is None


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {*ON_SPARK}))
def test_an_example_without_spark_runs(name: str, tmp_path: Path) -> None:
    """It runs as it stands, with the classes and specs that other examples define."""
    (tmp_path / "data").mkdir()
    times = {f"session_{which}": [datetime(2026, 3, 1, tzinfo=UTC)] for which in ("start", "end")}
    visits = {"user": ["ann"], "session_id": ["1"], **times, "channel": ["search"]}
    pq.write_table(pa.table(visits), tmp_path / "data" / "visits")
    run_example(name, {}, tmp_path)


@pytest.mark.parametrize("name", ON_SPARK)
def test_an_example_with_spark_runs(name: str, tmp_path: Path, spark: Any) -> None:
    """It runs on the views of the README, as a batch and as a stream."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    views = spark.sql(page.split('"""')[1])
    views.write.parquet(f"{tmp_path}/views")
    views.write.json(f"{tmp_path}/data/events")
    stream = spark.readStream.schema(views.schema).parquet(f"{tmp_path}/views")
    run_example(name, {"spark": spark, "views": views, "stream": stream}, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_imports_what_only_a_checkout_has(page: Path) -> None:
    """A reader has installed the wheel, which is without `examples`, `tests` and `benchmarks`."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert [] == [line for block in blocks for line in ONLY_IN_A_CHECKOUT.findall(block)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_of_a_page_leads_to_a_file(page: Path) -> None:
    """A link to a file of the project has that file at its end."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def words_of(page: Path) -> int:
    """Return the words of a page, its code and its tables included."""
    return len(page.read_text(encoding="utf-8").split())


def test_the_site_has_at_most_its_budget_of_words() -> None:
    """Whoever adds a paragraph shortens another: nobody reads more than that."""
    assert sum(map(words_of, PAGES)) <= WORDS_OF_THE_SITE


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_at_most_its_budget_of_words(page: Path) -> None:
    """A page has one question; a longer answer is several pages."""
    assert words_of(page) <= WORDS_OF_A_PAGE


def test_a_test_shows_each_row_of_what_others_have() -> None:
    """`what_others_have.toml` names it, since readers don't ask for it."""
    page = (ROOT / "docs" / "reference" / "what-others-have.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]*?) ?\| (.+?) \| (?:.+) \|$", page, re.MULTILINE)[1:]
    written: list[tuple[str, str]] = []
    for product, theirs in rows:
        written.append((product or written[-1][0], theirs))
    shown = tomllib.loads(Path(__file__).with_name("what_others_have.toml").read_text("utf-8"))
    tests = {(of, theirs): test for of, has in shown.items() for theirs, test in has.items()}

    assert written[1:] == list(tests)
    for test in tests.values():
        file, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_what_spark_calls_is_where_the_page_says() -> None:
    """The page about the parts names a module, and what in it Spark calls."""
    page = (ROOT / "docs" / "builders" / "architecture.md").read_text(encoding="utf-8")
    part = page.split("### What does Spark call?")[1].split("```")[1]
    named = re.findall(r"(\w+/\w+) +([A-Za-z]\w+)(?:\.(\w+))?  ", part)
    assert len(named) > 3
    for module, name, method in named:
        (file,) = (ROOT / "sessionkit").rglob(f"{module}.py")
        text = file.read_text(encoding="utf-8")
        assert f"\nclass {name}:" in text or f"\ndef {name}(" in text, name
        assert not method or f"    def {method}(" in text, method


def test_every_page_is_in_the_list_of_pages() -> None:
    """A recipe is in the list of the cookbook; what only builders need is with contributing."""
    for lists, parts in (
        ("pages", ("how-to", "explanation", "reference", "tutorial")),
        ("contributing", ("builders",)),
    ):
        listed = LINK.findall((ROOT / "docs" / f"{lists}.md").read_text(encoding="utf-8"))
        written = [page for part in parts for page in (ROOT / "docs" / part).glob("*.md")]
        names = {page.relative_to(ROOT / "docs").as_posix() for page in written}
        assert set() == names - set(listed)
    recipes = LINK.findall((ROOT / "docs" / "cookbook" / "index.md").read_text(encoding="utf-8"))
    kept = {page.name for page in (ROOT / "docs" / "cookbook").glob("*.md")} - {"index.md"}
    assert set() == kept - set(recipes)


def test_no_link_of_the_readme_is_broken_on_pypi() -> None:
    """The package's page has no files beside it, so links to files are built as their paths."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = pyproject["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for rule in hook["substitutions"]:
        readme = re.sub(rule["pattern"], rule["replacement"], readme)

    assert [] == LINK.findall(readme)
    assert "Your first session job (`docs/tutorial/first-session-job.md`)" in readme


OWN_NAMES = {
    *SESSION_COLUMNS,
    *REJECTED_COLUMNS,
    *(field.name for field in (CLOSED_BY_FIELD, *MEMORY_FIELDS, *REVISION_FIELDS)),
    *re.findall(r"(\w+) ", f"{OWN_COLUMNS}, {CHANGES}, "),
    *(count.name for count in DECLARED),
    *("kind", "number", "key", "state"),
    *("user", "ts", "page"),
    *("key", "value", "topic", "partition", "offset", "timestamp"),
}
"""
The columns of rows, of rejected rows, and of what shows stored state; of the README's events, and
of Spark's source for Kafka.
"""
OF_COLUMNS = {
    *("agg", "col", "drop", "dropDuplicates", "groupBy", "orderBy", "partitionBy", "select"),
    *("sort", "withColumn", "withColumnRenamed"),
}
"""The methods of frames that take the names of columns."""
PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_that_are_not_run_name_arguments_and_columns_that_exist(page: Path) -> None:
    """What they import is there, calls fit the functions, and columns are those of the page."""
    text = page.read_text(encoding="utf-8")
    trees = {block: ast.parse(dedent(block)) for block in BLOCK.findall(text)}
    names = {key: found for tree in trees.values() for key, found in imported(tree).items()}
    known = OWN_NAMES | {name for tree in trees.values() for name in named_in(tree)}
    wrong = []
    for block, tree in trees.items():
        if block.lstrip().startswith(NOT_RUN):
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            wrong += [found for call in calls if (found := misfit(call, names))]
            columns = {part for call in calls for part in columns_of(call)}
            wrong += sorted(columns - known)
    assert [] == wrong


def imported(tree: ast.AST) -> dict[str, Any]:
    """Return what a block imports of sessionkit, by the names that it has there."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sessionkit"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                name = alias.asname or alias.name
                try:
                    found[name] = getattr(module, alias.name)
                except AttributeError:
                    found[name] = importlib.import_module(f"{module.__name__}.{alias.name}")
    return found


def named_in(tree: ast.AST) -> set[str]:
    """Return the names and texts of a block, without columns that calls take from a frame."""
    of_calls = {
        id(value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for value in column_arguments(call)
    }
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as value) if id(node) not in of_calls:
                found |= {value, *value.split(".")}
            case ast.keyword(arg=str() as name) | ast.Name(id=name) | ast.arg(arg=name):
                found.add(name)
            case ast.Attribute(attr=name):
                found.add(name)
            case ast.Call(
                func=ast.Attribute(attr="withColumn"), args=[ast.Constant(value=str() as name), *_]
            ):
                found.add(name)
    return found


def column_arguments(call: ast.Call) -> list[ast.expr]:
    """Return the texts of a call that name columns: of Spark's functions, or a frame's methods."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="F"), attr=name) if name not in {"lit", "expr"}:
            values = call.args[:1]
        case ast.Attribute(attr=name) if name in OF_COLUMNS:
            values = call.args[:1] if name == "withColumn" else call.args
        case _:
            values = []
    return [value for value in values if isinstance(value, ast.Constant)]


def columns_of(call: ast.Call) -> list[str]:
    values = [getattr(value, "value", None) for value in column_arguments(call)]
    paths = [value for value in values if isinstance(value, str) and PATH.fullmatch(value)]
    return [part for path in paths for part in path.split(".")]


def misfit(call: ast.Call, names: Mapping[str, Any]) -> str | None:
    """Return how a call doesn't fit what it calls, if that is of sessionkit."""
    function: Any = None
    match call.func:
        case ast.Name(id=name):
            function = names.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names:
            function = getattr(names[name], attribute, None)
            if function is None and not attribute.startswith("_"):
                return f"{name}.{attribute} isn't there"
    if function is None or not callable(function):
        return None
    values = [value for value in call.args if not isinstance(value, ast.Starred)]
    keywords = {one.arg: None for one in call.keywords if one.arg is not None}
    is_partial = len(values) < len(call.args) or len(keywords) < len(call.keywords)
    try:
        signature = inspect.signature(function)
        bind = signature.bind_partial if is_partial else signature.bind
        bind(*values, **keywords)
    except TypeError as error:
        return f"{ast.unparse(call)[:80]}: {error}"
    return None
