"""How `make docs` builds the site: the pages of this folder, and a reference of public names."""

import json
import os
import re
import sys
from html import escape
from importlib import import_module, metadata
from inspect import isclass, isroutine
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils.nodes import Node, Text, image, meta, paragraph, reference
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from scripts.error_texts import GENERAL, heads, token_of
from scripts.fill_pages import is_released
from scripts.site_text import ABOUT, first_words, list_of_pages, text_of_page
from sessionkit.testing.drivers.driver import Driver

project = "sessionkit"
author = "The sessionkit authors"
copyright = author  # noqa: A001 (its name)
release = version = metadata.version("sessionkit-spark")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
suppress_warnings = ["autosummary.import_cycle"]  # a facade lists what other modules describe

# Links to headings work as in the Markdown that a forge shows.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# In docstrings, what is in backticks is code, and a link where it is a public name.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_attr_annotations = False  # signatures have the types
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 80

SEARCH = Path(__file__).parent / "search.js"

html_theme = "furo"
html_title = f"sessionkit {release}"
html_copy_source = False
html_static_path = ["_static"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_search_scorer = str(SEARCH)
html_css_files = ["pages.css", "versions.css"]
html_js_files = [("pages.js", {"defer": "defer"}), ("versions.js", {"defer": "defer"})]

GITHUB = os.environ.get("GITHUB_REPOSITORY")
"""The owner and the name of the repository, where its own workflow builds the site."""
OWNER, _, NAME = (GITHUB or "").partition("/")
FOLDER = re.sub(r"^v(?=\d)", "", os.environ.get("GITHUB_REF_NAME", "main")).replace("/", "-")
REPOSITORY = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{GITHUB}"
html_baseurl = f"https://{OWNER}.github.io/{NAME}/{FOLDER}/" if GITHUB else ""
html_theme_options: dict[str, Any] = {}
if GITHUB:
    html_theme_options |= {
        "source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/",
    }  # fmt: skip
    html_theme_options["footer_icons"] = [
        {"name": "Repository", "url": REPOSITORY, "html": "Repository", "class": "repository"}
    ]
if not is_released():
    html_theme_options["announcement"] = (
        "There's no release yet: in a checkout, run <code>pip install '.[sail]'</code>"
    )

WORDS = re.compile(r"^const MEANT = (\{.*?^\});", re.DOTALL | re.MULTILINE)
MEANT: dict[str, list[str]] = json.loads(WORDS.findall(SEARCH.read_text("utf-8"))[0])
"""The words of `search.js`, and the pages that are about them."""
TEXTS = heads()
"""How the texts of our errors begin, by the page that each leads to."""
PREVIEW = "_images/report-light.png"
LONGEST_VALUE = 400
NOT_CALLED = {
    "Counts.declared",
    "DecimalType.arrow",
    "DecimalType.coerce",
    "DecimalType.form",
    "DecimalType.load",
    "DecimalType.widening",
    "EventTimeGap.longest",
    "Functions.keyed",
    "Routes.named",
    "Seed.marker",
    "SessionRules.in_order",
    "SessionRules.longest",
    "SessionRules.predicates",
    "SessionSpec.named_by_result",
    "SessionSpec.named_by_spec",
    "SessionSpec.output_event_time",
    "SessionSpec.time_of_rejected",
    "StatefulSpec.function",
    "StatefulSpec.processing_timers",
    "StatefulSpec.takes_buckets",
    "StatefulSpec.timer_function",
    "StatefulSpec.timer_rules",
}
"""What other modules of the package ask of a value, and users don't."""
MOVED = {
    "builders/ids-and-seeds": "builders/stored-bytes",
    "builders/way-of-an-event": "builders/architecture",
    "builders/what-was-tried": "builders/damage",
    "explanation/real-time-mode": "how-to/start-a-query",
    "explanation/order-of-calls": "explanation/timers",
    "explanation/order-within-an-instant": "explanation/boundaries",
    "how-to/change-a-class": "how-to/change-a-rule",
    "how-to/empty-output": "how-to/troubleshoot#no-rows-come-out",
    "how-to/repair-a-table": "how-to/backfill",
    "how-to/run-every-hour": "how-to/backfill",
    "how-to/size-a-query": "how-to/clusters",
    "how-to/test-with-generated-events": (
        "how-to/test-a-spec#let-generated-events-look-for-mistakes"
    ),
    "how-to/unreadable-payloads": "how-to/rejected-rows",
    "how-to/write-to-lakes": "how-to/write-to-postgres",
    "how-to/order-of-events": "explanation/boundaries",
}
"""
Where the subject of a page is that is gone: a page, or a heading of one. A heading that moved keeps
its words, so links to it hold.
"""
FORWARD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Moved</title>
<meta name="robots" content="noindex">
<link rel="canonical" href="{0}">
<noscript><meta http-equiv="refresh" content="0; url={0}"></noscript>
<script>location.replace("{1}" + (location.hash || "{2}"))</script>
<p><a href="{0}">This page has moved.</a></p>
</html>
"""
LINES = '<dl>\n<dd><em class="sig-param">'
"""The beginning of a signature's parameters, if each has a line."""
PART = re.compile(
    r'<p class="caption" role="heading"><span class="caption-text">(.+?)</span></p>\s*'
    r"(<ul.*?)(?=<p class=\"caption\"|</div>\s*$|\Z)",
    re.DOTALL,
)
"""A caption of the sidebar, and the list of its pages."""


def vars_of(module: ModuleType) -> dict[str, Any]:
    """Return the public names of a module and what they stand for."""
    return {name: getattr(module, name) for name in sorted(module.__all__)}


class BothSchemes(SphinxTransform):
    """A picture `x-light.svg` has a sister `x-dark.svg`: a reader sees the one of the scheme."""

    default_priority = 500

    def apply(self) -> None:
        """Put the sister next to each picture."""
        for light in list(self.document.findall(image)):
            if "-light." in light["uri"]:
                dark = light.deepcopy()
                dark["uri"] = light["uri"].replace("-light.", "-dark.")
                light["classes"].append("only-light")
                dark["classes"].append("only-dark")
                light.parent.insert(light.parent.index(light) + 1, dark)


class Keywords(SphinxTransform):
    """A page is found by each word that it's meant by, also where its text has another."""

    default_priority = 500

    def apply(self) -> None:
        """Add the words, which the search indexes."""
        self.env.note_dependency(SEARCH)
        meant = [said for said, pages in MEANT.items() if self.env.docname in pages]
        words = {word for said in meant for word in said.split()}
        words |= {token_of(page) for page in TEXTS if self.env.docname in {page, GENERAL}}
        if words:
            self.document.insert(0, meta(name="keywords", content=", ".join(sorted(words))))


class PagesByPart(SphinxDirective):
    """The parts of `pages.md`, and their pages, in the sidebar."""

    def run(self) -> list[Node]:
        """Return a hidden table of contents for each part."""
        page = Path(self.env.doc2path("pages"))
        self.env.note_dependency(page)
        text = []
        for part in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            caption, _, table = part.partition("\n")
            linked = re.findall(r"\]\(([^)]+)\.md\)", table)
            text += ["```{toctree}", ":hidden:", f":caption: {caption}", "", *linked, "```", ""]
        return self.parse_text_to_nodes("\n".join(text))


class PublicNames(SphinxDirective):
    """
    Every public name of a module: in tables, then described.

    The content has a line for each table, `Caption: names`, in the order in which a reader needs
    them; a longer line goes on indented. Names that no line has come last. A name with dots is a
    type that a call returns: it is described too, and users don't import it.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[Node]:
        """Return what the page says of its module."""
        address = self.arguments[0]
        values = vars_of(import_module(address))
        groups = self._groups(values)
        text = [f".. automodule:: {address}", ""]
        for caption, names in groups.items():
            text += [f".. rubric:: {caption}", "", ".. autosummary::", "   :nosignatures:", ""]
            text += [*(f"   ~{full_name(address, name)}" for name in names), ""]
        for name in chain.from_iterable(groups.values()):
            value = values[name] if name in values else returned(name)
            text += described(full_name(address, name), value)
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)

    def _groups(self, values: dict[str, Any]) -> dict[str, list[str]]:
        """Return the names of each table, by its caption."""
        text = "\n".join(self.content).strip()
        lines = [line.partition(":") for line in re.split(r"\n(?=\S)", text) if line]
        groups = {caption: re.split(r"[,\s]+", names.strip()) for caption, _, names in lines}
        listed = [name for names in groups.values() for name in names]
        if unknown := [name for name in listed if name not in values and "." not in name]:
            msg = f"the module has no public name {unknown[0]}"
            raise self.error(msg)
        rest = [name for name in values if name not in listed]
        return {**groups, "More" if groups else "Names": rest} if rest else groups


def full_name(address: str, name: str) -> str:
    """Return where a name of a page is defined or imported from."""
    return name if "." in name else f"{address}.{name}"


def returned(name: str) -> object:
    """Return the type that a call returns, by its module and name."""
    module, _, own = name.rpartition(".")
    return getattr(import_module(module), own)


def described(name: str, value: object) -> list[str]:
    """Return the entry of a name in reStructuredText."""
    if isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        inherited = ["   :inherited-members:"] if issubclass(value, Driver) else []
        return [f".. {kind}:: {name}", "   :members:", *inherited, ""]
    if isroutine(value):
        return [f".. autofunction:: {name}", ""]
    no_value = len(repr(value)) > LONGEST_VALUE
    return [f".. autodata:: {name}", "   :no-value:" if no_value else "", ""]


def describe_data(_app: Sphinx, kind: str, name: str, value: Any, _: Any, lines: list[str]) -> None:
    """Find what is said below a type or a constant, in the module that defines it."""
    if kind == "data":
        name = name.rpartition(".")[2]
        defining = [
            module
            for module in sorted(set(sys.modules))
            if module.startswith("sessionkit.") and vars(sys.modules[module]).get(name) is value
        ]
        texts = [ModuleAnalyzer.for_module(module).find_attr_docs() for module in defining]
        lines[:] = next((text["", name] for text in texts if ("", name) in text), [])


def mark_code(_app: Sphinx, _kind: str, _name: str, _value: Any, _: Any, lines: list[str]) -> None:
    """Make an example a block of code, and indented lines below a paragraph, as in Markdown."""
    if "Example:" in lines:
        at = lines.index("Example:") + 1
        end = next((n for n, line in enumerate(lines) if n >= at and line[:1].strip()), len(lines))
        code = [f"    {line}" if line else "" for line in lines[at:end]]
        lines[at:end] = ["    .. code-block:: python", "", *code]
    for at in range(len(lines) - 1, 1, -1):
        above, empty, line = lines[at - 2 : at + 1]
        if line.startswith("    ") and not empty and above and not above.startswith((" ", "* ")):
            lines[at:at] = ["::", ""]


def shorten_defaults(
    _app: Sphinx, _kind: str, _name: str, _value: Any, _: Any, signature: str | None, result: Any
) -> tuple[str | None, Any]:
    """Write `...` for a default that attrs makes anew for each object."""
    return signature and signature.replace("= NOTHING", "= ..."), result


def skip_what_nobody_calls(
    _app: Sphinx, _kind: str, _name: str, value: Any, _skip: Any, _: Any
) -> bool | None:
    """Leave out the fields of a named tuple, which its class describes, and `NOT_CALLED`."""
    function = getattr(value, "fget", value)
    is_field = str(value.__doc__).startswith("Alias for field number")
    return True if is_field or getattr(function, "__qualname__", "") in NOT_CALLED else None


def fold_sidebar(
    _app: Sphinx, name: str, _template: str, context: dict[str, Any], _: Node | None
) -> None:
    """Let a reader open the parts of the sidebar, of which the page's own is open."""
    if tree := context.get("furo_navigation_tree"):
        is_start = name == "index"

        def folded(part: re.Match[str]) -> str:
            is_open = (
                " open" if 'class="current' in part[2] or (is_start and part[1] == "Start") else ""
            )
            summary = f'<summary><span class="caption-text">{part[1]}</span></summary>'
            return f"<details{is_open}>{summary}{part[2]}</details>"

        context["furo_navigation_tree"] = PART.sub(folded, tree)


def name_by_titles(app: Sphinx, doctree: Node, name: str) -> None:
    """Show the title of each page in the list of all pages."""
    if name == "pages":
        addresses = {app.builder.get_relative_uri(name, each): each for each in app.env.titles}
        for link in doctree.findall(reference):
            if page := addresses.get(link.get("refuri", "")):
                link.children = [Text(app.env.titles[page].astext())]
                link.children[0].parent = link


def describe_page(
    _app: Sphinx, name: str, _template: str, context: dict[str, Any], doctree: Node | None
) -> None:
    """Say in the head what the page is about, where its picture is, and its Markdown."""
    if doctree is None:
        return
    start = next((each.astext() for each in doctree.findall(paragraph) if each.astext()), ABOUT)
    about = ABOUT if name == "index" else first_words(start)
    picture = html_baseurl + PREVIEW if html_baseurl else context["pathto"](PREVIEW, resource=True)
    title = re.sub(r"<[^>]+>", "", context["title"])
    tags = {"og:title": title, "og:description": about, "og:type": "article", "og:image": picture}
    lines = [f'<meta name="description" content="{escape(about)}">']
    lines += [f'<meta property="{key}" content="{escape(said)}">' for key, said in tags.items()]
    text = context["pathto"](f"{name}.md", resource=True)
    lines.append(f'<link rel="alternate" type="text/markdown" href="{text}">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def mark_signature_lines(
    _app: Sphinx, _name: str, _template: str, context: dict[str, Any], _doctree: Node | None
) -> None:
    """Tell a screen reader that the lines of a signature are no list of terms."""
    if "body" in context:
        context["body"] = context["body"].replace(LINES, LINES.replace(">", ' role="none">', 1))


def add_texts(
    app: Sphinx, name: str, _template: str, _context: dict[str, Any], _: Node | None
) -> None:
    """Give the page of the search the texts of our errors."""
    if name == "search":
        errors = {page: {"token": token_of(page), "heads": each} for page, each in TEXTS.items()}
        app.add_js_file(None, body=f"const ERRORS = {json.dumps(errors)};")


def write_text(app: Sphinx, error: Exception | None) -> None:
    """Write each page as Markdown next to its HTML, and `llms.txt`, which lists them."""
    if error is None and app.builder.format == "html":
        docs = Path(app.srcdir)
        for name in app.env.found_docs:
            path = app.outdir / f"{name}.md"
            path.write_text(text_of_page(docs, name), "utf-8")
        titles = {name: title.astext() for name, title in app.env.titles.items()}
        listed = list_of_pages(docs, titles, app.env.found_docs)
        (app.outdir / "llms.txt").write_text(listed, "utf-8")


def list_versions(app: Sphinx, error: Exception | None) -> None:
    """Write which versions there are: this one, until it is published next to others."""
    if error is None and app.builder.format == "html":
        alone = [{"name": release, "folder": "./"}]
        (app.outdir / "versions.json").write_text(json.dumps(alone), "utf-8")


def forward_old_addresses(app: Sphinx, error: Exception | None) -> None:
    """Write a page at each old address that leads to the new one."""
    if error is None and app.builder.format == "html":
        for old, new in MOVED.items():
            page = app.outdir / f"{old}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            name, sharp, heading = new.partition("#")
            there = Path(os.path.relpath(f"{name}.html", Path(old).parent)).as_posix()
            text = FORWARD.format(there + sharp + heading, there, sharp + heading)
            page.write_text(text, "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx what this file adds."""
    app.add_directive("pages-by-part", PagesByPart)
    app.add_directive("public", PublicNames)
    app.add_transform(BothSchemes)
    app.add_transform(Keywords)
    app.connect("autodoc-process-docstring", describe_data, priority=600)  # after napoleon
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", shorten_defaults)
    app.connect("autodoc-skip-member", skip_what_nobody_calls)
    app.connect("doctree-resolved", name_by_titles)
    app.connect("html-page-context", describe_page)
    app.connect("html-page-context", mark_signature_lines)
    app.connect("html-page-context", add_texts)
    app.connect("html-page-context", fold_sidebar, priority=900)  # after furo
    app.connect("build-finished", list_versions)
    app.connect("build-finished", forward_old_addresses)
    app.connect("build-finished", write_text)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
