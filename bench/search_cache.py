"""Share of its prompts that a real llama.cpp server has in its cache, over 20 turns that find their tools among 200.

    python -m bench.search_cache [--mode native|parse]

The client writes the model's turns, so that they find and call the right tools: the model is small, and only reads. The
server reports how many tokens of each prompt were cached. The first prompt does not count. `anthropic_messages` is
Claude Code's own search; `openai_responses` a search that the gateway runs; `openai_chat` a client that offers all 200
tools, with `tools.search_above`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dragoman import dialects
from support.gateway import Gateway, running
from support.servers.real import llama

MODES: Final = ("native", "parse")
COUNT: Final = 200
TURNS: Final = 20
PATIENCE_S: Final = 300.0
"""Timeout of a response; the first prompt has some thousand tokens."""
CONTEXT: Final = 8192
"""Tokens, the most that the model reads."""
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NAMES: Final = [f"report_{n}" for n in range(COUNT)]
FOUND: Final = (7, 90, 150, 42)
"""Tools that the conversation finds, one every five turns."""
Made: TypeAlias = list[dict[str, Any]]


class Turn(NamedTuple):
    """What the server reported of one prompt."""

    cached: int
    """Tokens that were in its cache."""
    tokens: int


def _about(name: str) -> str:
    return f"Returns {name.replace('_', ' ')}."


def _name_of(turn: int) -> str:
    """The tool that this turn calls."""
    return NAMES[FOUND[turn * len(FOUND) // TURNS]]


def _finds(turn: int) -> bool:
    """Whether this turn is the first one that calls its tool."""
    return turn == 0 or _name_of(turn) != _name_of(turn - 1)


def _messages_turn(turn: int) -> Made:
    """As Claude Code writes it: a search of the client, whose result refers to a tool."""
    name, made = _name_of(turn), Made()

    def called(id: str, tool: str, arguments: dict[str, str], result: object) -> None:
        use = {"type": "tool_use", "id": id, "name": tool, "input": arguments}
        made.append({"role": "assistant", "content": [use]})
        made.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]})

    if _finds(turn):
        reference = {"type": "tool_reference", "tool_name": name}
        called(f"s{turn}", "ToolSearch", {"query": f"select:{name}"}, [reference])
    called(f"c{turn}", name, {"city": "Bern"}, "fine")
    return made


def _messages_tools(turns: int) -> Made:
    """The search, and the tools found so far."""
    search = {"name": "ToolSearch", "description": f"Finds tools: {', '.join(NAMES)}", "input_schema": SCHEMA}
    found = dict.fromkeys(_name_of(turn) for turn in range(turns))
    found_tools = ({"name": n, "description": _about(n), "input_schema": SCHEMA, "defer_loading": True} for n in found)
    return [*found_tools, search]


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": _about(name), "parameters": SCHEMA}


def _responses_turn(turn: int) -> Made:
    """Items of a search that the gateway ran, and those of a call."""
    name, made = _name_of(turn), Made()
    if _finds(turn):
        search = {"execution": "server", "call_id": None, "status": "completed"}
        made.append({"type": "tool_search_call", "arguments": {"query": name}, **search})
        made.append({"type": "tool_search_output", "tools": [{**_function(name), "defer_loading": True}], **search})
    made.append({"type": "function_call", "call_id": f"c{turn}", "name": name, "arguments": '{"city": "Bern"}'})
    made.append({"type": "function_call_output", "call_id": f"c{turn}", "output": "fine"})
    return made


def _responses_tools(turns: int) -> Made:
    return [{"type": "tool_search"}, *({**_function(name), "defer_loading": True} for name in NAMES)]


def _chat_turn(turn: int) -> Made:
    call = {"id": f"c{turn}", "type": "function", "function": {"name": _name_of(turn), "arguments": '{"city": "Bern"}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{turn}", "content": "fine"},
    ]


def _chat_tools(turns: int) -> Made:
    """All tools, from a client that knows no search."""
    return [
        {"type": "function", "function": {k: v for k, v in _function(name).items() if k != "type"}} for name in NAMES
    ]


KINDS: Final[dict[str, tuple[Callable[[int], Made], Callable[[int], Made]]]] = {
    "anthropic_messages": (_messages_turn, _messages_tools),
    "openai_responses": (_responses_turn, _responses_tools),
    "openai_chat": (_chat_turn, _chat_tools),
}


@contextmanager
def gateway(home: Path, mode: str) -> Iterator[tuple[Gateway, str]]:
    """Runs a gateway in front of llama.cpp's server, in this tool mode; yields it, and the name of the model."""
    with llama(mode, CONTEXT) as upstream:
        config = home / "config.toml"
        settings = {
            "url": upstream.url,
            "provider": "llama_cpp",
            "tool_mode": mode,
            "call_format": "hermes",
            "models": [upstream.model],
        }
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        config.write_text(f"[tools]\nsearch_above = 50\n[upstreams.llama]\n{''.join(lines)}")
        with running(home, "--config", str(config)) as started:
            yield started, upstream.model


def conversation(api: str, started: Gateway, model: str) -> list[Turn]:
    """Returns the prompts of a conversation by a client of this API."""
    play, tools = KINDS[api]
    history: Made = [{"role": "user", "content": f"Compare the reports ({api})."}]
    turns: list[Turn] = []
    field = "input" if api == "openai_responses" else "messages"
    limit = "max_output_tokens" if api == "openai_responses" else "max_tokens"
    for turn in range(TURNS + 1):
        body = {"model": model, field: history, "tools": tools(turn), limit: 1, "temperature": 0}
        with started.client() as client:
            reply = client.post(dialects.get(api).path, json=body, timeout=PATIENCE_S)
        assert reply.status_code == 200, reply.text
        turns.append(_turn(reply.json()["usage"]))
        history += play(turn) if turn < TURNS else []
    return turns


def share(turns: list[Turn]) -> float:
    """Returns the share of cached tokens in all prompts but the first."""
    return sum(turn.cached for turn in turns[1:]) / sum(turn.tokens for turn in turns[1:])


def _turn(usage: dict[str, Any]) -> Turn:
    if "cache_read_input_tokens" in usage:
        return Turn(usage["cache_read_input_tokens"], usage["cache_read_input_tokens"] + usage["input_tokens"])
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return Turn(details["cached_tokens"], usage.get("prompt_tokens") or usage["input_tokens"])


def main() -> None:
    """Prints the shares."""
    parser = argparse.ArgumentParser(prog="python -m bench.search_cache", description=__doc__)
    parser.add_argument("--mode", choices=MODES, help="only this tool mode")
    parser.add_argument("--turns", action="store_true", help="also print the tokens of each prompt")
    args = parser.parse_args()
    for mode in [args.mode] if args.mode else MODES:
        with tempfile.TemporaryDirectory() as home, gateway(Path(home), mode) as (started, model):
            for api in KINDS:
                turns = conversation(api, started, model)
                print(f"{100 * share(turns):5.1f} % of the prompts cached: {mode}, {api}", flush=True)
                if args.turns:
                    print("".join(f"  {turn.tokens:6} tokens, {turn.tokens - turn.cached:5} read\n" for turn in turns))


if __name__ == "__main__":
    main()
