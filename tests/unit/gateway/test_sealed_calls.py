"""Calls of a turn in a sealed summary."""

import json
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace

from dragoman.core.backend import ExchangeContext
from dragoman.core.events import Finish, TextDelta, VendorBlock
from dragoman.core.messages import Message, Request, Text, ToolCall, ToolResult, UnknownPart, part_text
from dragoman.gateway.compaction import Seal, SealedSummary, unseal_items
from dragoman.steps.progress import request_progress

SEAL: Final = Seal(b"key")


def unsealed(sealed: str) -> Request:
    raw = msgspec.Raw(json.dumps({"type": "compaction", "encrypted_content": sealed}).encode())
    return unseal_items(
        Request("m", (Message("user", (UnknownPart("compaction", raw, "$.input"),)),)), SEAL, foreign=False
    )


def text_of(request: Request) -> str:
    return part_text(request.messages[0].parts[0])


def called(number: int, name: str) -> tuple[Message, Message]:
    call = ToolCall(f"c{number}", name, f'{{"n": {number}}}')
    return Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text("ok"),)),))


def test_summary_of_many_calls_keeps_those_that_steps_need() -> None:
    question = Message("user", (Text("Fetch all."),))
    calls = [message for n in range(200) for message in called(n, "fetch")]
    request = Request("m", (question, *calls, *called(200, "analyze"), Message("user", (Text("Summarize."),))))
    stage = SealedSummary(SEAL, ExchangeContext("1", 0, iter("ab").__next__), request)
    block, _ = stage.feed([TextDelta("Done."), Finish("stop")])
    assert isinstance(block, VendorBlock)
    found = unsealed(json.loads(block.json)["encrypted_content"])
    assert text_of(found).endswith("\n\nDone.")
    assert found.folded is not None
    progress = request_progress(found)
    assert (progress.total, progress.done["analyze"]) == (201, 1)
    assert 64 <= progress.done["fetch"] < 100, "no steps need more"


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ('Fixed b.\0{"calls": {"fetch": 1}, "done": [["fetch", "ab', "Fixed b."),
        ('Fixed b.\0{"calls": []}', "Fixed b."),
        ("Fixed b.\0Then c.", "Fixed b.Then c."),
        ("é" * (2 << 20) + "b", "é" * (2 << 20)),
        ("b" + "é" * (2 << 20), "b" + "é" * ((2 << 20) - 1)),
    ],
    ids=["calls without an end", "calls of another type", "zero byte of the model", "too long", "cut in a character"],
)
def test_summary_without_readable_calls_is_used(summary: str, shown: str) -> None:
    found = unsealed(SEAL.seal(summary))
    assert text_of(found).endswith("\n\n" + shown)
    assert replace(found, messages=()) == Request("m", ())
