"""Spark on several processes of this machine, from what pip installs."""

import os
import shutil
import sysconfig
import venv
from pathlib import Path
from typing import Final

import pyspark

PYSPARK: Final = Path(pyspark.__file__).parent


def bare_python(folder: Path) -> Path:
    """Make a Python that has the dependencies of this one, but neither sessionkit nor its tests."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # The folder is added to the path; what its own .pth files name, such as sessionkit, isn't.
    packages_here = Path(sysconfig.get_path("purelib"))
    (packages / "dependencies.pth").write_text(f"{packages_here}\n")
    # But for the file by which setuptools brings `distutils`, for Spark 3.5 on Python 3.12.
    for distutils in packages_here.glob("distutils-precedence.pth"):
        shutil.copy(distutils, packages)
    return folder / "bin" / "python"


def cluster_environment(home: Path, python: Path) -> dict[str, str]:
    """Return the variables with which a program starts Spark here, and nothing of this process."""
    home.mkdir()
    for path in PYSPARK.iterdir():
        (home / path.name).symlink_to(path)
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "PATH", "TZ") if name in os.environ}
    return kept | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
    }
