"""
A local file system for the JVMs of tests that starts no process for each file.

Hadoop runs `chmod` for each file and folder that it makes, unless it finds its native library,
which no package index has; a micro-batch makes a dozen. This file system leaves permissions alone.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyspark
import pytest

from benchmarks.environments import MissingToolError, compile_java, javac
from sessionkit.spark._settings import is_connect
from tests.support.cache import cached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SOURCE: Final = Path(__file__).with_name("PlainLocalFileSystem.java")
FILE_SYSTEM: Final = SOURCE.stem
UNLIMITED: Final = 2**62


def compiled_file_system() -> Path | None:
    """Return the folder for a class path; nothing where there's no compiler, or no JVM's Spark."""
    if not Path(pyspark.__file__).with_name("jars").is_dir():
        return None
    try:
        compiler = javac()
    except MissingToolError:
        return None
    content = SOURCE.read_bytes() + compiler.encode()
    name = f"{FILE_SYSTEM}-{hashlib.sha256(content).hexdigest()[:12]}"
    return cached(name, lambda folder: compile_java(folder, SOURCE))


@attrs.define
class Cut:
    """The change to files after which no other is made. `is_over` if there was no other."""

    spark: SparkSession
    after: int
    is_over: bool = False

    @contextmanager
    def made(self) -> Iterator[None]:
        """Let the JVM make only these changes, as if it were killed then."""
        jvm: Any = self.spark._jvm
        files = jvm.PlainLocalFileSystem
        files.allow(self.after)
        try:
            yield
        except Exception:
            if files.left() >= 0:
                raise
        finally:
            self.is_over = files.left() >= 0
            files.allow(UNLIMITED)


def cuts(spark: SparkSession) -> Iterator[Cut]:
    """Yield a cut after each change to a file, until one has let all of them be made."""
    if is_connect(spark) or compiled_file_system() is None:
        pytest.skip("not run: only a compiled file system in this process can be cut off")
    for after in count():
        yield (cut := Cut(spark, after))
        if cut.is_over:
            return


@contextmanager
def cut_at(spark: SparkSession, change: str) -> Iterator[None]:
    """Let the JVM make no change to files from one on, as if it were killed at that one."""
    if is_connect(spark) or compiled_file_system() is None:
        pytest.skip("not run: only a compiled file system in this process can be cut off")
    jvm: Any = spark._jvm
    files = jvm.PlainLocalFileSystem
    files.allowUntil(change)
    try:
        yield
    except Exception:
        if files.left() >= 0:
            raise
    else:
        assert files.left() < 0, f"nothing was called {change}"
    finally:
        files.allow(UNLIMITED)
