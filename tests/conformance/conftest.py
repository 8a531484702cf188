"""One line that sums the cases up."""

from typing import Final

import pytest

TITLES: Final = {"driver": "::test_on_driver[", "Spark": "::test_on_spark["}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases passed, failed and were not run, on the driver and on Spark."""
    planned = {report.nodeid.split("[", 1)[1] for report in _reports(terminalreporter)}
    parts = []
    for title, test in TITLES.items():
        reports = [report for report in _reports(terminalreporter) if test in report.nodeid]
        failed = {report.nodeid for report in reports if report.failed}
        passed = {report.nodeid for report in reports if report.passed} - failed
        not_run = len(planned) - len(passed) - len(failed)
        parts.append(f"{title} {len(passed)} passed, {len(failed)} failed, {not_run} not run")
    if planned:
        terminalreporter.write_line(f"conformance: {'; '.join(parts)}")


def _reports(terminalreporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """Return what became of the cases, and of those that are not run."""
    return [
        report
        for kind in ("passed", "failed", "error", "skipped")
        for report in terminalreporter.stats.get(kind, [])
        if "test_conformance.py::" in report.nodeid and "[" in report.nodeid
    ]
