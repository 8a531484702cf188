"""The site that `make docs` builds: every public name is in it, and no link of a page is broken."""

import importlib
import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from sphinx.application import Sphinx

from tests.project.test_architecture import PUBLIC

DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALL = 10_000_000


def names_of(public: str) -> set[str]:
    """Return the public names of a module."""
    return set(importlib.import_module(public).__all__)


def test_every_address_has_a_page() -> None:
    """The page says which module it is of; `docs/conf.py` fills it from the docstrings."""
    pages = {page.stem: page.read_text("utf-8") for page in DOCS.glob("reference/api/*.md")}
    assert sorted(pages) == sorted(PUBLIC)
    assert [] == [public for public in PUBLIC if f".. public:: {public}\n" not in pages[public]]


@pytest.fixture(name="dry", scope="module")
def build_dry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sphinx, str]:
    """Read all pages and docstrings, and write nothing; return the site and Sphinx's warnings."""
    folder = tmp_path_factory.mktemp("site")
    said = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # extensions use what Sphinx has deprecated
        site = Sphinx(DOCS, DOCS, folder, folder / "cache", "dummy", status=None, warning=said)
        site.build()
    return site, said.getvalue()


def test_no_page_or_docstring_has_a_fault(dry: tuple[Sphinx, str]) -> None:
    """No link leads nowhere, no page is left out, no docstring is malformed."""
    assert "" == dry[1]


@pytest.mark.parametrize("public", PUBLIC)
def test_a_page_has_every_public_name(dry: tuple[Sphinx, str], public: str) -> None:
    """It describes the name, or lists it with a link to the page that does."""
    site, _ = dry
    page = site.env.get_doctree(f"reference/api/{public}").astext()
    described = {found[0].rpartition(".")[2] for found in site.env.get_domain("py").get_objects()}
    assert set() == names_of(public) - described
    assert [] == [name for name in names_of(public) if name not in page]


@pytest.mark.long
def test_the_site_is_small_and_can_be_searched(tmp_path: Path) -> None:
    """The search knows every public name; the pages fetch nothing from elsewhere."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--doctree-dir"]
    subprocess.run([*command, str(cache), str(DOCS), str(site)], check=True)
    index = (site / "searchindex.js").read_text("utf-8")
    pages = [page.read_text("utf-8") for page in site.rglob("*.html")]

    assert [] == [name for public in PUBLIC for name in names_of(public) if name not in index]
    assert [] == [page for page in pages if 'src="http' in page or 'stylesheet" href="http' in page]
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) < SMALL
