"""
A local file system for the JVMs of tests that starts no process for each file.

Hadoop runs `chmod` for each file and folder that it makes, unless it finds its native library,
which no package index has; a micro-batch makes a dozen. This file system leaves permissions alone.
"""

import hashlib
from pathlib import Path
from typing import Final

from benchmarks.environments import MissingToolError, compile_java, javac
from tests.support.cache import cached

SOURCE: Final = Path(__file__).with_name("PlainLocalFileSystem.java")
FILE_SYSTEM: Final = SOURCE.stem


def compiled_file_system() -> Path | None:
    """Return the folder for a class path; nothing where this Java has no compiler."""
    try:
        compiler = javac()
    except MissingToolError:
        return None
    content = SOURCE.read_bytes() + compiler.encode()
    name = f"{FILE_SYSTEM}-{hashlib.sha256(content).hexdigest()[:12]}"
    return cached(name, lambda folder: compile_java(folder, SOURCE))
