"""Two runs at once agree on whose files are a micro-batch, whatever the order of their steps."""

import random
from collections import Counter
from functools import partial

import attrs
import pytest

from sessionkit.errors import SinkError
from sessionkit.spark.sinks.marks import Claim, Note
from tests.support.figures import FIGURES, Record
from tests.support.two_runs import Killed, Turns, explained_by

LAST = 4
"""The last micro-batch of a run."""
INTERLEAVINGS = 2000


@attrs.define(eq=False)
class Disk:
    """What all runs see: each note and each row is there from one step on."""

    runs: set[int] = attrs.field(factory=set)
    notes: dict[int, list[Note]] = attrs.field(factory=dict)
    files: dict[tuple[int, str], list[str]] = attrs.field(factory=dict)
    seen: dict[int, list[str]] = attrs.field(factory=dict)

    def rows(self) -> dict[int, list[str]]:
        """Return the rows of each marked micro-batch, as `Files.read` finds them."""
        folders = {
            number: {note.folder for note in notes if note.is_mark}
            for number, notes in self.notes.items()
        }
        return {
            number: [
                row for folder in sorted(names) for row in self.files.get((number, folder), [])
            ]
            for number, names in folders.items()
            if names
        }

    def look(self) -> None:
        """Check that no reader would see another content of a micro-batch than an earlier one."""
        found = self.rows()
        for number, rows in self.seen.items():
            assert rows == found.get(number), f"micro-batch {number} has changed"
        self.seen |= found


@attrs.define(eq=False)
class Run:
    """A run on a copy of the checkpoint, whose steps come in turn; its `Notes` too."""

    name: str
    disk: Disk
    turns: Turns
    plans: str
    """What the copy says of each micro-batch that isn't planned yet."""
    first: int

    def has_run_from(self, run: int) -> bool:
        self.turns.step(self.name, "look for a later run")
        return any(other >= run for other in self.disk.runs)

    def last_run(self) -> int:
        return max(self.disk.runs)

    def add_run(self, run: int) -> None:
        self.turns.step(self.name, "note the run")
        self.disk.runs.add(run)

    def about(self, number: int) -> list[Note]:
        self.turns.step(self.name, f"look at {number}")
        return [*self.disk.notes.get(number, [])]

    def add(self, number: int, note: Note) -> None:
        self.turns.step(self.name, f"{'mark' if note.is_mark else 'note as saved'} {number}")
        self.disk.notes.setdefault(number, []).append(note)

    def save(self, number: int, folder: str, plan: str) -> None:
        for part in range(2):
            self.turns.step(self.name, f"save part {part} of {number}")
            self.disk.files.setdefault((number, folder), []).append(f"{plan}.{part}")

    def clear(self, number: int, kept: str) -> None:
        for other in [*self.disk.files]:
            if number == self.first and other[0] == number and other[1] != kept:
                self.turns.step(self.name, f"remove {other}")
                self.disk.files.pop(other, None)

    def __call__(self) -> int:
        """Write micro-batches as `FolderWriter` does; return the last one."""
        claim = Claim(self, "the folder", "q")
        claim.begin()
        folder = f"q_{claim.run}"
        for number in range(self.first, LAST + 1):
            # The first one was planned before the copy was made.
            plan = f"{'both' if number == self.first else self.plans}-{number}"
            clear = partial(self.clear, number)
            if claim.is_finished(number, plan.strip, clear):
                continue
            claim.check()
            self.save(number, folder, plan)
            claim.check()
            claim.finish(number, folder, plan, clear)
        return LAST


@pytest.mark.parametrize("kills", [0.0, 0.05])
def test_no_order_of_steps_changes_a_marked_micro_batch(
    kills: float, record_property: Record
) -> None:
    """Each has the rows of one run, from its mark on; and at most one run comes to its end."""
    ends = Counter[str]()
    for seed in range(INTERLEAVINGS):
        disk, chance = Disk(), random.Random(seed)
        turns = Turns(seed, kills, disk.look)
        runs = {name: Run(name, disk, turns, name, chance.choice([2, 2, 3])) for name in "AB"}
        with explained_by(turns):
            found = turns.run(dict(runs.items()))
            disk.look()
            for number, rows in disk.rows().items():
                plans = {row.partition(".")[0] for row in rows}
                assert 1 == len(plans), (number, rows)
                assert 2 == len(rows), (number, rows)
            kinds = sorted(kind_of(end) for end in found.values())
            assert kinds != ["finished", "finished"]
            if kills == 0:
                assert kinds[0] in {"finished", "refused"}
            if "finished" in kinds:
                assert {*range(3, LAST + 1)} <= {*disk.rows()}
            for name, run in runs.items():
                if kind_of(found[name]) == "killed":
                    # The same copy goes on, alone: it finishes, or another plan is there.
                    turns.kills = 0.0
                    again = Turns(seed, 0.0, disk.look)
                    run.turns = again
                    end = kind_of(again.run({name: run})[name])
                    assert end in {"finished", "refused"}
                    ends[f"again {end}"] += 1
        ends[" and ".join(kinds)] += 1
    record_property(FIGURES, f"{INTERLEAVINGS} orders of two runs, kills {kills}: {dict(ends)}")
    assert ends["finished and refused"] > INTERLEAVINGS / 10


def kind_of(end: object) -> str:
    match end:
        case int():
            return "finished"
        case SinkError():
            return "refused"
        case Killed():
            return "killed"
    raise AssertionError(end)
