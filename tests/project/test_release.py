"""What `make release-check` looks for; and what would be released today passes its first half."""

from pathlib import Path

import pytest

from scripts.release_check import (
    PAGES,
    ROOT,
    FailedError,
    Step,
    build,
    check_files,
    install_line,
    program_of,
    sdist_faults,
    summary,
    tables_missing,
    tag_faults,
    tracked,
    wheel_faults,
)

PROJECT = {"README.md", "docs/conf.py", "docs/index.md", "tests/data.csv", ".ci/run", ".gitignore"}
PACKAGE = {"sessionkit/__init__.py", "sessionkit/py.typed"}
PAGE = """
```python
rows = [1]
```

```python
# not run here: it needs a stream
stream
```

```python
def test_rows():
    assert rows == [1]
```

```text
+-+
|1|
+-+
```
"""


def test_a_wheel_has_the_package_alone() -> None:
    """Every file of the package, `py.typed` too, and neither tests nor their data."""
    info = "sessionkit_spark-1.dist-info/METADATA"
    assert [] == wheel_faults({*PACKAGE, info}, PROJECT | PACKAGE)
    assert ["the wheel lacks sessionkit/py.typed", "the wheel has tests/data.csv"] == wheel_faults(
        {"sessionkit/__init__.py", "tests/data.csv"}, PROJECT | PACKAGE
    )


def test_an_sdist_has_the_project() -> None:
    """The sources of the site too; but neither what a forge runs nor what git doesn't know."""
    names = {f"sessionkit_spark-1/{name}" for name in PROJECT - {".ci/run"} | {"PKG-INFO"}}
    assert [] == sdist_faults(names, PROJECT)
    assert ["the sdist lacks docs/conf.py", "the sdist has notes.txt"] == sdist_faults(
        names - {"sessionkit_spark-1/docs/conf.py"} | {"sessionkit_spark-1/notes.txt"}, PROJECT
    )


def test_the_tag_of_a_release_is_its_version_with_a_date_in_the_changelog() -> None:
    """A tag is a `v` and the version."""
    assert [] == tag_faults("v0.2.0", "0.2.0", "# Changelog\n\n## [0.2.0] - 2026-12-01\n")
    assert [
        "the tag is v0.2.1, and the version 0.2.0",
        "CHANGELOG.md has no line `## [0.2.0] - ` and the day of the release",
    ] == tag_faults("v0.2.1", "0.2.0", "# Changelog\n\n## [Unreleased]\n")


def test_a_page_is_one_program_with_its_tests() -> None:
    """Blocks run in their order, but for those that say why not; the tests in them run last."""
    program = program_of(PAGE)

    exec(compile(program, "page", "exec"), {})  # noqa: S102 (the page above)
    with pytest.raises(AssertionError):
        exec(compile(program.replace("[1]", "[2]", 1), "page", "exec"), {})  # noqa: S102


def test_the_tables_of_a_page_must_be_printed() -> None:
    """As they stand in the page."""
    assert [] == tables_missing(PAGE, "said before\n+-+\n|1|\n+-+\n\n")
    assert ["+-+\n|1|\n+-+\n"] == tables_missing(PAGE, "+-+\n|2|\n+-+\n")


def test_what_a_reader_types_is_a_line_of_the_readme() -> None:
    """With the file of the wheel in place of the name, since no release is on PyPI yet."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert 'pip install "dist/one.whl[spark]"' == install_line(readme, Path("dist/one.whl"))
    with pytest.raises(FailedError, match="the README has no line"):
        install_line("pip install sessionkit", Path("dist/one.whl"))


def test_the_time_to_the_first_rows_ends_with_the_readme() -> None:
    """The tutorial comes after it."""
    steps = [Step("python -m venv env", 6.0), Step("pip install x", 60.0)]
    steps += [Step("python readme.py", 18.0), Step("python tutorial.py", 30.0)]
    assert "3 commands and 1.4 minutes to the first rows" == summary(steps)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says what belongs to the project")
def test_what_would_be_released_now_is_complete(tmp_path: Path) -> None:
    """Built, accepted by `twine check --strict`, with the files that belong there and no other."""
    sdist, wheel = build(tmp_path, isolated=False)
    check_files(sdist, wheel, None)
    assert set(PAGES) <= tracked(ROOT)
