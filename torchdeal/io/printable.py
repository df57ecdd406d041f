"""Text that a terminal shows and does not obey."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    r"""The text with control characters, invisible ones, and bytes that are no text as escapes such as \x1b."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python keeps the bytes of a file name that are no text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
