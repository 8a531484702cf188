"""
What a process and all its descendants use, read from `/proc` while they run.

The CPU time of a process that has ended counts for its parent, so the sum never loses any.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np

__all__ = ["Sampler", "Usage", "cpu_between", "tree_of", "usage_of"]

PROC: Final = Path("/proc")
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
EVERY_S: Final = 0.1


class Process(NamedTuple):
    """One line of `/proc/PID/stat`, as far as it matters."""

    name: str
    parent: int
    cpu_ticks: int
    rss_bytes: int


class Usage(NamedTuple):
    """What a tree of processes has used: CPU since its start, and memory now."""

    jvm_s: float
    rest_s: float
    rss_bytes: int

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU in all."""
        return self.jvm_s + self.rest_s


def tree_of(root: int, processes: Mapping[int, Process]) -> Iterator[int]:
    """Yield a process and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid in processes:
            yield pid
        todo += children.get(pid, [])


def usage_of(root: int) -> Usage:
    """Return what a process and its descendants have used until now."""
    processes = dict(_running())
    tree = [processes[pid] for pid in tree_of(root, processes)]
    # Ticks are added, not seconds: what a child has used is the same before and after it has ended.
    jvm = sum(each.cpu_ticks for each in tree if each.name == "java")
    rest = sum(each.cpu_ticks for each in tree if each.name != "java")
    return Usage(jvm / TICKS_A_SECOND, rest / TICKS_A_SECOND, sum(each.rss_bytes for each in tree))


class Sampler:
    """
    Looks at a tree of processes ten times a second, in a thread of its own.

    `begun` is when it was made: start the process right before.
    """

    def __init__(self, root: int) -> None:
        self.begun = time.time()
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._samples: list[tuple[float, Usage]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_between(self, begun: float, ended: float) -> tuple[float, float]:
        """Return the CPU seconds of the JVM, and of the rest, between two times of the clock."""
        return cpu_between(self._samples, begun, ended)

    @property
    def peak_rss_bytes(self) -> int:
        """The most memory at one time."""
        return max((usage.rss_bytes for _, usage in self._samples), default=0)

    def _look(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._samples.append((time.time(), usage_of(self._root)))


def cpu_between(
    samples: Sequence[tuple[float, Usage]], begun: float, ended: float
) -> tuple[float, float]:
    """Return the CPU seconds of the JVM, and of the rest, between two times; see `Sampler`."""
    if not samples:
        return 0.0, 0.0
    times = [at for at, _ in samples]
    jvm = np.interp([begun, ended], times, [usage.jvm_s for _, usage in samples])
    rest = np.interp([begun, ended], times, [usage.rest_s for _, usage in samples])
    return float(jvm[1] - jvm[0]), float(rest[1] - rest[0])


def _running() -> Iterator[tuple[int, Process]]:
    for folder in PROC.iterdir() if PROC.exists() else ():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            yield int(folder.name), _parsed(text)


def _parsed(stat: str) -> Process:
    # The name is in brackets, and may hold brackets and blanks itself.
    name, rest = stat[stat.index("(") + 1 :].rsplit(")", 1)
    fields = rest.split()
    # user, system, and both of the children that have ended
    cpu_ticks = sum(map(int, fields[11:15]))
    return Process(name, int(fields[1]), cpu_ticks, int(fields[21]) * PAGE_BYTES)
