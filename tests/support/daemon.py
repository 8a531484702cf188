"""
Spark's daemon of Python workers, with what every worker imports already there.

Spark forks its Python workers from a daemon that knows little: each worker imports pandas, pyarrow
and sessionkit anew, and looks through all of it for cycles after each task. That takes more CPU
time than the tasks of a small micro-batch. Here the daemon imports them once, and tells the
collector of cycles to leave them alone.
"""

import gc
from importlib import import_module
from typing import Final

from pyspark.daemon import manager

EVERY_WORKER_IMPORTS: Final = (
    "pyarrow.compute",
    "pyspark.worker",
    "sessionkit._engine.shell.worker",
)

if __name__ == "__main__":
    for name in EVERY_WORKER_IMPORTS:
        import_module(name)
    gc.freeze()
    manager()
