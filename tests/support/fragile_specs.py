"""A spec whose function fails over some events, for tests of how its errors arrive."""

from typing import Any

import attrs

from sessionkit import SessionSpec


@attrs.frozen
class Page:
    page: str
    n: int


@attrs.define
class Fragile:
    """The pages of a session, which fails over `/thanks`."""

    pages: int = 0

    def update(self, view: Page) -> None:
        if view.page == "/thanks":
            message = "no thanks"
            raise ValueError(message)
        self.pages += 1

    def merge(self, other: "Fragile") -> None:
        self.pages += other.pages


def fragile(**options: Any) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.of(
        Fragile,
        keys={"user": str},
        event_time="ts",
        gap="30 minutes",
        watermark_delay="1 hour",
        **options,
    )
