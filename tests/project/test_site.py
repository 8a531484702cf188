"""The site that `make docs` builds: whole, without a fault, and of use in a browser."""

import html
import importlib
import io
import json
import os
import re
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from sphinx.application import Sphinx

from docs.conf import MEANT, MOVED, extensions
from scripts.error_texts import HOLE, PAGES, error_texts, has_own_words
from scripts.publish_docs import publish
from tests.support.axe import violations
from tests.support.browser import Reader
from tests.support.public_names import PUBLIC

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUICK = {
    "toc_object_entries": False,
    "extensions": [name for name in extensions if name != "sphinx.ext.viewcode"],
}
"""A third less work: no list of methods beside a page, and no pages of source code."""
FOUND = "document.querySelectorAll('#search-results .search li a')"
ANSWERS = ("without-java", "troubleshoot", "rejected-rows", "number-events", "write-to-postgres")
"""
To "install without Java", "output empty", "late rows", "session per event" and "exactly once to
Postgres".
"""
VERSIONS = "[...document.querySelector('select').options].map(each => each.text)"


def names_of(public: str) -> set[str]:
    """Return the public names of a module."""
    return set(importlib.import_module(public).__all__)


def test_every_address_has_a_page() -> None:
    """The page says which module it is of; `docs/conf.py` fills it from the docstrings."""
    pages = {page.stem: page.read_text("utf-8") for page in DOCS.glob("reference/api/*.md")}
    assert sorted(pages) == sorted(PUBLIC)
    assert [] == [public for public in PUBLIC if f".. public:: {public}\n" not in pages[public]]


@pytest.fixture(name="built", scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sphinx, str]:
    """Build the site; return it, and Sphinx's warnings."""
    folder = tmp_path_factory.mktemp("site")
    said = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # extensions use what Sphinx has deprecated
        site = Sphinx(
            DOCS,
            DOCS,
            folder / "site",
            folder,
            "html",
            QUICK,
            status=None,
            warning=said,
            parallel=2,
        )
        site.build()
    return site, said.getvalue()


def test_no_page_or_docstring_has_a_fault(built: tuple[Sphinx, str]) -> None:
    """No link leads nowhere, no page is left out, no docstring is malformed."""
    assert "" == built[1]


@pytest.mark.parametrize("public", PUBLIC)
def test_a_page_has_every_public_name(built: tuple[Sphinx, str], public: str) -> None:
    """It describes the name, or lists it with a link to the page that does."""
    site, _ = built
    page = site.env.get_doctree(f"reference/api/{public}").astext()
    described = {found[0].rpartition(".")[2] for found in site.env.get_domain("py").get_objects()}
    assert set() == names_of(public) - described
    assert [] == [name for name in names_of(public) if name not in page]


def test_an_api_page_shows_what_a_user_calls(built: tuple[Sphinx, str]) -> None:
    """The methods that both drivers share are there; what only the package asks isn't."""
    found = {name for name, *_ in built[0].env.get_domain("py").get_objects()}
    driver, spec = "sessionkit.testing.SessionDriver", "sessionkit.SessionSpec"

    assert {f"{driver}.{name}" for name in ("add", "run_batch", "take_rows", "restore")} <= found
    assert set() == {f"{spec}.output_event_time", f"{spec}.named_by_spec"} & found


def test_the_sidebar_has_the_parts_of_the_list_of_pages(built: tuple[Sphinx, str]) -> None:
    """`docs/pages.md` says which page is in which part, and in which order."""
    _, *parts = (DOCS / "pages.md").read_text("utf-8").split("\n## ")
    listed = {part.partition("\n")[0]: re.findall(r"\]\((.+?)\.md\)", part) for part in parts}
    page = (Path(built[0].outdir) / "index.html").read_text("utf-8")
    sidebar = page.partition('class="sidebar-drawer"')[2].partition("</aside>")[0]
    _, *shown = sidebar.split('<span class="caption-text">')
    links = {part.partition("<")[0]: re.findall(r'href="(.+?)\.html"', part) for part in shown}

    assert len(listed) > 5
    assert listed == {caption: links[caption] for caption in listed}
    assert ["Cookbook", "Public names", "Project"] == list(links)[len(listed) :]


