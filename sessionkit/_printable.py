"""Text from outside, as a terminal or a log may show it."""


def printable(text: str, *, keep: str = "") -> str:
    r"""
    Return text in which what can't be printed is written out: `\x1b` for an escape.

    Otherwise a name could move the cursor, change the title of the window or turn a line around.
    What is in `keep` stays as it is, such as a line feed.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode()
        for one in text
    )
