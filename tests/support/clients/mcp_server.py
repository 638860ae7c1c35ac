"""A server of MCP by standard input and output, with forty-six tools, as an accounting office might have it.

python mcp_server.py        (FastMCP is where `make agents` put it)
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

server = FastMCP("fwbg")

KINDS = [
    "accounts",
    "bookings",
    "budgets",
    "customers",
    "invoices",
    "payments",
    "projects",
    "reports",
    "suppliers",
    "taxes",
]
VERBS = ["{}_list", "{}.get", "create_{}", "{}-archive"]
"""With the characters that MCP allows in names: letters, digits, `_`, `-` and `.`."""


class Unit(StrEnum):
    """Of an amount."""

    EUR = "EUR"
    CHF = "CHF"


class Line(BaseModel):
    """Of an invoice."""

    text: str
    amount: float = Field(ge=0)
    unit: Unit = Unit.EUR


def simple(name: str) -> Callable[..., str]:
    """A tool that says what it was asked."""

    def tool(id: Annotated[int, Field(description="“Number” of it", ge=1)], note: str | None = None) -> str:
        return f"{name} {id} {note}"

    return tool


for kind in KINDS:
    for verb in VERBS:
        server.tool(simple(verb.format(kind)), name=verb.format(kind), description=f"{verb.format(kind)}: does so.")


@server.tool
def write_invoice(lines: list[Line], tags: dict[str, str] | None = None) -> str:
    """Writes an invoice.

    Each line has its own unit.
    """
    return ", ".join(f"{line.text}: {line.amount:g} {line.unit}" for line in lines)


@server.tool
def close_year(year: int) -> str:
    """Closes a year."""
    raise ToolError(f"{year} has open bookings")


@server.tool(name="reports.of_all_customers_with_their_open_invoices_by_quarter_and_country")
def report_of_all() -> str:
    """A report whose name is longer than most APIs allow."""
    return "no open invoices"


@server.tool(name="reports.of_all_customers_with_their_open_invoices_by_quarter_and_currency")
def another_report_of_all() -> str:
    """Another, whose name is other from the 65th character on."""
    return "no open invoices in CHF"


@server.tool
def ping() -> str:
    """Says pong."""
    return "pong"


@server.tool(name="reports_list_")
def look_alike() -> str:
    """Is not reports_list."""
    return "not reports_list"


if __name__ == "__main__":
    server.run(show_banner=False)
