"""What a tool search costs and saves: 200 tools, 20 prompts, each with one right tool.

    python -m bench.tool_search [--model NAME]

Without a model: how often the search finds the right tool by the user's own text, the tokens of the prompt with and
without the search, and the share of a prompt that stays the same when a tool is found. With `--model`, also how often
the first call is of the right tool: with ten tools offered, and with 200 behind the search (temperature 0).
"""

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.catalog import tokenizers
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import complete_calls
from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall, ToolResult, known_tools
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.deferral import internal_search, with_found, with_search
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.gateway.vendor_tools.tool_search import BUILT_IN, MAX_FOUND
from dragoman.prompting.chat_renderer import render_chat
from dragoman.vendor_tools.tool import TOOL_SEARCH, tools_text
from dragoman.vendor_tools.tool_index import ToolIndex

FAMILY: Final = "qwen2.5-coder-1.5b"
"""The model whose tokens are estimated if none runs."""
ABOVE: Final = 20
"""Value of `tools.search_above`."""
_ACTIONS: Final = {
    "create": "Creates {a}.",
    "delete": "Deletes {a} for good.",
    "update": "Changes fields of {a}.",
    "get": "Returns {a} with all of its fields.",
    "list": "Lists every {thing} that matches a filter.",
    "search": "Finds each {thing} that contains a text.",
    "archive": "Moves {a} to the archive.",
    "share": "Gives other people access to {a}.",
    "export": "Writes {a} to a file for download.",
    "assign": "Makes a person responsible for {a}.",
}
_THINGS: Final = (
    *("issue", "pull_request", "invoice", "customer", "calendar_event", "email_draft", "contact", "document"),
    *("spreadsheet", "photo", "playlist", "recipe", "shipment", "flight_booking", "hotel_booking", "support_ticket"),
    *("database_backup", "server", "survey", "contract"),
)
PROMPTS: Final = (
    ("Open an issue about the broken login page.", "create_issue"),
    ("Please file a new issue: the logo is too small.", "create_issue"),
    ("Show me every invoice from May.", "list_invoice"),
    ("Which invoices are not paid? List them.", "list_invoice"),
    ("Delete the calendar event 4711.", "delete_calendar_event"),
    ("Remove my calendar event about the dentist, its id is e-9.", "delete_calendar_event"),
    ("Share the document d-12 with ada@example.com.", "share_document"),
    ("Give Bob access to document d-7.", "share_document"),
    ("Assign support ticket 88 to Carol.", "assign_support_ticket"),
    ("Carol is responsible for the support ticket 90 now.", "assign_support_ticket"),
    ("Search the recipes for chocolate.", "search_recipe"),
    ("Find a recipe that contains lentils.", "search_recipe"),
    ("Export the spreadsheet s-3.", "export_spreadsheet"),
    ("I want to download the spreadsheet s-4 as a file.", "export_spreadsheet"),
    ("Get the shipment 55.", "get_shipment"),
    ("Where is shipment 56? Show all of its fields.", "get_shipment"),
    ("Archive the contract c-1.", "archive_contract"),
    ("Move contract c-2 to the archive.", "archive_contract"),
    ("Update the flight booking f-8: seat 12A.", "update_flight_booking"),
    ("Change the seat in my flight booking f-9 to 3C.", "update_flight_booking"),
)


def tools() -> list[Tool]:
    """Returns the 200 tools."""
    return [_tool(action, thing) for thing, action in itertools.product(_THINGS, _ACTIONS)]


def right_tools() -> list[Tool]:
    """Returns the ten tools that are right for a prompt."""
    names = {name for _, name in PROMPTS}
    return [tool for tool in tools() if tool.name in names]


def request(text: str, offered: Sequence[Tool], model: str = FAMILY) -> Request:
    """Returns the request of a client."""
    message = Message("user", (Text(text),))
    return Request(
        model, (message,), tuple(offered), sampling=Sampling(temperature=0), max_tokens=256, dialect="openai_chat"
    )


def searched(client_request: Request, found: Sequence[Tool] = ()) -> Request:
    """Returns the request with its tools behind a search, before the search or after it has found these tools."""
    search = internal_search(client_request, ABOVE)
    assert search is not None
    function = replace(BUILT_IN[TOOL_SEARCH].function(search), loading="search")
    hidden = with_search(replace(client_request, tools=(*client_request.tools, function)), search, ())
    if not found:
        return hidden
    call = Message("assistant", (ToolCall("1", search.name, '{"query": "x"}'),))
    result = Message("tool", (ToolResult("1", (Text(tools_text(found)),)),))
    return with_found(replace(hidden, messages=(*hidden.messages, call, result)), [tool.name for tool in found])


