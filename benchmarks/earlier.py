"""What a page said before: the parts of it that a run which measures less leaves as they were."""

from collections.abc import Collection, Mapping

import attrs

__all__ = ["Earlier"]

HEADING = "\n## "


@attrs.frozen
class Earlier:
    """
    A page as it was: the text under each heading.

    What it says of a workload is its section, and the rows of tables that begin with its name.
    """

    parts: Mapping[str, str]

    @classmethod
    def of(cls, page: str) -> "Earlier":
        """Read a page; an empty one has no parts."""
        _, *parts = page.split(HEADING)
        return cls(dict(part.partition("\n")[::2] for part in parts))

    def section(self, name: str) -> str:
        """Return a section with its heading, or nothing."""
        text = self.parts.get(name)
        return "" if text is None else f"{HEADING}{name}\n{text.rstrip()}\n"

    def rows(self, heading: str, names: Collection[str]) -> list[tuple[str, ...]]:
        """Return the rows of a table under a heading that begin with one of some names."""
        lines = self.parts.get(heading, "").splitlines()
        rows = [tuple(line[2:-2].split(" | ")) for line in lines if line.startswith("| ")]
        return [row for row in rows if row[0] in names]
