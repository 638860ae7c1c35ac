"""Escapes control characters in texts of servers, models and files, which could otherwise control the terminal."""


def printable(text: str) -> str:
    r"""Returns the text with unprintable characters, except line breaks, as escapes such as `\x1b`."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    r"""Returns the text with unprintable characters as escapes, and line breaks as `\n`."""
    return printable(text).replace("\n", r"\n")
