"""How values are shown: specs and aggregates as calls, lists and counts as tables."""

from datetime import timedelta
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest

from examples.visits import View, visits
from sessionkit import Counts, Lateness, SessionRules, SessionSpec
from sessionkit import aggregates as agg
from sessionkit._shown import MOST_CHARACTERS, MOST_ROWS, Listed
from sessionkit.testing import SessionDriver, StatefulDriver, at
from tests.support.stateful_specs import Amount, add, summing

PAGE = View(url="/", seconds=1.0)


@attrs.frozen
class Named:
    """An object with a name."""

    name: str | None
    tags: tuple[str, ...] = ()


def test_a_spec_is_short_and_ends_with_its_result_columns() -> None:
    """Functions and classes have their names, durations are text, and defaults are left out."""
    arguments = (
        "keys={'user_id': str}, event_time='ts', logic=Functions(update=Visit.update, "
        "merge=Visit.merge, finish=Visit.finish), timeout=EventTimeGap(gap='30 minutes'), "
        "watermark_delay='10 minutes'"
    )
    columns = "user_id, session_id, session_start, session_end, last_event_time, pages, reading"
    assert f"SessionSpec({arguments}) -> {columns}" == repr(visits)
    later = attrs.evolve(visits, lateness=Lateness(allowed="1 hour"))
    assert "lateness=Lateness(allowed='1 hour')" in repr(later)


def test_a_rule_by_an_expression_is_shown() -> None:
    """It can't be compared with the default."""
    rules = SessionRules("10 minutes", extends=pc.field("seconds") > 0, midnight="UTC")
    code = "SessionRules(gap='10 minutes', midnight='UTC', extends=(seconds > 0))"
    assert code == repr(rules)
    assert f"timeout={code}" in repr(attrs.evolve(visits, timeout=rules))


def test_a_spec_of_aggregates_shows_the_calls() -> None:
    """As they were written."""
    spec = SessionSpec.aggregate(
        View,
        {"pages": agg.count()},
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="0 seconds",
    )
    assert "logic=Aggregates(event=View, aggregates={'pages': count()})" in repr(spec)


def test_a_spec_of_keys_is_shown_as_a_spec_of_sessions() -> None:
    """With its function and its columns."""
    shown = repr(summing(add))
    assert "process=add, timeout=NoTimeout()" in shown
    assert len(shown) < 400
    assert shown.endswith(f"-> {', '.join(summing(add).result_schema.names)}")


@pytest.mark.parametrize(
    ("shown", "aggregate"),
    [
        ("count()", agg.count()),
        ("count('query')", agg.count("query")),
        ("sum('price', where=is_buy)", agg.sum("price", where="is_buy")),
        ('count(where=(kind == "buy"))', agg.count(where=pc.field("kind") == "buy")),
        ("max('price').from_now()", agg.max("price").from_now()),
        ("(duration() > datetime.timedelta(seconds=10))", agg.duration() > timedelta(seconds=10)),
    ],
)
def test_an_aggregate_is_shown_as_its_call(shown: str, aggregate: agg.Aggregate) -> None:
    """With what selects its events."""
    assert shown == repr(aggregate)


def test_counts_leave_out_zeros() -> None:
    """As text and as the table of a notebook, which says what each count means."""
    counts = Counts(events=1_200, late=3, unknown=frozenset({"sessions"}))
    assert "Counts(events=1200, late=3, unknown=frozenset({'sessions'}))" == repr(counts)
    table = counts._repr_html_()
    assert "<tr><td>events</td><td>1,200</td><td>Rows that came in</td></tr>" in table
    assert "<td>sessions</td><td>unknown</td>" in table
    assert "quarantined" not in table
    assert "<td>events</td><td>0</td>" in Counts()._repr_html_()


def test_lists_of_a_driver_are_tables_in_a_notebook() -> None:
    """A column for each part of the key and of the state; instants in UTC."""
    driver = SessionDriver(visits)
    driver.add("ann", at("10:00"), PAGE)
    driver.run_batch()
    opened = driver.open_sessions()
    table = shown(opened)
    assert [*opened] == opened
    for name in ("user_id", "session_start", "closes", "state.pages"):
        assert f"<th>{name}</th>" in table
    assert "<td>2026-01-01 10:30:00 UTC</td>" in table
    driver.advance_watermark_to(at("11:00"))
    driver.run_batch()
    assert "<th>result.pages</th>" in shown(driver.take_rows())
    keys = StatefulDriver(summing(add))
    keys.add("ann", at("10:00"), Amount(1))
    keys.run_batch()
    assert "<th>state.total</th>" in shown(keys.stored_keys())


def test_a_table_escapes_values_and_has_an_end() -> None:
    """A long value and a long list are cut, and a column without a value is left out."""
    table = shown(Listed([Named("<b>"), Named("a" * (MOST_CHARACTERS + 1))]))
    assert "<td>&lt;b&gt;</td>" in table
    assert f"<td>{'a' * MOST_CHARACTERS}…</td>" in table
    assert "<th>tags</th>" not in table
    many = shown(Listed([Named("x")] * (MOST_ROWS + 2)))
    assert MOST_ROWS == many.count("<td>x</td>")
    assert many.endswith("<p>and 2 more</p>")


def test_a_list_of_plain_values_is_no_table() -> None:
    """Nor is an empty one."""
    for values in ([], [1], [timedelta(0)]):
        assert Listed(values)._repr_html_() is None


def shown(values: Any) -> str:
    """Return the table of a notebook."""
    return str(values._repr_html_())
