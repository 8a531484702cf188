"""The decisions of the set-up script, on machines that exist only in the arguments."""

from pathlib import Path

import pytest

from scripts.setup_env import (
    Installer,
    Java,
    Which,
    choose_installer,
    choose_java,
    fingerprint,
    java_candidates,
    java_in_folders,
    no_venv_message,
    parse_java,
    probe_java,
)

REPORT = """\
Property settings:
    java.home = {home}
    java.version = {version}

{word} version "{version}" 2025-04-15
OpenJDK Runtime Environment (build {version}+6)
"""


def report(*, home: str = "/jdk", version: str = "17.0.15", word: str = "openjdk") -> str:
    return REPORT.format(home=home, version=version, word=word)


def path_with(*names: str) -> Which:
    """A PATH on which only these programs are found."""
    return {name: f"/usr/bin/{name}" for name in names}.get


def fake_java(home: Path, *, version: str) -> Path:
    """A program that reports itself as Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = report(home=str(home), version=version)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "word", "major"),
    [
        ("17.0.15", "openjdk", 17),
        ("21", "openjdk", 21),
        ("25-ea", "openjdk", 25),
        ("1.8.0_412", "java", 8),
        ("17.0.2", "java", 17),
    ],
)
def test_version_is_the_major_one(version: str, word: str, major: int) -> None:
    """The major version is read from every way in which Java has written it."""
    assert Java(Path("/jdk"), major) == parse_java(report(version=version, word=word))


@pytest.mark.parametrize("text", ["", "Unable to locate a Java Runtime.", 'openjdk version "17"'])
def test_other_output_is_no_java(text: str) -> None:
    """What does not report both home and version is not taken for Java."""
    assert parse_java(text) is None


def test_java_home_comes_before_path() -> None:
    """The user's JAVA_HOME is looked at before the java on PATH."""
    candidates = java_candidates({"JAVA_HOME": "/opt/mine"}, path_with("java"))
    assert [Path("/opt/mine/bin/java"), Path("/usr/bin/java")] == list(candidates)


def test_java_is_found_in_the_usual_folders(tmp_path: Path) -> None:
    """Every folder that matches and holds a java program is named, and no other."""
    old = fake_java(tmp_path / "jdk-11", version="11.0.2")
    new = fake_java(tmp_path / "jdk-17", version="17.0.2")
    (tmp_path / "jdk-empty").mkdir()
    assert [old, new] == list(java_in_folders([f"{tmp_path}/jdk-*", f"{tmp_path}/none/*"]))


def test_a_java_is_asked_for_its_home_and_version(tmp_path: Path) -> None:
    """A program that runs is asked, so a link or a shim leads to the true home."""
    program = fake_java(tmp_path / "jdk", version="21.0.1")
    (tmp_path / "java").symlink_to(program)
    assert Java(tmp_path / "jdk", 21) == probe_java(tmp_path / "java")


def test_the_users_choice_wins() -> None:
    """A new enough Java that the user has chosen is taken, even where an older one would do."""
    mine, other = Java(Path("/mine"), 25), Java(Path("/other"), 17)
    assert mine == choose_java([mine], [other])


@pytest.mark.parametrize(
    ("programs", "is_root", "can_sudo", "expected"),
    [
        (["apt-get"], True, False, Installer("apt-get")),
        (["apt-get"], False, True, Installer("apt-get", ("sudo", "-n"))),
        (["apt-get"], False, False, None),
        (["dnf", "yum"], True, False, Installer("dnf")),
        (["apk"], True, False, Installer("apk")),
        (["brew"], False, False, Installer("brew")),
        (["brew"], True, False, None),
        ([], True, True, None),
    ],
)
def test_installer_never_asks_for_a_password(
    programs: list[str], is_root: bool, can_sudo: bool, expected: Installer | None
) -> None:
    """A package manager is used by root, with a sudo that asks nothing, or if it needs neither."""
    found = choose_installer(path_with(*programs), is_root=is_root, can_sudo=can_sudo)
    assert expected == found


def test_fingerprint_follows_what_it_sums_up() -> None:
    """The same project in the same folder is not installed again; any change of either is."""
    same = fingerprint(b"[project]", "/a")
    assert same == fingerprint(b"[project]", "/a")
    assert 3 == len({same, fingerprint(b"[project] ", "/a"), fingerprint(b"[project]", "/b")})


def test_missing_ensurepip_names_the_package() -> None:
    """The message for a Python without ensurepip names the package of just this version."""
    message = no_venv_message((3, 12), "/usr/bin/python3")
    assert message.startswith("/usr/bin/python3 cannot make a virtual environment")
    assert "\n\nHint: on Debian and Ubuntu `sudo apt-get install python3.12-venv`" in message
