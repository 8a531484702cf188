"""The charts of a report: each is a Vega-Lite spec over one small table, which the page fills."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import altair as alt
import attrs

from sessionkit.addons.report.summary import COUNTS, LENGTHS, Summary

COLORS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")
"""Told apart by the color-blind too: those of Okabe and Ito."""
FIRST, SECOND = COLORS[0], COLORS[1]
HEIGHT: Final = 220
MINUTE, HOUR, DAY = 60, 3_600, 86_400


@attrs.frozen(kw_only=True)
class Figure:
    """
    One figure of the page.

    Attributes:
        id: What the page calls it.
        section: The heading under which it stands.
        title: What it shows.
        caption: What a reader must know to read it; empty for nothing.
        data: The name of its table.
        where: The rows of the table that it shows, by a column and its value; None for all.
        by: The columns by which its table in text adds up.
        of: The column that it adds up.
        chart: The chart.
    """

    id: str
    section: str
    title: str
    caption: str = ""
    data: str
    where: tuple[str, str] | None = None
    by: tuple[str, ...]
    of: str = "sessions"
    chart: alt.TopLevelMixin

    def spec(self) -> dict[str, Any]:
        """Return it in Vega-Lite, with a description for screen readers."""
        found: dict[str, Any] = self.chart.to_dict(context={"pre_transform": False})
        return {**found, "description": f"{self.title}. {self.caption}".strip()}


def figures(summary: Summary) -> list[Figure]:
    """Return the figures for which there are rows."""
    return [one for one in _all(summary) if getattr(summary, one.data)]


def _chart(data: str, height: int = HEIGHT) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=data), width="container", height=height)


def _time(unit: str) -> alt.X:
    return alt.X("at:T", title=unit, scale=alt.Scale(type="utc"))


def _total(field: str, title: str) -> alt.Y:
    return alt.Y(f"sum({field}):Q", title=title)


def _colored(field: str, title: str | None) -> alt.Color:
    return alt.Color(f"{field}:N", title=title, scale=alt.Scale(range=list(COLORS)))


def _all(summary: Summary) -> Iterator[Figure]:
    yield from _over_time(summary)
    yield from _sizes()
    yield from _ways(summary)
    yield _rejected(summary.unit)
    yield _longest()


def _over_time(summary: Summary) -> Iterator[Figure]:
    unit, columns = summary.unit, summary.columns
    yield _sessions(unit, columns.dimension)
    yield Figure(
        id="users",
        section="Sessions and users",
        title=f"Users by {unit}",
        caption=f"Each is counted once in each {unit}"
        + ("." if columns.dimension is None else f", once for each {columns.dimension}."),
        data="totals",
        by=("at",),
        of="users",
        chart=_line(_chart("totals"), FIRST).encode(
            _time(unit), _total("users", "users"), tooltip=_tips("at:T", "sum(users):Q")
        ),
    )
    yield _new(unit, is_numbered=columns.number is not None)
    if columns.engaged is not None:
        yield _share("engaged", "Engaged sessions", unit)
    if columns.bounce is not None or columns.events is not None:
        yield _share("bounced", "Bounces", unit)


def _line(chart: alt.Chart, color: str) -> alt.Chart:
    drawn: alt.Chart = chart.mark_line(point=alt.OverlayMarkDef(color=color), color=color)
    return drawn


def _sessions(unit: str, dimension: str | None) -> Figure:
    return Figure(
        id="sessions",
        section="Sessions and users",
        title=f"Sessions by {unit} of their start" + (f" and {dimension}" if dimension else ""),
        data="totals",
        by=("at", "value") if dimension else ("at",),
        chart=_chart("totals")
        .mark_bar()
        .encode(
            _time(unit),
            _total("sessions", "sessions"),
            _colored("value", dimension) if dimension else alt.ColorValue(FIRST),
            tooltip=_tips("at:T", "value:N", "sum(sessions):Q"),
        ),
    )


def _new(unit: str, *, is_numbered: bool) -> Figure:
    return Figure(
        id="new",
        section="Sessions and users",
        title="New and returning",
        caption="A session is a new user's if it's number 1."
        if is_numbered
        else "A user is new in the first session among these rows.",
        data="totals",
        by=("at",),
        of="new",
        chart=_chart("totals")
        .transform_calculate(returning="datum.sessions - datum.new")
        .transform_fold(["new", "returning"], ["who", "counted"])
        .mark_bar()
        .encode(
            _time(unit),
            alt.Y("sum(counted):Q", title="sessions"),
            _colored("who", None),
            tooltip=_tips("at:T", "who:N", "sum(counted):Q"),
        ),
    )


def _share(field: str, title: str, unit: str) -> Figure:
    return Figure(
        id=field,
        section="Sessions and users",
        title=f"{title}, as a share of all",
        data="totals",
        by=("at",),
        of=field,
        chart=_line(
            _chart("totals")
            .transform_aggregate(part=f"sum({field})", whole="sum(sessions)", groupby=["at"])
            .transform_calculate(share="datum.part / datum.whole"),
            SECOND,
        ).encode(
            _time(unit),
            alt.Y("share:Q", title="share", axis=alt.Axis(format="%")).scale(domain=[0, 1]),
            tooltip=_tips("at:T", "share:Q"),
        ),
    )


def _sizes() -> Iterator[Figure]:
    lengths = [_span(start) for start in LENGTHS]
    counts = [
        f"{start:,}" if end == start + 1 else f"{start:,} to {end - 1:,}"
        for start, end in pairwise(COUNTS)
    ]
    for name, title, caption, labels in (
        (
            "lengths",
            "How long sessions last",
            "From the first event to the end, the gap included; each bar begins at its label.",
            lengths,
        ),
        ("counts", "How many events they have", "", [*counts, f"{COUNTS[-1]:,} or more"]),
    ):
        yield Figure(
            id=name,
            section="Length and events",
            title=title,
            caption=caption,
            data=name,
            by=("bin",),
            chart=_chart(name)
            .transform_calculate(label=f"{json.dumps(labels)}[datum.bin]")
            .mark_bar(color=FIRST)
            .encode(
                alt.X("label:N", sort=labels, title=None, axis=alt.Axis(labelAngle=-40)),
                _total("sessions", "sessions"),
                tooltip=_tips("label:N", "sum(sessions):Q"),
            ),
        )


def _span(seconds: int) -> str:
    for unit, length in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _ways(summary: Summary) -> Iterator[Figure]:
    yield _ranked("reasons", "what", "Why they ended", "closed_by of their rows.")
    if summary.columns.funnel:
        yield _funnel(summary.columns.funnel)
    yield _ranked("pages", "page", "Where they begin", where=("role", "entry"), id="entry")
    yield _ranked("pages", "page", "Where they end", where=("role", "exit"), id="exit")


def _ranked(
    data: str,
    field: str,
    title: str,
    caption: str = "",
    *,
    where: tuple[str, str] | None = None,
    id: str | None = None,  # noqa: A002 (that of the figure)
) -> Figure:
    return Figure(
        id=id or data,
        section="Paths" if where else "Length and events",
        title=title,
        caption=caption,
        data=data,
        where=where,
        by=(field,),
        chart=_chart(data)
        .mark_bar(color=FIRST)
        .encode(
            alt.X("sum(sessions):Q", title="sessions"),
            alt.Y(f"{field}:N", sort="-x", title=None),
            tooltip=_tips(f"{field}:N", "sum(sessions):Q"),
        ),
    )


def _funnel(steps: tuple[str, ...]) -> Figure:
    base = (
        _chart("funnel")
        .transform_aggregate(sessions="sum(sessions)", groupby=["step"])
        .transform_window(
            before="lag(sessions)", first="first_value(sessions)", sort=[alt.SortField("step")]
        )
        .transform_calculate(
            label=f"{json.dumps(steps)}[datum.step]",
            text="format(datum.sessions, ',') + (datum.before ? ' (' + "
            "format(datum.sessions / datum.before, '.0%') + ' of those before)' : '')",
        )
        .encode(y=alt.Y("label:N", sort=list(steps), title=None), x=alt.X("sessions:Q"))
    )
    return Figure(
        id="funnel",
        section="Paths",
        title="The funnel",
        caption="How many sessions got to each step, all steps before it included.",
        data="funnel",
        by=("step",),
        chart=alt.layer(
            base.mark_bar(color=FIRST),
            base.mark_text(align="left", dx=4, fontSize=12).encode(text="text:N"),
        ),
    )


def _rejected(unit: str) -> Figure:
    return Figure(
        id="kinds",
        section="Late, duplicate and rejected rows",
        title=f"Rows that are no part of a session, by {unit} and reason",
        data="kinds",
        by=("kind", "reason"),
        of="counted",
        chart=_chart("kinds")
        .mark_bar()
        .encode(
            _time(unit),
            _total("counted", "rows"),
            _colored("reason", None),
            tooltip=_tips("at:T", "kind:N", "reason:N", "sum(counted):Q"),
        ),
    )


def _longest() -> Figure:
    return Figure(
        id="longest",
        section="Sessions that stand out",
        title="The longest",
        data="longest",
        by=("who", "id"),
        of="length",
        chart=_chart("longest", height=260)
        .mark_bar(color=FIRST, cornerRadius=3)
        .encode(
            alt.X("began:T", title=None, scale=alt.Scale(type="utc")),
            alt.X2("ended:T"),
            alt.Y(
                "id:N", sort=None, title=None, axis=alt.Axis(labelExpr="slice(datum.label, 0, 8)")
            ),
            tooltip=_tips("id:N", "who:N", "began:T", "ended:T", "events:Q"),
        ),
    )


def _tips(*fields: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip(field, title=field.split(":")[0], format="%Y-%m-%d %H:%M")
        if field.endswith(":T")
        else alt.Tooltip(field, title=field.split(":")[0])
        for field in fields
    ]
