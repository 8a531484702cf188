"""One HTML page of its own: charts, their data, and the libraries that draw them."""

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

import attrs
import vl_convert

from sessionkit.addons.report.charts import Figure, figures
from sessionkit.addons.report.summary import Summary

TEMPLATE: Final = files("sessionkit.addons.report").joinpath("page.html")
SCRIPT: Final = files("sessionkit.addons.report").joinpath("page.js")


def page_of(summary: Summary, title: str) -> str:
    """Return the page: it asks no network for anything."""
    shown = figures(summary)
    tables = {
        field.name: getattr(summary, field.name)
        for field in attrs.fields(Summary)
        if isinstance(getattr(summary, field.name), list)
    }
    given = {
        "tables": {name: _columns(rows) for name, rows in tables.items()},
        "figures": [
            {"id": one.id, "data": one.data, "where": one.where, "by": one.by, "of": one.of}
            | {"spec": one.spec()}
            for one in shown
        ],
        "values": sorted({row["value"] for row in summary.totals}),
    }
    return (
        TEMPLATE.read_text(encoding="utf-8")
        .replace("%TITLE%", escape(title))
        .replace("%DIMENSION%", escape(summary.columns.dimension or ""))
        .replace("%HIDDEN%", "" if summary.columns.dimension else "hidden")
        .replace("%SECTIONS%", "\n".join(_sections(shown)))
        .replace("%DATA%", json.dumps(given, default=str).replace("</", "<\\/"))
        .replace("%SCRIPT%", vl_convert.javascript_bundle(SCRIPT.read_text(encoding="utf-8")))
    )


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return rows by column: each name stands once."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _sections(shown: Iterable[Figure]) -> Iterable[str]:
    for heading, members in groupby(sorted(shown, key=_place), key=lambda one: one.section):
        yield f"<section><h2>{escape(heading)}</h2>"
        if heading == "Length and events":
            yield '<div class="scroll"><table id="quantiles"></table></div>'
        yield '<div class="figures">'
        yield from map(_figure, members)
        yield "</div></section>"


SECTIONS: Final = (
    "Sessions and users",
    "Length and events",
    "Paths",
    "Late, duplicate and rejected rows",
    "Sessions that stand out",
)


def _place(figure: Figure) -> int:
    return SECTIONS.index(figure.section)


def _figure(one: Figure) -> str:
    return (
        f'<figure id="figure-{one.id}"{" class=wide" if one.id in WIDE else ""}>'
        f"<figcaption><h3>{escape(one.title)}</h3><p>{escape(one.caption)}</p></figcaption>"
        f'<div class="chart" id="chart-{one.id}"></div>'
        "<details><summary>As a table</summary>"
        f'<div class="scroll"><table id="table-{one.id}"></table></div></details></figure>'
    )


WIDE: Final = frozenset({"sessions", "funnel", "kinds"})
