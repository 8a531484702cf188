"""What a refusal must say: which argument, which value was found, and that there is a hint."""

from collections.abc import Callable
from typing import Any

import pytest

from sessionkit import SpecError


def refusal(make: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the text with which a call is refused; it ends with what to do."""
    with pytest.raises(SpecError) as refused:
        make(*args, **kwargs)
    text = str(refused.value)
    assert text.count("\n\nHint: ") == 1
    return text


def says(text: str, *facts: str) -> bool:
    """Tell whether a text has all of these."""
    missing = [fact for fact in facts if fact not in text]
    assert not missing, (missing, text)
    return True
