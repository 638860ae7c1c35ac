"""Twenty requests of one conversation of the real Claude Code: each prompt is a prefix of the next one.

One changed byte invalidates the prompt cache of a local model. Tested with live requests of Claude Code, and with a
recording (tests/support/client_recordings.py), whose text is filler, so that only live requests show changes of the
client's own text.
"""

import importlib.util
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest
from bench import offline
from msgspec.structs import replace

from dragoman import dialects, formats
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.planning.rejections import without_reasoning
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import (
    AnyEvent,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.token_estimate import GENERIC
from dragoman.prompting.chat_renderer import render_chat
from dragoman.prompting.trim import trim_request
from dragoman.wire.history import repair_history
from support import agents, client_recordings
from support.agents import OURS
from support.chat_templates import CHATML, HERMES_TEMPLATE
from support.events import all_events
from support.scripted_backend import Scripted, Sent, served
from support.servers import real

NAME: Final = "claude_code-twenty"
TURNS: Final = 20
ANTHROPIC: Final = dialects.get("anthropic_messages")
SPECIAL: Final = ("<|im_start|>", "<|im_end|>")


def read(path: str) -> tuple[str, dict[str, object]]:
    return "Read", {"file_path": f"FOLDER/{path}"}


def run(command: str) -> tuple[str, dict[str, object]]:
    return "Bash", {"command": command, "description": f"For notes.txt: {command.split()[0]}"}


def edit(old: str, new: str) -> tuple[str, dict[str, object]]:
    return "Edit", {"file_path": "FOLDER/notes.txt", "old_string": old, "new_string": new}


WRITE: Final = ("Write", {"file_path": "FOLDER/more.txt", "content": "More than notes.txt: <tool_call> and é\n"})
SAID: Final[Sequence[tuple[str, Sequence[Sequence[tuple[str, dict[str, object]]]]]]] = [
    ("Read notes.txt and say what it holds", [[read("notes.txt")], []]),
    (
        "Now make it a quince in notes.txt",
        [[run("cat notes.txt")], [read("notes.txt"), read("no notes.txt")], [edit("pomegranate", "quince")], []],
    ),
    ("What was in notes.txt before?", [[]]),
    (
        "Look at notes.txt closely",
        [[run(f"{c} notes.txt")] for c in ("wc", "ls -d", "head -1", "file", "grep -n quince")] + [[]],
    ),
    ("Write more.txt beside notes.txt", [[WRITE], [read("more.txt")], [run("cat notes.txt more.txt")], []]),
    ("Change notes.txt back", [[edit("quince", "pomegranate")], [run("cat notes.txt")], []]),
]
"""The user's messages, each with the model's steps: a list of calls, or text if the list is empty."""


class Playing:
    """A scripted model that plays SAID step by step, with reasoning in every third response."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = iter([step for _, steps in SAID for step in steps])
        self.asked: list[v.Request] = []

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        self.asked.append(request)
        n = len(self.asked)
        yield Start("", "", 0, 100)
        if n % 3 == 1:
            yield ReasoningDelta("It is about notes.txt", "c2ln")
        calls = next(self._steps)
        yield TextDelta(f"Step {n} with notes.txt.")
        for index, (name, arguments) in enumerate(calls):
            yield ToolCallStart(index, f"call_{n}_{index}", name)
            yield ToolCallDelta(index, json.dumps(arguments).replace("FOLDER", str(self._folder)))
            yield ToolCallEnd(index)
        yield Finish("stop")


async def test_prompt_prefix_is_stable_as_claude_code_asks_now(tmp_path: Path, keep: Callable[..., None]) -> None:
    folder = agents.folder_of(tmp_path)
    async with served(script := Playing(folder)) as s:
        options = ["--allowedTools", "Read,Bash,Edit,Write"]
        told = await agents.converse(s.url, tmp_path, folder, [said for said, _ in SAID], *options)
    assert [line["is_error"] for line in told if line["type"] == "result"] == [False] * len(SAID)
    assert len(script.asked) == TURNS
    client = f"Claude Code {offline.version('@anthropic-ai/claude-code')}"
    keep(NAME, client, s.sent, OURS, [tmp_path], how="as_claude_code_asks_now", growing=True)
    for name in ("turns hermes", "a template with tools", "openai_chat, aggressive", "openai_responses"):
        assert_prefixes([SHOWN[name](without_reasoning(request)) for request in script.asked])


@cache
def requests() -> Sequence[v.Request]:
    """The recorded requests, each with a different billing header, which is filler in the recording."""
    sent = [sent for name, sent in client_recordings.recorded() if name.startswith(NAME)]
    assert len(sent) == TURNS
    return tuple(ANTHROPIC.read_request(billed(request, n)) for n, request in enumerate(sent))


@cache
def without_thoughts() -> Sequence[v.Request]:
    """The requests without reasoning, as many formats and templates render them."""
    return tuple(map(without_reasoning, requests()))


def billed(sent: Sent, n: int) -> bytes:
    body = json.loads(sent.body)
    assert body["system"][0]["text"].startswith(client_recordings.BILLING)
    body["system"][0]["text"] = f"{client_recordings.BILLING} cc_version=2.1.329; cch={n:05x};"
    return json.dumps(body).encode()


def plain_turns(name: str) -> Callable[[v.Request], str]:
    """Renders the prompt as plain turns in this format."""

    def shown(request: v.Request) -> str:
        turns = render_chat(ordered(request), formats.get(name))
        return "".join(f"<|{turn.role}|>\n{turn.text}<|end|>\n" for turn in turns) + "<|assistant|>\n"

    return shown


def by_template(source: str) -> Callable[[v.Request], str]:
    """Renders the prompt with a chat template, as for the embedded model."""
    template = ChatTemplate(source, "<bos>", "<eos>", SPECIAL)
    return lambda request: template.render(ordered(request), formats.get("hermes")).text


def as_body(name: str, member: str) -> Callable[[v.Request], str]:
    """Renders the body for an upstream server: the tools, then the messages."""

    def shown(request: v.Request) -> str:
        written = dialects.get(name).write_request(ordered(request), "m").body
        body = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        said = msgspec.json.decode(body[member], type=list[msgspec.Raw])
        parts = [body["tools"], body.get("instructions", msgspec.Raw()), *said]
        return "\n".join(bytes(part).decode() for part in parts)

    return shown


def ordered(request: v.Request) -> v.Request:
    """The request as the gateway sends it to a backend."""
    return replace(request, messages=repair_history(request.messages)[0])


def trimmed(shown: Callable[[v.Request], str], tier: str) -> Callable[[v.Request], str]:
    """Renders the request after prompt trimming."""
    return lambda request: shown(trim_request(request, tier, GENERIC).request)


def model_template(name: str) -> str:
    """A model's own template, from the package trl."""
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0], "chat_templates", f"{name}.jinja").read_text()


