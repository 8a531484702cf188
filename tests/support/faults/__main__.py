"""
The program of `make faults`: a number of kills, and then one line that says what they did.

A seed decides events and kills. The same one again gives the same events, and kills of the same
kinds in the same order; when exactly each falls, the machine decides.
"""

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from math import inf
from pathlib import Path
from random import Random

from examples.embedded_postgres import PostgresMissingError
from tests.support.faults.campaign import JOBS, KINDS, OF_JVM, Campaign, deck
from tests.support.faults.job import Job, Servers
from tests.support.faults.servers import class_path, running
from tests.support.faults.timeline import Audit
from tests.support.kafka import KafkaMissingError
from tests.support.spark_settings import quick_settings


def main() -> int:
    """Run the campaign of the command line; the exit status says whether all is sound."""
    parser = argparse.ArgumentParser(description="Kill jobs, and look for every event.")
    parser.add_argument("--kills", type=int, default=100, help="how often; default: 100")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="what decides")
    parser.add_argument("--segment", type=int, default=25, help="kills of one job; default: 25")
    parser.add_argument("--minutes", type=float, default=inf, help="begin no other job after these")
    parser.add_argument(
        "--ends",
        choices=("files", "servers", "both", "alone"),
        default="both",
        help="source and sink; with `alone`, Spark writes to one folder, and each kill is of a JVM",
    )
    options = parser.parse_args()
    # An end from outside is an exit as any other: it leaves no process behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="sessionkit-faults-"))
    _say(f"faults: seed {options.seed}")
    with ExitStack() as stack:
        ends = _ends(stack, folder, options.ends)
        settings = quick_settings(*(class_path(end) for end in ends if end))
        campaign = Campaign(folder, settings, Random(options.seed))
        stack.enter_context(campaign.running())
        audit = _run(campaign, ends, options)
    for cause, times in campaign.failures.most_common():
        _say(f"faults: {times} queries had lost workers: {cause}")
    if audit.is_sound:
        shutil.rmtree(folder)
    else:
        _say(f"faults: everything is still in {folder}")
    checked = ", ".join(f"{times} {what}" for what, times in campaign.checks.items())
    _say(f"faults: {campaign.kills.total()} kills, {audit}; {checked or 'nothing refused'}")
    return int(not audit.is_sound)


def _ends(stack: ExitStack, folder: Path, chosen: str) -> list[Servers | None]:
    """Start servers, where they are wanted and can be had; None is for files."""
    if chosen == "alone":
        return [None]
    ends: list[Servers | None] = [] if chosen == "servers" else [None]
    if chosen != "files":
        try:
            ends.append(stack.enter_context(running(folder)))
        except (KafkaMissingError, PostgresMissingError) as error:
            _say(f"faults: Kafka to PostgreSQL not run: {error}")
    return ends


def _run(campaign: Campaign, ends: Sequence[Servers | None], options: argparse.Namespace) -> Audit:
    is_alone = options.ends == "alone"
    kinds = deck(campaign.random, options.kills, OF_JVM if is_alone else KINDS)
    size = options.segment
    parts = [kinds[first : first + size] for first in range(0, len(kinds), size)]
    total = Audit(0, 0, 0, 0)
    # Where both ends are tried, each job comes with each of them, one after the other.
    jobs = cycle((what, end) for what in JOBS for end in ends)
    last = time.monotonic() + 60 * options.minutes
    for number, (part, (what, end)) in enumerate(zip(parts, jobs, strict=False)):
        if time.monotonic() > last:
            break
        job = Job(*what, campaign.folder / f"{number}", end, "Files" if is_alone else None)
        before = campaign.kills.total()
        audit = campaign.segment(job, f"{options.seed}/{number}", part)
        done = f"{campaign.kills.total() - before} kills, {audit.events} events: {audit}"
        _say(f"faults: {number + 1}/{len(parts)}, {job.name}: {done}")
        total = total.plus(audit)
    shown = ", ".join(f"{times} {kind}" for kind, times in campaign.kills.most_common())
    _say(f"faults: {shown}; {total.events} events, {campaign.starts} JVMs")
    return total


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 (a program)


if __name__ == "__main__":
    sys.exit(main())
