"""
A local file system for the JVMs of tests that starts no process for each file.

Hadoop runs `chmod` for each file and folder that it makes, unless it finds its native library,
which no package index has; a micro-batch makes a dozen. This file system leaves permissions alone.
"""

import hashlib
import subprocess
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.environments import MissingToolError, javac
from tests.support.cache import cached

__all__ = ["FILE_SYSTEM", "compiled_file_system"]

SOURCE: Final = Path(__file__).with_name("PlainLocalFileSystem.java")
FILE_SYSTEM: Final = SOURCE.stem
COMPILE_S: Final = 60


def compiled_file_system() -> Path | None:
    """Return the folder for a class path; nothing where this Java has no compiler."""
    try:
        compiler = javac()
    except MissingToolError:
        return None
    content = SOURCE.read_bytes() + compiler.encode()
    name = f"{FILE_SYSTEM}-{hashlib.sha256(content).hexdigest()[:12]}"
    return cached(name, partial(_compile, compiler))


def _compile(compiler: str, folder: Path) -> None:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    hadoop = Path(pyspark.origin).parent / "jars" / "*"
    command = [compiler, "-classpath", str(hadoop), "-d", str(folder), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_S)
