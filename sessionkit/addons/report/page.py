"""One HTML page of its own: the counts, and the script that shows them."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, Final

import attrs

from sessionkit.addons.report.summary import Summary

TEMPLATE: Final = files("sessionkit.addons.report").joinpath("page.html")
SCRIPT: Final = files("sessionkit.addons.report").joinpath("page.js")
HEIGHT: Final = 900


class Page(str):
    """A page as its HTML, which a notebook shows in a frame of its own."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # A sandbox: the scripts of the page can't reach the notebook.
        return (
            f'<iframe title="A report on sessions" srcdoc="{escape(self)}" '
            'sandbox="allow-scripts allow-downloads allow-modals" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )


def page_of(summary: Summary, title: str) -> Page:
    """Return the page: it asks no network for anything, and runs no script but its own."""
    script = SCRIPT.read_text(encoding="utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    parts = {
        "TITLE": escape(title),
        "DIGEST": digest,
        "GIVEN": _json(attrs.asdict(summary)),
        "SCRIPT": script,
    }
    # One pass, so that no value is looked through for the names of parts.
    return Page(re.sub("%([A-Z]+)%", lambda part: parts[part[1]], TEMPLATE.read_text("utf-8")))


def _json(value: Any) -> str:
    """Return JSON that no parser of HTML takes for the end of a script, or a comment in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
