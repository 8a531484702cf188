"""
Let another process run a portion of a batch.

What crosses is pickled, each table as Arrow IPC: a slice of a table then takes only its own rows
along. The user's objects never cross: functions make them from the rows, where they run.
"""

import gc
import os
import pickle
import signal
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, Final

import pyarrow as pa

from sessionkit._engine.shell.worker import Worker
from sessionkit.errors import SessionkitError, UserFunctionError

PROTOCOL: Final = 5
"""Of pickles: the first that takes the buffers of Arrow as they are."""


def handed(value: object) -> bytes:
    """Return a value as the bytes that `received` reads, in any process of this machine."""
    out = BytesIO()
    pickler = pickle.Pickler(out, PROTOCOL)
    pickler.dispatch_table = {pa.Table: _as_ipc}
    pickler.dump(value)
    return out.getvalue()


def received(handed_over: bytes) -> Any:
    return pickle.loads(handed_over)  # noqa: S301 (both processes are of one server)


def begin(server: Connection) -> None:
    """Begin a worker process: Ctrl-C ends it without a word, and so does the end of its server."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_after, args=(server,), daemon=True).start()


def _end_after(server: Connection) -> None:
    with suppress(EOFError):
        server.recv_bytes()
    os._exit(1)  # even where a function hangs


def answer(worker: bytes, portion: bytes) -> bytes:
    """
    Run a portion in a process that has nothing yet: the arguments of `Worker.portion`.

    Returns what that returns, or the error that a function of the user caused, which has all that
    there is to say in its message.
    """
    try:
        return handed(_worker(worker).portion(*received(portion)))
    except SessionkitError as error:
        return handed(error.with_traceback(None))
    except SystemExit as error:
        found = f"a function called sys.exit({error.code!r})"
        return handed(UserFunctionError(found, hint="raise an error in place of it"))


@lru_cache(maxsize=8)
def _worker(pickled: bytes) -> Worker:
    found: Worker = received(pickled)
    # The collector then skips the modules that this has imported.
    gc.freeze()
    return found


def _as_ipc(table: pa.Table) -> tuple[Any, ...]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return _of_ipc, (sink.getvalue(),)


def _of_ipc(buffer: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(buffer).read_all()
