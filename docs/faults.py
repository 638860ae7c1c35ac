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


INTRO = """This table lists the status, error type and message that clients get if an upstream server fails, after all
retries, and if no other server has the model ([failover](servers.md#timeouts-retries-and-failover-fallback)).
`far` is the server's name in the settings. `tests/integration/server/test_faults.py` reproduces each row.

If a response has begun, the error ends its stream: as `data: {"error": …}` and `[DONE]` in Chat Completions,
`event: error` in Messages, `response.failed` in Responses. With `passthrough`, invalid JSON in a stream is not
detected.

"""
LEAVING = """
## When the client disconnects

The connection to the server is closed, which stops the model and frees the concurrency slot, at every stage:

"""


def page(note: str) -> str:
    """Returns the page as Markdown, with `note` below its title; faults with the same result share a row."""
    table = read()
    rows: dict[tuple[str, ...], list[str]] = {}
    for fault in table.fault.values():
        openai, anthropic, stream, message = "200", "200", "completes", fault.words
        if not fault.answered:
            status, kind, code = fault.openai
            openai, anthropic = f"{status} `{code or kind}`", f"{fault.anthropic[0]} `{fault.anthropic[1]}`"
            stream, message = "ends with the error" if fault.begun else "never begins", f"`{fault.words}`"
        rows.setdefault((openai, anthropic, stream, message), []).append(fault.title)
    heads = ("the server", "Chat Completions, Responses", "Messages", "stream", "message to the client")
    lines = [heads, ("---",) * len(heads), *(("; ".join(titles), *result) for result, titles in rows.items())]
    faults = "\n".join("| " + " | ".join(row) + " |" for row in lines)
    stages = "".join(f"- {when},\n" for when in table.leaving.values()).removesuffix(",\n") + ".\n"
    return f"# Upstream failures\n\n{note}{INTRO}{faults}\n{LEAVING}{stages}"
