"""What the tests of a page share: who reads it."""

from collections.abc import Iterator

import pytest

from tests.support.browser import BrowserMissingError, Reader, browser_in


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    try:
        with browser_in(tmp_path_factory.mktemp("browser")) as reader:
            yield reader
    except BrowserMissingError as error:
        pytest.skip(f"not run: {error}")