def _tool(action: str, thing: str) -> Tool:
    readable = thing.replace("_", " ")
    properties = {
        f"{thing}_id": {"type": "string", "description": f"Id of the {readable}, as the list shows it."},
        "fields": {"type": "object", "description": "Values by the name of the field; other fields do not change."},
        "filter": {"type": "string", "description": "Only those for which this expression is true, such as a month."},
        "person": {"type": "string", "description": "Name or address of a person of the organization."},
        "dry_run": {"type": "boolean", "description": "Only report what would be done.", "default": False},
    }
    needed = {"list": "filter", "search": "filter", "create": "fields"}.get(action, f"{thing}_id")
    article = "an" if readable[0] in "aeiou" else "a"
    about = _ACTIONS[action].format(a=f"{article} {readable}", thing=readable)
    schema = {"type": "object", "properties": properties, "required": [needed]}
    return Tool(f"{action}_{thing}", f"{about} The user must be signed in.", json.dumps(schema))


def figures() -> Iterator[str]:
    """Yields the figures that need no model."""
    started = time.process_time()
    index = ToolIndex(tools())
    yield f"{1000 * (time.process_time() - started):.1f} ms of CPU time to index {len(tools())} tools"
    found = [[tool.name for tool in index.find(text, MAX_FOUND)] for text, _ in PROMPTS]
    first = sum(names[:1] == [right] for names, (_, right) in zip(found, PROMPTS, strict=True))
    any_of = sum(right in names for names, (_, right) in zip(found, PROMPTS, strict=True))
    yield f"{first} of {len(PROMPTS)}: the user's text finds the right tool first; {any_of} among {MAX_FOUND}"
    vocabulary = tokenizers.find(FAMILY)
    every, ten = request(PROMPTS[0][0], tools()), request(PROMPTS[0][0], right_tools())
    results = index.find(PROMPTS[0][0], MAX_FOUND)
    for name, each in (
        ("200 tools", every),
        ("10 tools", ten),
        ("200 tools behind the search", searched(every)),
        (
            f"… and {len(results)} of them found, as text",
            replace(searched(every, results), tools=searched(every).tools),
        ),
        ("… and also in the list of tools", searched(every, results)),
    ):
        yield f"{vocabulary.estimate_request(each):6} tokens, estimated: {name}"
    yield from _shares(every, results)


def _shares(every: Request, found: Sequence[Tool]) -> Iterator[str]:
    """Yields how much of the prompt stays the same in the round after the search."""
    before, after = searched(every), searched(every, found)
    listed = replace(after, tools=tuple(replace(tool, loading="listed") for tool in known_tools(after.tools)))
    for name, later in (("as text in the result only", after), ("also in the list of tools", listed)):
        one, other = _prompt(before), _prompt(later)
        same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        yield f"{100 * same / len(one):5.1f} % of the prompt stays the same if found tools are {name}"


def _prompt(each: Request) -> str:
    return "\n".join(f"{turn.role}\n{turn.text}" for turn in render_chat(each, formats.get("hermes")))


async def _run(model: str) -> None:
    config = EmbeddedConfig(model=model, prefix_cache_mb=0, context_window=8192, max_concurrency=1, threads=1)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), lambda _: None)
    await backend.start()
    try:
        for name, offered in (("10 tools offered", right_tools()), ("200 tools behind the search", tools())):
            gateway = Gateway([backend], vendor_tools=VendorToolRunner({}, search_above=ABOVE))
            right = called = 0
            prompt_tokens: list[int] = []
            for number, (text, tool) in enumerate(PROMPTS):
                context = ExchangeContext(str(number), 0, lambda: f"{time.monotonic_ns():024}")
                batches = gateway.generate(request(text, offered, model), context)
                events = [event for batch in [batch async for batch in batches] for event in batch]
                calls = [call.name for call in complete_calls(events)]
                called += bool(calls)
                right += calls[:1] == [tool]
                usage = [event.usage for event in events if hasattr(event, "usage")]
                prompt_tokens += [usage[-1].input_tokens] if usage else []
                print(f"    {text}  →  {', '.join(calls) or 'no call'}", flush=True)
            mean = sum(prompt_tokens) / max(1, len(prompt_tokens))
            print(f"{right} of {len(PROMPTS)} first calls right, {called} with a call, {mean:.0f} tokens read: {name}")
    finally:
        await backend.close()


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.tool_search", description=__doc__)
    parser.add_argument("--model", default="", help="also runs a known model whose weights are here")
    args = parser.parse_args()
    print("\n".join(figures()))
    if args.model:
        asyncio.run(_run(args.model))


if __name__ == "__main__":
    main()
