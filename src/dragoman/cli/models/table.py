"""Tables of text."""

from collections.abc import Sequence


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns aligned columns, separated by two blanks."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def format_facts(facts: Sequence[tuple[str, str]]) -> str:
    """Returns a line for each fact: its name, and its text, which may have several lines."""
    width = max(len(name) for name, _ in facts)
    lines = []
    for name, text in facts:
        first, *others = text.split("\n")
        lines += [f"  {name.ljust(width)}  {first}", *(f"  {' ' * width}  {line}" for line in others)]
    return "\n".join(lines)
