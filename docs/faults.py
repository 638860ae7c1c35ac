"""Writes the page of upstream failures from `faults.toml`; each is reproduced in integration/server/test_faults.py."""

import tomllib
from pathlib import Path

import msgspec
from docs import tables

DATA = Path(__file__).parent / "faults.toml"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an upstream server does, and what the client receives."""

    title: str
    words: str = ""
    """The message to the client; URL is the server's."""
    openai: tuple[int, str, str] = (200, "", "")
    """Status, type and code for clients of OpenAI's APIs."""
    anthropic: tuple[int, str] = (200, "")
    """Status and type for clients of Messages."""
    responses: str = "server_error"
    """The code if it ends a stream of Responses."""
    begun: bool = False
    """Whether it happens after the response has begun, so that a stream ends with the error."""
    answered: bool = False
    """Whether the client gets a response without an error."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `faults.toml`."""

    fault: dict[str, Fault]
    leaving: dict[str, str]
    """The stages at which a client may disconnect, by name."""


def read() -> Table:
    """Returns the content of `faults.toml`."""
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
    shown = tables.table(heads, (("; ".join(titles), *result) for result, titles in rows.items()))
    stages = "".join(f"- {when},\n" for when in table.leaving.values()).removesuffix(",\n") + ".\n"
    return f"# Upstream failures\n\n{note}{INTRO}{shown}{LEAVING}{stages}"
