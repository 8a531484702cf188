"""The ids of sessions, in random lives of queries under every option."""

import pytest
from hypothesis import given

from tests.support.random_lives import Sightings, lives


@given(lives())
@pytest.mark.filterwarnings("ignore:the processing time leapt")
def test_no_two_sessions_of_a_key_have_one_id(seen: Sightings) -> None:
    """Rows with one id are of one session: its revisions, in order, until another supersedes it."""
    assert [] == seen.faults, "\n".join(seen.story)
