"""
Run the functions of a batch in worker processes, on an engine that has Python in its own process.

The threads of such an engine, which Sail is, share one interpreter lock. So a thread hands each
portion of its events over, and waits without the lock:

    thread 1 of Sail   gathers | hands over ... waits ... | gathers | hands over ...
    worker 1                   | folds the portion        |
    thread 2 of Sail     gathers | hands over ... waits ... |
    worker 2                     | folds the portion        |

A server has one set of workers, which starts with the first portion and serves all queries. An idle
worker ends, and starts again when it's needed.
"""

import re
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from typing import TYPE_CHECKING, Final

import attrs
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from sessionkit._engine.micro_batch import BatchClocks, GroupState
from sessionkit._engine.shell.handover import answer, begin, handed, received
from sessionkit._engine.shell.worker import Worker
from sessionkit._engine.wire.outbound import BatchOutput
from sessionkit._engine.wire.packing import Portion
from sessionkit.errors import SessionkitError, UnsupportedError, UserFunctionError
from sessionkit.spark._sail import WORKERS, workers_asked
from sessionkit.spec.logic import Functions
from sessionkit.spec.session import SessionSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

    from loky import ProcessPoolExecutor

FEWEST_EVENTS: Final = 2**17
"""Fewer in a portion are folded in the time in which workers start, or sooner."""
IDLE_S: Final = 300
"""An idle worker gives its memory back after this time."""


def in_processes(worker: Worker, spark: SparkSession) -> "InProcesses | None":
    """Return what runs the portions of a batch on Sail; None for the process of the server."""
    workers = workers_asked(spark)
    spec = worker.logic.spec
    if workers == 0 or (isinstance(spec, SessionSpec) and not isinstance(spec.logic, Functions)):
        return None
    pickled: bytes = cloudpickle.dumps(worker)  # type: ignore[no-untyped-call]  # without annotations
    return InProcesses(worker, pickled, workers)


@attrs.frozen
class InProcesses:
    """
    Runs the portions of a batch in worker processes, as a `Step`.

    Attributes:
        worker: What runs a small portion, in this process.
        pickled: The same for a worker process, pickled where the query began: only there is every
            class and function of a script known.
        workers: How many there are; by default as many as cores, for portions worth the way.
    """

    worker: Worker
    pickled: bytes
    workers: int | None

    def __call__(
        self, memory: GroupState, portion: Portion, before: BatchClocks, after: BatchClocks
    ) -> tuple[BatchOutput, GroupState]:
        number = self.workers
        if number is None:
            is_small = portion.events.num_rows < FEWEST_EVENTS
            if is_small or not has_loky() or cores() == 1:
                return self.worker.portion(memory, portion, before, after)
            number = cores()
        found: tuple[BatchOutput, GroupState] | SessionkitError
        found = received(_asked(number, self.pickled, handed((memory, portion, before, after))))
        if isinstance(found, SessionkitError):
            raise found
        return found


@cache
def has_loky() -> bool:
    """Return whether this server can have workers; an environment without `[sail]` has no loky."""
    return find_spec("loky") is not None


@cache
def cores() -> int:
    """Return how many cores this server may use, in a container too."""
    from loky import cpu_count  # noqa: PLC0415 (not every client has it)

    number: int = cpu_count()
    return number


def _asked(number: int, worker: bytes, portion: bytes) -> bytes:
    """Return the answer of a worker process."""
    if not has_loky():
        found = f"`{WORKERS}` asks for worker processes, which need loky"
        raise UnsupportedError(found, 'pip install "sessionkit-spark[sail]" where Sail runs')
    from loky.process_executor import BrokenProcessPool  # noqa: PLC0415 (as above)

    try:
        return _submitted(number, worker, portion).result()
    except BrokenProcessPool as error:
        codes = re.search(r"\{.*\}", str(error))
        found = "a worker process ended while it ran functions, of this query or of another one"
        hint = (
            "look for a function that ends its process, or takes so much memory that the system "
            f'kills it; with spark.conf.set("{WORKERS}", 0) functions run in the server itself'
        )
        raise UserFunctionError(f"{found}: {codes[0] if codes else error}", hint=hint) from None


# -- the workers of this process ------------------------------------------------------------------

LOCK: Final = Lock()
EXECUTORS: Final[dict[int, "ProcessPoolExecutor"]] = {}
"""By the number of their workers."""


@cache
def _life() -> tuple[Connection, Connection]:
    """Return a pipe whose second half ends with this process, for which workers wait."""
    return Pipe(duplex=False)


def _submitted(number: int, worker: bytes, portion: bytes) -> "Future[bytes]":
    """Submit a portion to running workers, or else to new ones."""
    from loky import ProcessPoolExecutor  # noqa: PLC0415 (as above)
    from loky.backend import get_context  # noqa: PLC0415 (as above)
    from loky.process_executor import BrokenProcessPool  # noqa: PLC0415 (as above)

    future: Future[bytes]
    with LOCK:
        if number in EXECUTORS:
            with suppress(BrokenProcessPool):
                future = EXECUTORS[number].submit(answer, worker, portion)
                return future
        EXECUTORS[number] = ProcessPoolExecutor(
            number,
            timeout=IDLE_S,
            context=get_context("loky"),
            initializer=begin,
            initargs=(_life()[0],),
        )
        future = EXECUTORS[number].submit(answer, worker, portion)
        return future
