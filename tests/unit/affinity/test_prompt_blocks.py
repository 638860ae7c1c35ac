"""Blocks of prompts: equal up to the block in which two prompts begin to differ."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import dialects
from dragoman.affinity.prompt_blocks import PromptBlocks, prompt_blocks, response_hash
from dragoman.core.messages import (
    Image,
    MediaSource,
    Message,
    PreviousResponseRef,
    Reasoning,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)

SYSTEM = Message("system", (Text("You are a helpful agent. " * 40),))
HI = Message("user", (Text("hi"),))


def request(*messages: Message, tools: tuple[Tool, ...] = ()) -> Request:
    return Request("m", messages, tools)


def common(one: PromptBlocks, other: PromptBlocks) -> int:
    """The number of leading blocks that two prompts share."""
    pairs = zip(one.hashes, other.hashes, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one.hashes), len(other.hashes)))


MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["system", "user", "assistant"]),
        st.lists(st.builds(Text, st.text(max_size=900)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
)


@given(MESSAGES, MESSAGES)
def test_longer_conversation_begins_with_blocks_of_shorter(first: list[Message], more: list[Message]) -> None:
    short, long = prompt_blocks(request(*first)), prompt_blocks(request(*first, *more))
    assert long.hashes[: len(short.hashes)] == short.hashes
    assert long.ends[: len(short.ends)] == short.ends
    assert len(set(long.hashes)) == len(long.hashes)
    assert list(long.ends) == sorted(set(long.ends))


@given(MESSAGES, MESSAGES)
def test_blocks_after_a_difference_differ(first: list[Message], more: list[Message]) -> None:
    one = prompt_blocks(request(Message("user", (Text("one"),)), *first, *more))
    other = prompt_blocks(request(Message("user", (Text("two"),)), *first, *more))
    assert common(one, other) == 0
    assert not set(one.hashes) & set(other.hashes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Text("a", {"cache_control": msgspec.Raw(b'{"type":"ephemeral"}')}), Text("a")),
        (ToolCall("call_1", "ls", "{}"), ToolCall("call_2", "ls", "{}")),
        (ToolResult("call_1", (Text("a"),)), ToolResult("call_2", (Text("a"),))),
        (Reasoning("I think"), Reasoning("", redacted="x")),
    ],
)
def test_fields_that_change_between_turns_are_ignored(one: Text, other: Text) -> None:
    assert prompt_blocks(request(Message("user", (one,)))) == prompt_blocks(request(Message("user", (other,))))


@pytest.mark.parametrize(
    "other",
    [
        request(Message("user", (Text("hello"),))),
        request(Message("assistant", (Text("hi"),))),
        request(Message("user", (Text("h"), Text("i")))),
        request(Message("user", (ToolCall("1", "hi", ""),))),
        request(Message("user", (ToolResult("1", (Text("hi there"),)),))),
        request(Message("user", (Image(MediaSource("image/png", "aGk=")),))),
        request(HI, tools=(Tool("a"),)),
    ],
)
def test_different_prompts_have_no_common_block(other: Request) -> None:
    assert not set(prompt_blocks(request(HI)).hashes) & set(prompt_blocks(other).hashes)


def test_order_of_tools_counts_and_deferred_tools_do_not() -> None:
    a, b = Tool("a", "x" * 500), Tool("b", "y" * 500)
    assert common(prompt_blocks(request(HI, tools=(a, b))), prompt_blocks(request(HI, tools=(b, a)))) == 0
    found = msgspec.structs.replace(b, loading="found")
    assert prompt_blocks(request(HI, tools=(a, found))) == prompt_blocks(request(HI, tools=(a,)))


def test_billing_line_of_claude_code_is_ignored() -> None:
    def blocks(line: str) -> PromptBlocks:
        system = [{"type": "text", "text": line}, {"type": "text", "text": "Be kind."}]
        body = {"model": "m", "max_tokens": 9, "system": system, "messages": [{"role": "user", "content": "hi"}]}
        return prompt_blocks(dialects.get("anthropic_messages").read_request(msgspec.json.encode(body)))

    first = blocks("x-anthropic-billing-header: cc_version=2.1.329.abc; cch=1;")
    assert first == blocks("x-anthropic-billing-header: cc_version=2.1.329.def; cch=2;")
    assert first != blocks("Be brief.")


def test_conversation_is_the_prompt_up_to_the_first_message_of_the_user() -> None:
    reply = Message("assistant", (Text("hello"),))
    first = prompt_blocks(request(SYSTEM, HI)).conversation
    assert prompt_blocks(request(SYSTEM, HI, reply, HI)).conversation == first
    assert prompt_blocks(request(SYSTEM, reply)).conversation != first


def test_number_of_blocks_grows_with_the_logarithm() -> None:
    text = "word " * 200_000
    whole = prompt_blocks(request(Message("user", (Text(text),))))
    many = prompt_blocks(request(*(Message("user", (Text(part),)) for part in text.split())))
    assert whole.size_bytes > 1_000_000
    assert len(whole.hashes) < 110
    assert len(many.hashes) < 150


def test_earlier_conversation_that_is_referred_to_counts() -> None:
    turn = msgspec.structs.replace(request(HI), previous_response=PreviousResponseRef("resp_1"))
    blocks = prompt_blocks(turn)
    assert blocks.hashes[0] == response_hash("resp_1")
    assert blocks.ends[0] > 0.9 * blocks.size_bytes


def test_lone_surrogates_and_empty_prompts_have_blocks() -> None:
    assert prompt_blocks(request(Message("user", (Text("\ud800"),)))).hashes
    assert prompt_blocks(Request("m", ())) == prompt_blocks(Request("n", ()))


def test_hashes_are_the_same_in_each_process() -> None:
    program = (
        "from dragoman.affinity.prompt_blocks import prompt_blocks\n"
        "from dragoman.core.messages import Message, Request, Text\n"
        "print(prompt_blocks(Request('m', (Message('user', (Text('hi'),)),))).hashes)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(prompt_blocks(request(HI)).hashes)
