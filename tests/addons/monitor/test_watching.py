"""What the live view of a query shows in terminals of any size, without a query."""

import re
import signal
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from sessionkit import Counts
from sessionkit.addons.monitor.query_status import QueryStatus
from sessionkit.spark.progress import instant_in
from tests.support.progress import progress_of

pytest.importorskip("rich")
from rich.console import Console

from sessionkit.addons.monitor.watching import BARS, SHOWN, Picture, reason_in, watch

MANY = 1_234_567_890
NAMES = [label for rows in SHOWN.values() for label, _, _ in rows]
FAILURE = """\
[STREAM_FAILED] Query [id = 7f, runId = 8a] terminated with exception: Job aborted: Traceback:
  File "visits.py", line 3, in update
sessionkit.errors.UserFunctionError: `update` (Visit.update) raised ValueError: /broken, for 'ann'

Hint: fix the function, or count such events as failed with on_error='reject'

Traceback (most recent call last):
\tat org.apache.spark.api.python.BasePythonRunner
"""


def statuses(micro_batches: int) -> list[QueryStatus]:
    """Return how a query with large numbers stood after each micro-batch."""
    reports = []
    for number in range(micro_batches):
        report = progress_of(
            number, f"8|1:{MANY}:{MANY}:{MANY}:7:", rows=MANY + number, second=number
        )
        report["observedMetrics"]["sessionkit"]["late"] = MANY // 3
        report["eventTime"] = {"watermark": f"2026-03-08T11:{number:02}:00.000Z"}
        reports.append(report)
    return [*accumulate(reports, QueryStatus.add, initial=QueryStatus())][1:]


def drawn(
    status: QueryStatus, history: Any = (), *, width: int = 80, height: int = 100, file: Any = None
) -> list[str]:
    """Return the lines that a terminal of this size shows."""
    size: Any = {"width": width, "height": height}
    terminal = Console(file=file or StringIO(), force_terminal=True, color_system=None, **size)
    with terminal.capture() as captured:
        terminal.print(Picture(status, history))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [120, 80, 60, 50])
def test_a_number_is_whole_in_a_terminal_of_any_width(width: int) -> None:
    """However narrow the terminal is: the label of a number wraps, the number doesn't."""
    history = statuses(3)
    lines = drawn(history[-1], history, width=width)
    text = "\n".join(lines)
    assert {width} == {len(line) for line in lines}
    assert "…" not in text
    for number in (f"{MANY:,}", f"{3 * (MANY // 3):,}  33.33 %", "2026-03-08 11:02:00Z"):
        assert number in text
    assert {name for name in NAMES if name in text} == {*NAMES}


@pytest.mark.parametrize(("width", "columns"), [(100, 2), (99, 1), (50, 1)])
def test_a_narrow_terminal_has_one_column(width: int, columns: int) -> None:
    """A wide one has two sections next to each other."""
    (line,) = [line for line in drawn(QueryStatus(), width=width) if "rates" in line]
    assert (columns == 2) == ("time" in line)


@pytest.mark.parametrize("width", [120, 80, 50])
def test_a_low_terminal_shows_whole_sections(width: int) -> None:
    """The first ones, as many as fit, and that there is more."""
    history = statuses(3)
    lines = drawn(history[-1], history, width=width, height=16)
    assert len(lines) <= 16
    assert lines[0].startswith("╭")
    assert lines[-1].startswith("╰")
    assert "more in a larger terminal" in lines[-2]
    assert "watermark" in "".join(lines)
    assert "memory of Spark" not in "".join(lines)


def test_rate_and_lag_have_a_line_of_history() -> None:
    """A bar for each micro-batch, against the highest; the latest ones, where not all fit."""
    noon = datetime(2026, 3, 8, 12, tzinfo=UTC)
    lags = [timedelta(minutes=lag) for lag in (0, 5, 10)]
    history = [QueryStatus(watermark=noon, began=noon + lag) for lag in lags]
    (lag,) = [line for line in drawn(history[-1], history) if "up to 0:10:00" in line]
    assert "▁▅█" == "".join(re.findall(f"[{BARS[0]}]", lag))
    history = statuses(40)
    text = "".join(drawn(history[-1], history, width=50)).partition("time")[0]
    assert 10 < len(re.findall(f"[{BARS[0]}]", text)) < 40


