"""What is done to files before a job is started over them."""

from pathlib import Path

import pytest

from tests.support.faults.disks import DAMAGES, victims


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_changes_its_file_alone(damage: str, tmp_path: Path) -> None:
    """No damage leaves what was there."""
    path, other = tmp_path / "7", tmp_path / "8"
    for each in (path, other):
        each.write_bytes(b"v1\n{}")
    DAMAGES[damage](path)

    assert not path.exists() or path.read_bytes() != b"v1\n{}"
    assert other.read_bytes() == b"v1\n{}"


def test_the_newest_file_of_each_folder_is_a_victim(tmp_path: Path) -> None:
    """Of the state, in one partition; hidden files and empty ones aren't taken."""
    names = ["metadata", "offsets/9", "offsets/10", "offsets/.10.crc", "commits/10"]
    for name in [*names, "state/0/0/3.delta", "state/0/0/4.delta", "state/0/1/4.delta"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1")
    (tmp_path / "commits" / "11").touch()

    expected = ["commits/10", "metadata", "offsets/10", "state/0/0/4.delta"]
    assert expected == sorted(str(path.relative_to(tmp_path)) for path in victims(tmp_path))
