"""The site as text, for programs that read it: each page as Markdown, and a list in `llms.txt`."""

import inspect
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["ABOUT", "first_words", "list_of_pages", "text_of_page"]

ABOUT: Final = (
    "sessionkit turns a stream or a table of events into sessions, or keeps any state per key, on "
    "Spark, in plain Python. The same spec runs on a stream, on a batch, and in a unit test "
    "without Spark or a JVM."
)
INCLUDED: Final = re.compile(r"^```\{literalinclude\} (\S+)\n:language: (\w+)\n```$", re.MULTILINE)
MODULE: Final = re.compile(r"^\.\. public:: (\S+)$", re.MULTILINE)
LISTED: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+)\.md\)")
COMMENT: Final = re.compile(r"^<!-- .+? -->\n", re.MULTILINE)
LONGEST: Final = 200


def text_of_page(docs: Path, name: str) -> str:
    """Return a page as Markdown without directives; the front page is the README."""
    if name == "index":
        readme = (docs.parent / "README.md").read_text("utf-8")
        return COMMENT.sub("", readme).replace("](docs/", "](").replace('="docs/', '="')
    page = docs / f"{name}.md"
    text = page.read_text("utf-8")
    if module := MODULE.search(text):
        return text_of_module(module[1])
    if "{include} ../CHANGELOG.md" in text or "{include} ../CONTRIBUTING.md" in text:
        return (docs.parent / f"{name.upper()}.md").read_text("utf-8")

    def file(found: re.Match[str]) -> str:
        return f"```{found[2]}\n{(page.parent / found[1]).read_text('utf-8')}```"

    return COMMENT.sub("", INCLUDED.sub(file, text))


def text_of_module(name: str) -> str:
    """Return the public names of a module: signatures, and docstrings as they are written."""
    module = import_module(name)
    parts = [f"# {name}\n\n{inspect.getdoc(module)}\n"]
    for each in sorted(module.__all__):
        value = getattr(module, each)
        described = inspect.getdoc(value) if callable(value) else None
        parts.append(f"\n## {each}\n\n```python\n{signature_of(each, value)}\n```\n")
        if described and (value.__module__ or "").startswith("sessionkit"):
            parts.append(f"\n{described}\n")
    return "".join(parts)


def signature_of(name: str, value: object) -> str:
    """Return how a name is called, or the name where nobody calls it."""
    if not callable(value):
        return name
    try:
        return f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return name


def first_words(text: str) -> str:
    """Return the first paragraph of a page, in one line, cut after a word."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rpartition(' ')[0]} ..."


def list_of_pages(docs: Path, titles: Mapping[str, str], others: Iterable[str]) -> str:
    """Return `llms.txt`: the parts of the list of pages, and then all others, by their titles."""
    lines = ["# sessionkit", "", f"> {ABOUT}", ""]
    listed = set[str]()
    for part in (docs / "pages.md").read_text("utf-8").split("\n## ")[1:]:
        caption, _, table = part.partition("\n")
        lines += [f"## {caption}", ""]
        for row in table.splitlines():
            about = row.rpartition(" | ")[2].removesuffix(" |")
            links = [name for _, name in LISTED.findall(row)]
            is_alone = len(LISTED.findall(row.rpartition(" | ")[0])) == 1
            says = f": {LISTED.sub(lambda link: link[1], about)}" if is_alone else ""
            for name in links:
                lines.append(f"- [{titles[name]}]({name}.md){says}")
                says = ""
            listed |= {*links}
        lines.append("")
    rest = sorted(name for name in others if name not in listed)
    return "\n".join([*lines, "## More", "", *(f"- [{titles[one]}]({one}.md)" for one in rest), ""])
