"""Texts of others without what would steer a terminal: servers, models and files write what they like."""


def printable(text: str) -> str:
    r"""The text with what is no character to be seen, but for ends of lines, as its escape: `\x1b`."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    r"""Likewise, and the ends of lines as `\n`."""
    return printable(text).replace("\n", r"\n")
