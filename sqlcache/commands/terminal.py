"""What a terminal is to show and not to obey: clients choose texts of statements and names of
users, and these may hold what sets a window's title, or hides a line."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with each character that nobody sees, also an end of a line, as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _named(each) for each in text)


def printable_lines(text: str) -> str:
    """As `printable`, of each of its lines."""
    return "\n".join(map(printable, text.split("\n")))


def _named(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