def test_an_old_address_leads_to_a_page(built: tuple[Sphinx, str]) -> None:
    """In one step: what it leads to hasn't moved itself."""
    folder = Path(built[0].outdir)
    for old, new in MOVED.items():
        name, _, heading = new.partition("#")
        assert not (DOCS / f"{old}.md").exists()
        assert (DOCS / f"{name}.md").exists(), new
        page = (folder / f"{old}.html").read_text("utf-8")
        (link,) = re.findall('<a href="([^"#]+)', page)
        assert (folder / f"{name}.html").samefile((folder / old).parent / link)
        assert not heading or f'id="{heading}"' in (folder / f"{name}.html").read_text("utf-8")


# -- what the head says, and the site as text -----------------------------------------------------


def test_the_head_says_what_a_page_is_about(built: tuple[Sphinx, str]) -> None:
    """A description, a picture, an icon, and the same page as Markdown."""
    site = Path(built[0].outdir)
    page = (site / "how-to" / "watermarks.html").read_text("utf-8")
    head = page[: page.index("</head>")]
    linked = re.findall(
        r'(?:property="og:image" content|rel="[\w ]*(?:icon|alternate)"[^>]*? href)="([^"]+)"', head
    )

    assert re.search(r'name="description" content="A watermark, the newest event time', head)
    assert len(linked) == 3
    assert [] == [one for one in linked if not (site / "how-to" / one.partition("?")[0]).exists()]


def test_each_page_is_there_as_markdown(built: tuple[Sphinx, str]) -> None:
    """Programs that write code read that: whole programs, and docstrings in place of directives."""
    site = Path(built[0].outdir)
    texts = {name: (site / f"{name}.md").read_text("utf-8") for name in built[0].env.found_docs}

    assert "def merge(left: Visit, right: Visit) -> Visit:" in texts["index"]
    assert "](how-to/watch-a-query.md)" in texts["index"]
    assert "configure_spark_with_delta_pip(builder)" in texts["tutorial/whole-programs"]
    assert "\n## StatefulSpec\n" in texts["reference/api/sessionkit"]
    assert [] == [name for name, text in texts.items() if re.search(r"```\{|<!-- filled", text)]


def test_a_list_names_each_page_for_programs(built: tuple[Sphinx, str]) -> None:
    """`llms.txt` has each page once, by its title, with what it's about."""
    text = (Path(built[0].outdir) / "llms.txt").read_text("utf-8")
    listed = re.findall(r"^- \[.+?\]\((.+?)\.md\)", text, re.MULTILINE)

    assert text.startswith("# sessionkit\n\n> ")
    assert sorted(built[0].env.found_docs) == sorted(listed)
    assert "- [Declare, guard and monitor a watermark](how-to/watermarks.md): " in text


def test_the_list_of_all_pages_has_their_titles(built: tuple[Sphinx, str]) -> None:
    """As the sidebar does."""
    page = (Path(built[0].outdir) / "pages.html").read_text("utf-8")
    article = page.split('role="main"')[1].split("</article>")[0]
    found = re.findall(r'href="([\w/-]+)\.html">(.*?)</a>', article)
    shown = {name: html.unescape(re.sub("<[^>]+>", "", label)) for name, label in found}
    titles = {name: title.astext() for name, title in built[0].env.titles.items()}

    assert len(shown) > 50
    assert {name: titles[name] for name in shown} == shown


# -- several versions ----------------------------------------------------------------------------