SHOWN: Final[dict[str, Callable[[v.Request], str]]] = {
    **{f"turns {name}": plain_turns(name) for name in formats.names()},
    "a template with tools": by_template(HERMES_TEMPLATE),
    "a template without": by_template(CHATML),
    **{f"template {name}": by_template(model_template(name)) for name in ("qwen2_5", "qwen3_instruct_2507")},
    **{f"turns hermes, {tier}": trimmed(plain_turns("hermes"), tier) for tier in ("tools", "aggressive", "max")},
    "template qwen2_5, max": trimmed(by_template(model_template("qwen2_5")), "max"),
    "openai_chat, aggressive": trimmed(as_body("openai_chat", "messages"), "aggressive"),
    "openai_chat": as_body("openai_chat", "messages"),
    "openai_responses": as_body("openai_responses", "input"),
}


def assert_prefixes(prompts: Sequence[str]) -> None:
    """Asserts that each prompt is a prefix of the next one."""
    for n, (before, after) in enumerate(pairwise(prompts), 1):
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        assert after.startswith(before), (
            f"request {n}: {before[max(0, same - 60) : same + 60]!r} {after[same : same + 60]!r}"
        )


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_prompt_prefix_is_stable_in_recording(shown: Callable[[v.Request], str]) -> None:
    assert_prefixes([shown(request) for request in without_thoughts()])


@pytest.mark.parametrize("name", ["turns hermes", "turns glm", "a template with tools", "openai_chat"])
def test_reasoning_is_kept_during_tool_loop(name: str) -> None:
    """Reasoning is removed with the user's next message, as in the models' own templates."""
    asked = requests()
    assert any(isinstance(part, v.Reasoning) for message in asked[-1].messages for part in message.parts)
    begun = [n for n, request in enumerate(asked) if not isinstance(request.messages[-1].parts[-1], v.ToolResult)]
    assert len(begun) == len(SAID)
    for first, end in pairwise([*begun, TURNS]):
        assert_prefixes([SHOWN[name](request) for request in asked[first:end]])


def test_changed_prefix_is_detected() -> None:
    with pytest.raises(AssertionError, match="request 1: 'this and that'"):
        assert_prefixes(["this and that", "this and then that"])


def short(request: v.Request) -> v.Request:
    """The conversation reduced for the small model's context: three tools, and no system text."""
    tools = tuple(tool for tool in request.tools if tool.name in ("Read", "Bash", "Edit"))
    said = tuple(message for message in request.messages if message.role not in ("system", "developer"))
    return replace(request, messages=said, tools=tools, max_tokens=1, stream=True)


async def test_real_server_reuses_whole_previous_prompt() -> None:
    """With four of the requests; docs/local.md reports all twenty."""
    told: list[v.Usage] = []
    with real.llama("native") as behind:
        backend = HttpBackend(
            "real", HttpConfig(url=behind.url, models=(behind.model,), tool_mode="native", prompt_trim="aggressive"), {}
        )
        await backend.start()
        try:
            for n, request in enumerate(requests()[:4]):
                asked = short(replace(ordered(request), model=behind.model))
                events = backend.generate(asked, ExchangeContext("1", 0, (f"{n}{i:023}" for i in range(99)).__next__))
                told += [event.usage for event in await all_events(events) if isinstance(event, UsageUpdate)]
        finally:
            await backend.close()
    assert len(told) == 4
    assert told[0].input_tokens > 300
    for before, after in pairwise(told):
        assert after.cached_input_tokens >= before.input_tokens - 1
        assert after.input_tokens > before.input_tokens
