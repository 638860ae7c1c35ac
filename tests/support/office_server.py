"""A server of MCP with 200 tools, by standard input and output: python office_server.py."""

from itertools import product
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcp.server import MCPServer

VERBS: Final = ("add", "archive", "delete", "export", "find", "list", "print", "send", "share", "update")
THINGS: Final = (
    *("invoice", "contract", "ticket", "meeting", "room", "badge", "parcel", "order", "refund", "salary"),
    *("desk", "printer", "phone", "visitor", "course", "survey", "budget", "receipt", "vacation", "supplier"),
)
COUNT: Final = len(VERBS) * len(THINGS)


def main() -> None:
    from mcp.server import MCPServer

    server = MCPServer("office")
    for verb, thing in product(VERBS, THINGS):
        add(server, verb, thing)
    server.run("stdio")


def add(server: "MCPServer", verb: str, thing: str) -> None:
    def run(id: str) -> str:
        return f"{verb} {thing}: {id}"

    server.add_tool(run, name=f"{verb}_{thing}", description=f"Can {verb} the {thing} with this id.")


if __name__ == "__main__":
    main()