def test_each_version_knows_all_versions(tmp_path: Path) -> None:
    """The newest release comes first, branches last; one that is published again is replaced."""
    site, pages = tmp_path / "site", tmp_path / "pages"
    site.mkdir()
    (site / "versions.json").write_text("[]", "utf-8")
    (site / "index.html").write_text("old", "utf-8")
    for ref in ("main", "v0.9.0", "v0.10.0"):
        publish(site, pages, ref)
    (site / "index.html").write_text("new", "utf-8")
    publish(site, pages, "main")

    lists = [json.loads(path.read_text("utf-8")) for path in pages.glob("*/versions.json")]
    assert [["0.10.0", "0.9.0", "main"]] * 3 == [[one["name"] for one in each] for each in lists]
    assert "../0.9.0/" == lists[0][1]["folder"]
    assert "url=0.10.0/index.html" in (pages / "index.html").read_text("utf-8")
    assert "new" == (pages / "main" / "index.html").read_text("utf-8")


# -- in a browser --------------------------------------------------------------------------------


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
        """Say nothing."""


@pytest.fixture(name="address", scope="module")
def serve(built: tuple[Sphinx, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Publish the site as two versions; yield its address."""
    pages = tmp_path_factory.mktemp("pages")
    for ref in ("main", "v0.2.0"):
        publish(Path(built[0].outdir), pages, ref)
    handler = partial(QuietHandler, directory=str(pages))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


LOOKED_FOR = {
    "install": "index",
    "install without java": "how-to/without-java",
    "empty": "how-to/troubleshoot",
    "output empty": "how-to/troubleshoot",
    "no rows": "how-to/troubleshoot",
    "no output": "how-to/troubleshoot",
    "late": "how-to/rejected-rows",
    "late data": "how-to/rejected-rows",
    "time zone": "tutorial/analyst",
    "revenue": "tutorial/analyst",
    "bounce rate": "tutorial/analyst",
    "sink": "how-to/write-to-tables",
    "kafka": "how-to/read-from-kafka-and-files",
    "test": "how-to/test-a-spec",
    "unit test": "how-to/test-a-spec",
    "pytest": "how-to/test-a-spec",
    "exactly once": "how-to/write-to-tables",
    "exactly once to Postgres": "how-to/write-to-postgres",
    "airflow": "tutorial/whole-programs",
    "cron": "tutorial/whole-programs",
    "parquet": "tutorial/whole-programs",
    "csv": "tutorial/whole-programs",
    "flatMapGroupsWithState": "how-to/from-hand-written-code",
    "mapGroupsWithState": "how-to/from-hand-written-code",
    "applyInPandasWithState": "how-to/from-hand-written-code",
    "scala": "how-to/from-hand-written-code",
    "transformWithState": "how-to/from-transform-with-state",
    "session timeout": "how-to/choose-a-gap",
    "inactivity": "how-to/choose-a-gap",
    "timeout": "how-to/state-per-key",
    "GDPR": "how-to/erase-a-user",
    "delete a user": "how-to/erase-a-user",
    "flink": "explanation/which-tool",
    "kafka streams": "explanation/which-tool",
    "duckdb": "explanation/which-tool",
    "dbt": "how-to/dbt",
    "google analytics": "how-to/common-definitions",
    "databricks": "how-to/databricks",
    "prometheus": "how-to/watch-a-query",
    "funnel": "how-to/funnels-and-paths",
}
"""By which words people look for a page."""
ASKED = {
    "handle late data": "how-to/rejected-rows",
    "append output mode": "how-to/windowed-aggregation",
    "session window": "how-to/windowed-aggregation",
    "session_window": "explanation/which-tool",
    "gaps and islands": "tutorial/analyst",
    "schema evolution": "how-to/change-a-rule",
    "unbounded state": "how-to/deduplicate",
    "state grows": "how-to/troubleshoot",
    "state ttl": "how-to/state-per-key",
    "out of memory": "how-to/troubleshoot",
    "rocksdb": "how-to/operate",
    "multiple watermarks": "how-to/watermarks",
    "dropDuplicates": "how-to/deduplicate",
    "deduplication": "how-to/deduplicate",
    "foreachBatch": "how-to/start-a-query",
    "idempotent": "how-to/write-to-tables",
    "upsert": "how-to/write-to-postgres",
    "restart checkpoint": "how-to/restart",
    "output mode": "how-to/start-a-query",
    "processing time timeout": "how-to/state-per-key",
    "tumbling window": "how-to/windowed-aggregation",
    "replay": "how-to/backfill",
}
"""What people ask about sessions and streams in public, in their words."""
NAMED = {
    "watermark": "how-to/watermarks",
    "duplicates": "how-to/deduplicate",
    "timers": "how-to/state-per-key",
    "start_query": "reference/api/sessionkit.spark",
    "SessionSpec": "reference/api/sessionkit",
    "FakeGroupState": "reference/api/sessionkit.testing",
}
"""Words, and names as code has them, whose page comes first."""


def first_six(text: str) -> str:
    """Return the first six words of a text, with a value in each of its holes."""
    filled = re.sub(rf"`?{HOLE}`?", " `ann` ", text)
    words = re.match(r"(?:\W*\w+){1,6}\W*", filled)
    assert words
    return words[0]


TEXTS = {first_six(text): pages for text, pages in error_texts().items() if has_own_words(text)}
"""How the texts of our errors begin, and the pages that they lead to."""
RANKS = """(words) => {
    history.replaceState(null, "", "?" + new URLSearchParams({ q: words }));
    const [query, ...terms] = Search._parseQuery(words);
    return Search._performSearch(query, ...terms).reverse().map((one) => one[0]);
}"""
"""The pages that a search finds, in their order."""


@pytest.fixture(name="found", scope="module")
def search(address: str, reader: Reader) -> dict[str, list[str]]:
    """Return what a search for each of the words finds."""
    reader.open(f"{address}main/search.html?q=install")
    reader.wait_for(f"{FOUND}.length > 2")
    words = [*LOOKED_FOR, *ASKED, *NAMED, *TEXTS]
    ranks = reader.run(f"{json.dumps(words)}.map({RANKS})")
    return {said: [*dict.fromkeys(pages)] for said, pages in zip(words, ranks, strict=True)}


def test_a_search_has_the_page_that_is_meant_within_its_first_three(
    found: dict[str, list[str]],
) -> None:
    """The front page counts too."""
    wanted = LOOKED_FOR | ASKED
    ranks = {
        said: found[said].index(page) + 1 if page in found[said] else None
        for said, page in wanted.items()
    }
    assert len(wanted) >= 60
    assert {} == {said: rank for said, rank in ranks.items() if rank not in {1, 2, 3}}


def test_the_first_six_words_of_an_error_lead_to_its_page(found: dict[str, list[str]]) -> None:
    """Where several parts of the code say the same, to the page for all errors."""
    missed = {
        said: found[said][:3]
        for said, pages in TEXTS.items()
        if not {*pages, "how-to/troubleshoot"} & {*found[said][:3]}
    }
    assert len(TEXTS) > 500
    assert {} == missed


def test_the_parts_of_the_code_that_have_a_page_are_there() -> None:
    """A part that moved takes its page along, and a page that moved its part."""
    code = DOCS.parent / "sessionkit"
    assert [] == [page for page in PAGES.values() if not (DOCS / f"{page}.md").exists()]
    assert [] == [
        part for part in PAGES if not (code / part).is_dir() and not (code / f"{part}.py").exists()
    ]


def test_a_search_for_a_name_leads_to_it(found: dict[str, list[str]]) -> None:
    """A how-to comes before attributes of this name; a name as code has it leads to its entry."""
    assert {said: found[said][0] for said in NAMED} == NAMED


def test_the_pages_that_words_mean_are_there() -> None:
    """A page that moved takes its words along."""
    named = {page for pages in MEANT.values() for page in pages}
    assert [] == sorted(page for page in named if not (DOCS / f"{page}.md").exists())


def test_five_questions_of_a_new_user_are_two_clicks_from_the_front_page(
    built: tuple[Sphinx, str],
) -> None:
    """Counted over links in the text, without the sidebar."""
    folder = Path(built[0].outdir)

    def links(page: str) -> set[str]:
        text = (folder / page).read_text("utf-8")
        article = text.split('role="main"')[1].split("</article>")[0]
        inside = re.findall(r'href="([^"#:]+\.html)', article)
        return {os.path.normpath(Path(page).parent / link) for link in inside}

    first = links("index.html")
    reached = first.union(*(links(page) for page in first if (folder / page).exists()))
    assert {f"how-to/{page}.html" for page in ANSWERS} <= reached


def test_the_sidebar_opens_the_part_of_the_page_alone(built: tuple[Sphinx, str]) -> None:
    """The part of the page itself is open."""
    page = (Path(built[0].outdir) / "how-to" / "restart.html").read_text("utf-8")
    parts = re.findall(r'<details( open)?><summary><span class="caption-text">(.+?)</span>', page)

    assert ["Keep it running"] == [name for is_open, name in parts if is_open]
    assert len(parts) > 8


def test_a_link_to_a_heading_of_an_old_page_leads_to_the_heading(
    address: str, reader: Reader
) -> None:
    """The new page has the heading, by the same words."""
    reader.open(f"{address}main/how-to/order-of-events.html#clocks-of-whole-seconds")
    reader.wait_for("document.querySelector(':target')?.id === 'clocks-of-whole-seconds'")
    there = f"{address}main/explanation/boundaries.html#clocks-of-whole-seconds"
    assert there == reader.run("location.href")


@pytest.mark.parametrize("width", [390, 1280, 1366])
def test_a_line_of_code_fits_the_column(address: str, reader: Reader, width: int) -> None:
    """On a laptop; on a telephone code scrolls, and the page doesn't."""
    reader.show(width=width)
    reader.open(f"{address}main/index.html")
    column = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert reader.run(column) <= 0
    cut = "[...document.querySelectorAll('pre')].filter(one => one.scrollWidth > one.clientWidth)"
    assert width == 390 or 0 == reader.run(f"{cut}.length")


def test_a_name_of_an_api_page_is_in_one_line_on_a_telephone(address: str, reader: Reader) -> None:
    """If it's as short as `Columns`; a long one wraps, and the page doesn't scroll."""
    reader.show(width=390)
    reader.open(f"{address}main/reference/api/sessionkit.addons.report.html")
    names = "[...document.querySelectorAll('.autosummary td:first-child code')]"
    lines = reader.run(f"{names}.map(one => [one.textContent, one.getClientRects().length])")
    assert {"report": 1, "Columns": 1} == dict(lines)


def test_axe_finds_no_barrier_for_readers(address: str, reader: Reader) -> None:
    """On a how-to, the reference and the front page, in both schemes, narrow and wide."""
    for page, dark, width in (
        ("how-to/troubleshoot", True, 390),
        ("reference/api/sessionkit.aggregates", True, 1280),
        ("index", False, 1280),
    ):
        reader.show(dark=dark, width=width)
        reader.open(f"{address}main/{page}.html")
        reader.wait_for("document.querySelector('.sidebar-drawer').ariaLabel")
        assert [] == violations(reader)


def test_a_reader_chooses_a_version(address: str, reader: Reader) -> None:
    """The same page of the other version opens."""
    reader.open(f"{address}0.2.0/how-to/watermarks.html")
    reader.wait_for("document.querySelector('select')")
    assert ["0.2.0", "main"] == reader.run(VERSIONS)
    assert "../0.2.0/" == reader.run("document.querySelector('select').value")

    reader.run("document.querySelector('select').focus()")
    reader.press("ArrowDown", 40)
    reader.wait_for(f"location.href === '{address}main/how-to/watermarks.html'")
