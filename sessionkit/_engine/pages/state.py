"""What Spark's state store keeps of a bucket of pages: one row, the directory, and the pages."""

from typing import Protocol

from sessionkit.typing import GroupStateLike

__all__ = ["PagedStateLike"]


class PagedStateLike(GroupStateLike, Protocol):
    """
    The state of a bucket: the row that `get` and `update` mean is its directory.

    A page is found by the number at which its range of hashes starts.
    """

    @property
    def has_pages(self) -> bool:
        """Whether a page is stored; asked where the bucket has no row."""

    def page(self, start: int) -> bytes | None:
        """Return a page; None where none is stored."""

    def put_page(self, start: int, payload: bytes) -> None:
        """Store a page, in place of the one that is there."""

    def remove_page(self, start: int) -> None:
        """Remove a page that is there."""
