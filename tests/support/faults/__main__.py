"""
The program behind `make faults`: so many kills, and then one line that says what they did.

A seed decides events and kills. The same one again gives the same events, and kills of the same
kinds in the same order; when exactly each falls, the machine decides.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

from tests.support.faults.campaign import JOBS, Campaign, deck
from tests.support.faults.job import Job
from tests.support.faults.timeline import Audit
from tests.support.spark_settings import quick_settings

__all__ = ["main"]


def main() -> int:
    """Run the campaign of the command line; the exit status says whether all is sound."""
    parser = argparse.ArgumentParser(description="Kill jobs, and look for every event.")
    parser.add_argument("--kills", type=int, default=100, help="how often; default: 100")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="what decides")
    parser.add_argument("--segment", type=int, default=25, help="kills of one job; default: 25")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sessionkit-faults-"))
    _say(f"faults: seed {options.seed}")
    campaign = Campaign(folder, quick_settings(), Random(options.seed))
    with campaign.running():
        audit = _run(campaign, options.kills, options.segment, options.seed)
    for cause, times in campaign.failures.most_common():
        _say(f"faults: {times} queries had lost workers: {cause}")
    if audit.is_sound:
        shutil.rmtree(folder)
    else:
        _say(f"faults: everything is still in {folder}")
    _say(f"faults: {campaign.kills.total()} kills, {audit}")
    return int(not audit.is_sound)


def _run(campaign: Campaign, kills: int, size: int, seed: str) -> Audit:
    kinds = deck(campaign.random, kills)
    total = Audit(0, 0, 0, 0)
    parts = [kinds[first : first + size] for first in range(0, kills, size)]
    for number, part in enumerate(parts):
        job = Job(*JOBS[number % len(JOBS)], campaign.folder / f"{number}")
        before = campaign.kills.total()
        audit = campaign.segment(job, f"{seed}/{number}", part)
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
