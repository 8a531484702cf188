"""The ids of sessions, in random lives of queries under every option."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_lives import lived


@given(st.integers(0, 2**32))
def test_no_two_sessions_of_a_key_have_one_id(seed: int) -> None:
    """Rows with one id are of one session: its revisions, in order, until another supersedes it."""
    seen = lived(seed)

    assert [] == seen.faults, "\n".join(seen.story)
