"""The table of output rules agrees with the real Spark in every cell."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionkit.errors import SpecError
from sessionkit.spark._output_rules import (
    OUTPUT_MODES,
    QUERY_TYPES,
    OutputMode,
    OutputRule,
    QueryType,
    Sink,
    check_output,
    output_rules,
)
from tests.support.cells import QUERIES, QUICK, Events, try_cells
from tests.support.figures import FIGURES, Record
from tests.support.spark_settings import changed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "output-modes.md"
GENERATED = re.compile(r"<!-- (\w+): begin -->\n\n(.*?)\n\n<!-- \1: end -->", re.DOTALL)


def each_sink_in_turn() -> list[OutputRule]:
    """Return all cells, but of the sinks that accept the same only one for each query and mode."""
    cells = every_sink()
    accepted: dict[tuple[QueryType, OutputMode], list[OutputRule]] = {}
    for rule in cells:
        if rule.refused is None and rule.sink != "file":
            accepted.setdefault((rule.query, rule.mode), []).append(rule)
    some = [rules[place % len(rules)] for place, rules in enumerate(accepted.values())]
    return [*some, *(rule for rule in cells if rule.refused is not None or rule.sink == "file")]


def every_sink() -> list[OutputRule]:
    return [rule for rule in output_rules() if rule.sink != "kafka"]


@pytest.mark.parametrize(
    "chosen", [each_sink_in_turn, pytest.param(every_sink, marks=pytest.mark.long)]
)
def test_every_cell_agrees_with_spark(
    chosen: Callable[[], list[OutputRule]],
    spark: SparkSession,
    tmp_path: Path,
    record_property: Record,
) -> None:
    """Spark runs a micro-batch in the cells that the table accepts, and refuses the others."""
    cells = chosen()
    others = len(output_rules()) - len(cells)
    with changed(spark, QUICK):
        outcomes = try_cells(Events(spark, tmp_path).write(), cells, {})
    summary = outcomes.summary(others, "test_kafka.py tries those of Kafka, `make test-long` all")
    record_property(FIGURES, f"output rules: {summary}")

    assert set(outcomes.said) == set(cells)
    assert outcomes.disagreements == []


def test_the_table_has_every_cell_once() -> None:
    """There is a cell for each query type, mode and sink; and a query to try each type with."""
    cells = {(rule.query, rule.mode, rule.sink) for rule in output_rules()}

    assert len(QUERY_TYPES) * 3 * 6 == len(output_rules()) == len(cells)
    assert set(QUERY_TYPES) == set(QUERIES)


def test_every_refusal_has_a_reason_and_a_hint() -> None:
    """What is refused says why and what to change; what is accepted says neither."""
    for rule in output_rules():
        assert (rule.refused is None) == (rule.hint is None)


def test_a_hint_names_no_mode_that_is_refused() -> None:
    """A mode that a hint names is one that the query and the sink have, or says what it needs."""
    accepted = {(r.query, r.mode, r.sink) for r in output_rules() if r.refused is None}
    for rule in output_rules():
        named = [mode for mode in OUTPUT_MODES if f"'{mode}'" in (rule.hint or "")]
        wrong = [mode for mode in named if (rule.query, mode, rule.sink) not in accepted]
        has_condition = "with a watermark" in str(rule.hint) or "if the query" in str(rule.hint)

        assert has_condition or not wrong, rule


@pytest.mark.parametrize(
    ("query", "mode", "sink", "said", "hint"),
    [
        ("aggregation", "append", None, "no watermark says when a group is final", "declare a"),
        ("session_window", "append", None, "no watermark says when a group is final", "declare a"),
        ("session_window", "update", None, "no row can be updated", "'append' with a"),
        ("sorted", "append", None, "an endless stream can't be sorted", "remove the sort"),
        ("sorted_aggregation", "update", None, "a sort needs the whole result", "'complete'"),
        ("limit", "update", None, "the limit has already counted", "use mode 'append'"),
        ("chained_aggregation", "update", None, "can't take them back", "second query"),
        ("deduplication", "complete", None, "only an aggregation keeps its whole", "'update'"),
        ("outer_join", "update", None, "a row without a match", "use mode 'append'"),
        ("outer_join", "complete", None, "only an aggregation keeps", "use mode 'append'"),
        ("stateful", "update", None, "declared with output mode append", "mode 'append'"),
        ("stateful_update", "append", None, "declared with output mode update", "'update'"),
        ("stateful_update", "complete", None, "only an aggregation keeps", "mode 'update'"),
        ("stateless", "update", "file", "a file sink only adds files", "foreachBatch"),
        (None, "complete", "file", "a file sink only adds files", "foreachBatch"),
    ],
)
def test_a_refusal_says_why_and_what_to_change(
    query: QueryType | None, mode: OutputMode, sink: Sink | None, said: str, hint: str
) -> None:
    """The message names query type, mode and reason, and its hint is one thing to change."""
    with pytest.raises(SpecError) as refused:
        check_output(query, mode, sink)

    message, _, advice = str(refused.value).partition("\n\nHint: ")
    assert said in message
    assert repr(mode) in message
    assert query is None or query in message
    assert sink is None or sink in message
    assert hint in advice


def test_without_a_sink_only_what_no_sink_allows_is_refused() -> None:
    """An aggregation may be written in update mode, though not to files."""
    check_output("aggregation", "update")

    with pytest.raises(SpecError, match="a file sink only adds files"):
        check_output("aggregation", "update", "file")


def test_without_a_type_only_what_no_query_may_do_is_refused() -> None:
    """A query whose type is not known may use any mode that its sink has."""
    for mode in OUTPUT_MODES:
        check_output(None, mode, "memory")

    with pytest.raises(SpecError, match="a query can't write to the file sink"):
        check_output(None, "update", "file")


def test_a_mode_that_is_none_is_refused() -> None:
    """The message names a misspelled mode, and the modes that exist."""
    with pytest.raises(SpecError, match="append, update, complete, found 'upsert'\n\nHint: "):
        check_output("stateless", "upsert")  # type: ignore[arg-type] # the point


# ---------------------------------------------------------------------------- the page of reference


def cell(rules: Iterable[OutputRule]) -> str:
    """Return what the table shows for some sinks in one mode."""
    by_answer: dict[str, list[str]] = {}
    for rule in rules:
        answer = "refused" if rule.refused is not None else "yes"
        answer += f", since Spark {rule.since}" if rule.since else ""
        by_answer.setdefault(answer, []).append(rule.sink)
    (answer,) = by_answer
    return answer


def modes_table() -> str:
    """Return the table of query types and modes, for the sinks that take every mode."""
    head = "| query type | append | update | complete |\n| --- | --- | --- | --- |"
    lines = []
    for query in QUERY_TYPES:
        answers = [
            cell(
                rule
                for rule in output_rules()
                if (rule.query, rule.mode) == (query, mode) and rule.sink != "file"
            )
            for mode in OUTPUT_MODES
        ]
        lines.append(f"| `{query}` | {' | '.join(answers)} |")
    return "\n".join([head, *lines])


def sinks_table() -> str:
    head = "| sink | append | update | complete |\n| --- | --- | --- | --- |"
    lines = []
    for sink in dict.fromkeys(rule.sink for rule in output_rules()):
        taken = [
            any(
                rule.refused is None
                for rule in output_rules()
                if (rule.mode, rule.sink) == (mode, sink)
            )
            for mode in OUTPUT_MODES
        ]
        lines.append(f"| `{sink}` | {' | '.join('yes' if each else 'no' for each in taken)} |")
    return "\n".join([head, *lines])


def reasons_table() -> str:
    """Return the table of refusals: where, why, and what to change."""
    head = "| query type | mode | sink | why not | what to do |\n| --- | --- | --- | --- | --- |"
    found: dict[tuple[str, str], list[OutputRule]] = {}
    for rule in output_rules():
        if rule.refused is not None and rule.hint is not None:
            found.setdefault((rule.refused, rule.hint), []).append(rule)
    lines = []
    for (reason, hint), rules in found.items():
        queries = list(dict.fromkeys(rule.query for rule in rules))
        modes = list(dict.fromkeys(rule.mode for rule in rules))
        sinks = list(dict.fromkeys(rule.sink for rule in rules))
        where = [
            "every" if set(queries) == set(QUERY_TYPES) else ", ".join(f"`{q}`" for q in queries),
            ", ".join(modes),
            {1: "file", 5: "every other", 6: "every"}[len(sinks)],
        ]
        lines.append(f"| {' | '.join([*where, reason, hint])} |")
    return "\n".join([head, *lines])


@pytest.mark.parametrize(
    ("name", "table"),
    [("modes", modes_table()), ("sinks", sinks_table()), ("reasons", reasons_table())],
)
def test_the_page_shows_the_table(name: str, table: str) -> None:
    """The tables of the reference page are those of the code, word for word."""
    tables = dict(GENERATED.findall(PAGE.read_text(encoding="utf-8")))

    assert table == tables[name]
