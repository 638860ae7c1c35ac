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


INTRO = """How upstream failures reach the client: the status, error type and message for each kind of failure. The
message is the same in every API. The table is tested over real HTTP with each API, streamed and not
(`tests/integration/server/test_faults.py`).

`far` is the server's name in the settings. The rows apply after all retries (`max_retries`) have failed, and if no
other server has the model ([failover](servers.md#timeouts-retries-and-failover-fallback)). If a response has begun,
the error ends its stream: as `data: {"error": …}` and `[DONE]` in Chat Completions, `event: error` in Messages,
`response.failed` in Responses. A response that is not streamed is only the error.

With `passthrough`, all rows apply except those about invalid JSON.

"""
LEAVING = """
## When the client disconnects

The connection to the server is closed, which stops the model. No task, connection or concurrency slot remains. This
holds at every stage:

"""


def page(note: str) -> str:
    """The page; `note` stands below its title."""
    table = read()
    heads = ("the server", "Chat Completions, Responses", "Messages", "stream", "message to the client")
    rows = [heads, ("---",) * len(heads)]
    for fault in table.fault.values():
        if fault.answered:
            rows.append((fault.title, "200", "200", "completes", fault.words))
            continue
        status, kind, code = fault.openai
        openai = f"{status} `{code or kind}`"
        anthropic = f"{fault.anthropic[0]} `{fault.anthropic[1]}`"
        stream = "ends with the error" if fault.begun else "never begins"
        rows.append((fault.title, openai, anthropic, stream, f"`{fault.words}`"))
    faults = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    stages = "".join(f"- {when},\n" for when in table.leaving.values()).removesuffix(",\n") + ".\n"
    return f"# Upstream failures\n\n{note}{INTRO}{faults}\n{LEAVING}{stages}"