def test_the_view_begins_with_what_spark_remembers() -> None:
    """So the lines of history are there at the first look, with each micro-batch once."""
    query: Any = SimpleNamespace(
        id="7f",
        name="visits",
        isActive=False,
        recentProgress=[progress_of(number, "8|", second=number) for number in range(9)],
        exception=lambda: None,
    )
    console = Console(file=StringIO(), width=80)
    last = watch(query, every="1ms", console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert (8, False) == (last.batch, last.is_active)
    assert 9 == len(re.findall(f"[{BARS[0]}]", shown.partition("time")[0]))


@attrs.frozen
class Interrupted:
    """A query that runs on, and during whose calls Ctrl-C is pressed."""

    presses: int = 1
    id: str = "7f"
    name: str = "visits"
    isActive: bool = True  # noqa: N815 (Spark's name)
    recentProgress: tuple[Any, ...] = ()  # noqa: N815 (Spark's name)

    def exception(self) -> None:
        """Return no error: this call goes on after the first interrupt."""
        for _ in range(self.presses):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_the_view_after_the_call_of_spark_that_it_meets() -> None:
    """An exception in the call would make py4j log an error; only a second Ctrl-C raises one."""
    before, console = signal.getsignal(signal.SIGINT), Console(file=StringIO())
    once: Any = Interrupted()
    twice: Any = Interrupted(presses=2)

    assert watch(once, every="1 hour", console=console).is_active
    with pytest.raises(KeyboardInterrupt):
        watch(twice, console=console)
    assert before == signal.getsignal(signal.SIGINT)


def test_a_terminal_that_knows_only_ascii_gets_no_more() -> None:
    """Its lines of history too."""
    history = statuses(3)
    text = "".join(drawn(history[-1], history, file=Encoded()))
    assert "up to" in text
    assert text.isascii()


class Encoded(StringIO):
    """A file that takes ASCII only."""

    encoding = "ascii"


def test_a_failed_query_shows_its_reason() -> None:
    """Of an error of sessionkit what it says, without the traces of Spark; else the first lines."""
    failed = QueryStatus("visits", is_active=False, failure=FAILURE)
    text = " ".join(" ".join(drawn(failed, width=60)).replace("│", " ").split())
    assert "failed" in text
    assert (
        "UserFunctionError: `update` (Visit.update) raised ValueError: /broken, for 'ann'" in text
    )
    assert "Hint: fix the function" in text
    assert "org.apache" not in text
    assert ["no such topic"] == reason_in("no such topic\n\tat org.apache.kafka")


def test_what_nobody_knows_is_unknown() -> None:
    """Before the first micro-batch all numbers are, but for the counts."""
    text = "".join(drawn(QueryStatus()))
    assert "unknown" in text
    assert "0" in text


def test_any_name_and_any_instant_can_be_drawn() -> None:
    """A name in brackets isn't markup, and Spark knows years that Python doesn't."""
    far = QueryStatus("visits [/] [red]", newest_event=instant_in("+57153-11-19T19:00:00.000Z"))
    text = "".join(drawn(far))
    assert "visits [/] [red]" in text
    assert "9999-12-31 23:59:59Z" in text


def test_what_a_terminal_would_obey_is_written_out() -> None:
    """Of a query's name, of the parts of a micro-batch, and of a failure."""
    escape = "\x1b]0;mine\x07\x9b31m\u202e\r\n"
    counts = Counts(events=1)
    status = QueryStatus("visits" + escape, parts={escape: 1.0}, totals=counts)
    shown = "".join(drawn(attrs.evolve(status, failure=escape), width=200))
    assert 2 == shown.count(r"\x1b]0;mine\x07\x9b31m\u202e\r\n")
    assert r"\x1b]0;mine\x07\x9b31m\u202e" in reason_in(escape)
    assert shown.isprintable()
