"""
Figures at the end of a run: the cases of other engines, and the cells of the output rules.

They're read from the reports, not printed by the tests, because a test may run in another process.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pytest

Record: TypeAlias = Callable[[str, object], None]
"""What the fixture `record_property` is."""

FIGURES: Final = "figures"
"""The name under which a test calls `record_property` for a line at the end of the run."""

CASES: Final = "conformance/test_conformance.py::"
TITLES: Final = {
    "driver": "::test_a_case_has_its_answer_on_the_driver[",
    "Spark": "::test_a_case_has_its_answer_on_spark[",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for the conformance cases, and one for each test that has recorded figures."""
    reports = list(_reports(terminalreporter))
    cases = [report for report in reports if CASES in report.nodeid and "[" in report.nodeid]
    if cases:
        terminalreporter.write_line(f"conformance: {_conformance(cases)}")
    for report in reports:
        for name, line in report.user_properties:
            if name == FIGURES and report.when == "call":
                terminalreporter.write_line(str(line))


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            # A file that can't be imported has a report of another kind.
            if isinstance(report, pytest.TestReport):
                yield report


def _conformance(cases: list[pytest.TestReport]) -> str:
    """Say how many cases passed, failed and were not run, on the driver and on Spark."""
    planned = {report.nodeid.split("[", 1)[1] for report in cases}
    parts = []
    for title, test in TITLES.items():
        reports = [report for report in cases if test in report.nodeid]
        failed = {report.nodeid for report in reports if report.failed}
        passed = {report.nodeid for report in reports if report.passed} - failed
        not_run = len(planned) - len(passed) - len(failed)
        parts.append(f"{title} {len(passed)} passed, {len(failed)} failed, {not_run} not run")
    return "; ".join(parts)
