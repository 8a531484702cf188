"""What would be released today passes the first half of `make release-check`."""

from pathlib import Path

import pytest

from scripts.release_check import PAGES, ROOT, build, check_files, tracked


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says what belongs to the project")
def test_what_would_be_released_now_is_complete(tmp_path: Path) -> None:
    """Built, accepted by `twine check --strict`, with the files that belong there and no other."""
    sdist, wheel = build(tmp_path, isolated=False)
    check_files(sdist, wheel, None)
    assert set(PAGES) <= tracked(ROOT)
