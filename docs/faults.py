"""The page of faults, made of `faults.toml`; `tests/integration/server/test_faults.py` has each of them happen."""

import tomllib
from pathlib import Path

import msgspec

DATA = Path(__file__).parent / "faults.toml"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server behind does, and what becomes of it."""

    title: str
    words: str = ""
    """What clients are told; URL is the server's."""
    openai: tuple[int, str, str] = (200, "", "")
    """Status, type and code for clients of OpenAI's APIs."""
    anthropic: tuple[int, str] = (200, "")
    """The same for clients of Messages."""
    responses: str = "server_error"
    """The code where it ends a stream of Responses."""
    begun: bool = False
    """It comes when an answer has begun: a stream ends with it."""
    answered: bool = False
    """It is no error for the client."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of them."""

    fault: dict[str, Fault]
    leaving: dict[str, str]
    """When a client leaves."""


def read() -> Table:
    """As the file has it."""
    return msgspec.convert(tomllib.loads(DATA.read_text()), Table)


INTRO = """What a server behind may do, and what clients are told then: the same words by each API, under its own status
and type. `tests/integration/server/test_faults.py` has each of these happen over real HTTP, with each API, streamed
and whole, and sees to it that the connection to the server is closed and that no task is left behind.

`far` is the server's name in the settings. Whatever could be asked again has been (`max_retries`), and no other
server has the model ([servers](servers.md)). Where an answer had begun, its stream ends with the error:
`data: {"error": …}` and `[DONE]` in Chat Completions, `event: error` in Messages, `response.failed` in Responses. A
reply that is not streamed is the error alone.

Where responses pass unread (`passthrough`), all of that holds too, but for what is no JSON.

"""
LEAVING = """
## When the client leaves

The connection to the server is closed, which stops the model, and nothing of the request is left: no task, no
connection, no place. So it is

"""


def page(note: str) -> str:
    """The page; `note` stands below its title."""
    table = read()
    heads = ("a server that", "Chat Completions, Responses", "Messages", "a stream", "clients are told")
    rows = [heads, ("---",) * len(heads)]
    for fault in table.fault.values():
        if fault.answered:
            rows.append((fault.title, "200", "200", "is answered", fault.words))
            continue
        status, kind, code = fault.openai
        openai = f"{status} `{code or kind}`"
        anthropic = f"{fault.anthropic[0]} `{fault.anthropic[1]}`"
        stream = "ends with it" if fault.begun else "never begins"
        rows.append((fault.title, openai, anthropic, stream, f"`{fault.words}`"))
    faults = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    stages = "".join(f"- {when},\n" for when in table.leaving.values()).removesuffix(",\n") + ".\n"
    return f"# Faults\n\n{note}{INTRO}{faults}\n{LEAVING}{stages}"
